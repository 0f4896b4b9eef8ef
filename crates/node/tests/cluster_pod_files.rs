//! The token of a VM pod's account, in its guest, on a real cluster that issues tokens
//! as pods start.
//!
//! The small guest has no cloud-init: it takes files out of the user data, as
//! cloud-init would.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::io::Write;
use std::process::{Command, Stdio};

use kube::Tenant;
use kube::guests::have_small_guest;
use kube::pods::{delete_pod, vm_pod};
use serde_json::{Value, json};

/// Where Kubernetes' clients look.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A command for the guest: it says what a file has, or nothing if there is no such
/// file.
fn say(label: &str, path: &str) -> String {
    format!(
        "awk '$2==\"path:\"{{at=($3==\"{path}\")}} at&&$1==\"content:\"{{if($2==\">-\")getline; print $NF; exit}}' \
         /run/seed/user-data >/run/packed; echo {label}=$(base64 -d /run/packed | tr '\\n' '|')=END"
    )
}

/// What the guest has said.
fn said(console: &str, label: &str) -> String {
    let begin = format!("{label}=");
    let (_, rest) = console.split_once(&begin).expect("the guest says it");
    let (text, _) = rest.split_once("=END").expect("to the end");
    text.replace('|', "\n")
}

/// A VM pod whose guest runs these commands. Its user data is no script, which would
/// leave files out.
fn pod(name: &str, spec: &str, commands: &[String]) -> String {
    let lines: String = commands
        .iter()
        .map(|command| format!("\n          #guest: {command}"))
        .collect();
    let user_data = format!(
        "    VirtletCloudInitUserData: |
      write_files:
      - path: /etc/commands
        content: |
          #guest: mkdir -p /run/seed; mount -t iso9660 -o ro /dev/sr0 /run/seed{lines}
          #guest: stay"
    );
    let manifest = vm_pod(name, spec, &["x"]);
    let (before, after) = manifest
        .split_once("    VirtletCloudInit")
        .expect("the script");
    let (_, after) = after.split_once("\nspec:").expect("the spec");
    format!("{before}{user_data}\nspec:{after}")
}

/// What the API server says of a token.
fn reviewed(token: &str, audiences: &[&str]) -> Value {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences},
    });
    let mut kubectl = Command::new("kubectl")
        .args(["create", "-f", "-", "--raw"])
        .arg("/apis/authentication.k8s.io/v1/tokenreviews")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut stdin = kubectl.stdin.take().expect("a pipe");
    write!(stdin, "{review}").expect("kubectl reads");
    drop(stdin);
    let output = kubectl.wait_with_output().expect("kubectl ends");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("an answer");
    answer["status"].clone()
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_has_the_token_of_its_account() {
    have_small_guest();
    let tenant = Tenant::new("pod-token");
    let spec = "    volumeMounts: [{name: own, mountPath: /etc/vault}]
  volumes:
  - name: own
    projected:
      sources:
      - serviceAccountToken: {path: a/token, audience: vault, expirationSeconds: 900}";
    let commands = [
        say("TOKEN", &format!("{ACCOUNT}/token")),
        say("AUTHORITY", &format!("{ACCOUNT}/ca.crt")),
        say("NAMESPACE", &format!("{ACCOUNT}/namespace")),
        say("VAULT", "/etc/vault/a/token"),
    ];
    tenant.apply(&pod("asks", spec, &commands));
    let console = tenant.await_console(180, "asks", "GUEST-READY");
    assert_eq!(said(&console, "NAMESPACE"), tenant.name);
    let authority = tenant.field("configmap/kube-root-ca.crt", ".data.ca\\.crt");
    assert_eq!(Some(said(&console, "AUTHORITY")), authority);
    let user = format!("system:serviceaccount:{}:default", tenant.name);
    let uid = tenant.field("pod/asks", ".metadata.uid").expect("the pod");
    for (label, audiences) in [("TOKEN", &[] as &[&str]), ("VAULT", &["vault"])] {
        let status = reviewed(&said(&console, label), audiences);
        assert_eq!(status["authenticated"], true, "{label}: {status}");
        assert_eq!(status["user"]["username"], user.as_str(), "{label}");
        let bound = &status["user"]["extra"]["authentication.kubernetes.io/pod-uid"][0];
        assert_eq!(*bound, uid.as_str(), "{label}");
    }
    // What is for one is nothing to others.
    let elsewhere = reviewed(&said(&console, "VAULT"), &[]);
    assert_ne!(elsewhere["authenticated"], true, "{elsewhere}");
    // Nobody who may look at the pod or at its events sees any of it.
    let seen = [
        tenant.kubectl(&["get", "pod", "asks", "-o", "yaml"]),
        tenant.kubectl(&["get", "events", "-o", "yaml"]),
    ];
    for label in ["TOKEN", "VAULT"] {
        let token = said(&console, label);
        assert!(seen.iter().all(|text| !text.contains(&token)), "{label}");
    }
    delete_pod(&tenant, "asks");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_that_shall_have_no_token_has_none() {
    have_small_guest();
    let tenant = Tenant::new("pod-no-token");
    let commands = [say("TOKEN", &format!("{ACCOUNT}/token"))];
    tenant.apply(&pod(
        "tokenless",
        "  automountServiceAccountToken: false",
        &commands,
    ));
    let console = tenant.await_console(180, "tokenless", "GUEST-READY");
    assert_eq!(said(&console, "TOKEN"), "");
    delete_pod(&tenant, "tokenless");
}
