//! What the configuration of the nodes says, on a real cluster: where images come from that
//! are named as addresses, by digests and by a mapping file, and how much memory VMs have.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::path::Path;
use std::process::Command;

use kube::guests::{NODE, assert_said};
use kube::images::Web;
use kube::pods::{delete_pod, idle_pod};
use kube::{Tenant, on_node, run, until};
use serde_json::json;
use world::{alone, have_idle_guest, pod_of, until_nothing_is_left};

/// Below the data directory, which agents see.
const FILES: &str = "/var/lib/disklet/test-names";

fn kubectl(arguments: &[&str]) -> String {
    run(Command::new("kubectl")
        .args(["-n", "disklet"])
        .args(arguments))
}

/// The nodes' configuration, with more of it, and files that it names; all of it goes with
/// this.
struct Configured {
    before: String,
}

impl Configured {
    fn new(more: &str, files: &[(&str, &str)]) -> Self {
        on_node(NODE, &["mkdir", "-p", FILES]);
        for (name, text) in files {
            let write = "printf %s \"$1\" >\"$2\"";
            let file = format!("{FILES}/{name}");
            on_node(NODE, &["sh", "-c", write, "sh", text, &file]);
        }
        let text = "jsonpath={.data.config\\.yaml}";
        let before = kubectl(&["get", "configmap", "disklet-config", "-o", text]);
        let configured = Self { before };
        configured.set(&format!("{}\n{more}", configured.before));
        configured.trust(&format!("SSL_CERT_FILE={FILES}/ca.pem"));
        configured
    }

    /// Agents read it when they start.
    fn set(&self, text: &str) {
        let patch = json!({"data": {"config.yaml": text}}).to_string();
        let what = ["patch", "configmap", "disklet-config", "--type=merge"];
        kubectl(&[&what[..], &["-p", &patch]].concat());
    }

    /// Another variable makes other agents.
    fn trust(&self, variable: &str) {
        let agents = "daemonset/disklet-agent";
        kubectl(&["set", "env", agents, variable]);
        kubectl(&["rollout", "status", agents, "--timeout=300s"]);
        pod_of("agent");
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        self.set(&self.before);
        self.trust("SSL_CERT_FILE-");
        on_node(NODE, &["rm", "-rf", FILES]);
    }
}

const RUNNING: &str = ".status.conditions[?(@.type==\"disklet.io/running\")]";

/// A VM pod of an image; nothing on its disk boots, which is nobody's concern here.
fn pod_with(name: &str, image: &str) -> String {
    idle_pod(name, "")
        .replace("virtlet.cloud/idle", &format!("virtlet.cloud/{image}"))
        .replace("PeriodSeconds: 20", "PeriodSeconds: 1")
}

fn told(tenant: &Tenant, pod: &str) -> String {
    let about = format!("involvedObject.name={pod}");
    let lines = "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}";
    tenant.kubectl(&["get", "events", "--field-selector", &about, "-o", lines])
}

fn digest(file: &Path) -> String {
    let said = run(Command::new("sha256sum").arg(file));
    said.split(' ').next().expect("a digest").to_owned()
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn agents_fetch_images_by_address_by_digest_and_by_a_file_and_refuse_what_has_no_room() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("names");
    let web = Web::start(&tenant);
    let (host, mapped) = (web.host(), format!("{}/by-file", tenant.name));
    let mapping = format!(
        "translations:
- {{name: {mapped}, url: \"https://{host}/disk.raw\", transport: inside}}
transports:
  inside: {{tls: {{caFile: {FILES}/ca.pem}}}}
"
    );
    let more = format!(
        "networks: {{allow: [127.0.0.0/8]}}\nimageTranslations: {FILES}/mapping.yaml\ndefaultMemory: 4Gi\n"
    );
    let files = [("ca.pem", &*web.authority()), ("mapping.yaml", &*mapping)];
    let configured = Configured::new(&more, &files);
    // No other test brings this one to the node.
    let first = digest(&web.file("first/disk.qcow2"));
    let images = [
        ("addressed", format!("{host}/second/disk.raw")),
        ("pinned", format!("{host}/first/disk.qcow2@sha256:{first}")),
        ("by-file", mapped),
    ];
    for (pod, image) in &images {
        tenant.apply(&pod_with(pod, image));
    }
    // Of nothing that the node has: what it has, and everybody may use, it takes by the digest.
    let other = "ab".repeat(32);
    let wrong = format!("{host}/first/disk.qcow2@sha256:{other}");
    tenant.apply(&pod_with("other", &wrong));
    // The controllers were not told: their launchers are for less.
    let unsaid = idle_pod("unsaid", "").replace("    resources: {limits: {memory: 32Mi}}\n", "");
    assert!(!unsaid.contains("memory"), "{unsaid}");
    tenant.apply(&unsaid);
    for (pod, _) in &images {
        let object = format!("pod/{pod}");
        tenant.await_field(120, &object, &format!("{RUNNING}.status"), "True");
        assert_said(&told(&tenant, pod), &["Pulled pulled image", &host]);
    }
    let refused = until(90, "another file than the digest's is refused", || {
        let told = told(&tenant, "other");
        told.contains("PullRefused").then_some(told)
    });
    assert_said(&refused, &[&other]);
    let why = until(90, "what has no room is refused", || {
        tenant.field("pod/unsaid", &format!("{RUNNING}.message"))
    });
    assert_said(
        &why,
        &[
            "spec.containers[0].resources.limits.memory: the guest is to have 4 GiB of memory",
            "disklet install --config",
        ],
    );
    let pods = images.iter().map(|(pod, _)| *pod);
    for pod in pods.chain(["other", "unsaid"]) {
        delete_pod(&tenant, pod);
    }
    until_nothing_is_left(60, "images by their names");
    drop(configured);
}
