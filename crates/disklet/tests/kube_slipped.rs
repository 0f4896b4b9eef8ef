//! VM pods that came while nobody answered for us, on a real API server without nodes: what
//! the controller does about them, whatever others in the cluster have to say.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/cluster.rs"]
#[allow(dead_code, reason = "the controller's tests use the rest")]
mod cluster;
#[path = "kube/controller.rs"]
#[allow(dead_code, reason = "the controller's tests use the rest")]
mod controller;
#[path = "kube/webhook.rs"]
#[allow(dead_code, reason = "the webhook's tests use the rest")]
mod webhook;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use cluster::{Place, eventually, kubectl, kubectl_says, kubectl_with};
use serde_json::{Value, json};
use webhook::Webhook;

const NOTHING: &str = "NOT-A-VM:delete-this-pod-and-create-it-again";

fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"kubernetes.io/target-runtime": "virtlet.cloud"}},
        "spec": {"containers": [{"name": "vm", "image": "virtlet.cloud/cirros"}]},
    });
    for (part, fields) in more.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            pod[part][key] = value.clone();
        }
    }
    pod
}

fn is_stopped(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["image"] == NOTHING
}

/// What is told of a pod.
fn told(place: &Place, pod: &str) -> String {
    let of = format!("--field-selector=involvedObject.name={pod},reason=NotLaunched");
    place.kubectl(&["get", "events", &of, "-o", "jsonpath={.items[*].message}"])
}

/// Whoever writes a launcher's label, as to have other webhooks leave the pod alone, has
/// made no launcher.
#[test]
#[ignore = "needs script/kube"]
fn a_pod_with_the_label_of_a_launcher_is_seen() {
    let place = Place::new("slipped-label");
    let webhook = Webhook::installed();
    let labels = json!({"metadata": {"labels": {"disklet.io/vm": "labelled"}}});
    place.apply(&pod("labelled", &labels).to_string());
    let _controller = webhook.controller(&[]);
    place.eventually("pod/labelled", is_stopped);
    eventually("it is told", || {
        told(&place, "labelled").contains("no launcher took its place")
    });
}

/// A webhook that nobody answers for, and without which no pod of a place is changed. It
/// goes with this.
struct Strict;

impl Drop for Strict {
    fn drop(&mut self) {
        kubectl_says(&["delete", "validatingwebhookconfiguration/strict"], "");
    }
}

fn refuse_changes(place: &Place) -> Strict {
    let namespace = place.namespace();
    kubectl(&["label", "namespace", namespace, "disklet.test/strict=yes"]);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "strict", "labels": {"disklet.test/place": namespace}},
        "webhooks": [{
            "name": "images.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 2,
            "namespaceSelector": {"matchLabels": {"disklet.test/strict": "yes"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["UPDATE"]}],
            "clientConfig": {"service": {"name": "nobody", "namespace": namespace, "path": "/"}},
        }],
    });
    kubectl_with(&["apply", "-f", "-"], &policy.to_string());
    Strict
}

#[test]
#[ignore = "needs script/kube"]
fn a_pod_that_others_do_not_let_us_stop_is_told_of() {
    let place = Place::new("slipped-strict");
    let webhook = Webhook::installed();
    place.apply(&pod("alone", &json!({})).to_string());
    let strict = refuse_changes(&place);
    let _controller = webhook.controller(&[]);
    let is_told = || {
        let told = told(&place, "alone");
        told.contains("could not be kept from running as a container")
            && told.contains("images.example.com")
    };
    eventually("it is told why it is not stopped", is_told);
    assert!(!is_stopped(&place.get("pod/alone")));
    // It is tried again, which is not told again.
    std::thread::sleep(Duration::from_secs(12));
    let of = "--field-selector=involvedObject.name=alone,reason=NotLaunched";
    let counts = place.kubectl(&["get", "events", of, "-o", "jsonpath={.items[*].count}"]);
    assert_eq!(counts.trim(), "1");
    drop(strict);
    place.eventually("pod/alone", is_stopped);
}

/// Those of a place that are written as VMs and are not stopped, and how many there are.
fn running(place: &Place) -> (Vec<String>, usize) {
    let list = place.kubectl(&["get", "pods", "-o", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let pods = list["items"].as_array().unwrap();
    let running = pods.iter().filter(|pod| !is_stopped(pod));
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    (running.map(name).collect(), pods.len())
}

/// Has the Service lead to who takes connections and never says a word: to API servers that
/// is a firewall that drops what comes. It is so as long as this lives.
fn be_lost_in_a_black_hole(webhook: &Webhook) -> TcpListener {
    let silent = TcpListener::bind("0.0.0.0:0").unwrap();
    webhook.lead_to(&[silent.local_addr().unwrap().port()]);
    silent
}

/// The controller is well, and API servers do not reach it: whatever they are asked about us
/// takes them seconds. That is no reason for anybody to run a moment longer, and least of all
/// for those beside a pod that carries a launcher's label, which anybody can write.
#[test]
#[ignore = "needs script/kube"]
fn in_a_black_hole_all_are_stopped_at_once() {
    let place = Place::new("slipped-hole");
    let webhook = Webhook::installed();
    let controller = webhook.start(&[]);
    eventually("the controller leads", || {
        controller.leads() && controller.is_ready() && webhook.has_authorities()
    });
    controller.end();
    // Nobody answers, at once: they come quickly.
    let label = json!({"metadata": {"labels": {"disklet.io/vm": "mine"}}});
    place.apply(&pod("labelled", &label).to_string());
    let held = json!({"metadata": {
        "labels": {"disklet.io/vm": "mine"}, "finalizers": ["disklet.io/agent"],
    }});
    place.apply(&pod("held", &held).to_string());
    let mut template = pod("x", &json!({"metadata": {"labels": {"app": "made"}}}));
    template["metadata"].as_object_mut().unwrap().remove("name");
    for field in ["apiVersion", "kind"] {
        template.as_object_mut().unwrap().remove(field);
    }
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "made"},
        "spec": {"replicas": 8, "selector": {"matchLabels": {"app": "made"}}, "template": template},
    });
    place.apply(&set.to_string());
    eventually("there are pods", || running(&place).1 == 10);
    let _silent = be_lost_in_a_black_hole(&webhook);
    let controller = webhook.start(&[]);
    eventually("the controller leads", || controller.leads());
    let begun = Instant::now();
    // That one API servers ask us about, and it is all by itself.
    eventually("all are stopped", || running(&place).0 == ["held"]);
    let took = begun.elapsed();
    // One question into the black hole for each would take longer, even on a busy machine.
    assert!(took < Duration::from_secs(20), "{took:?}");
    // They are stopped once.
    let writes = controller.writes();
    assert!(writes.contains("pods patch done 9"), "{writes}");
    // While it is tried in vain, and asked in vain, another one comes.
    place.apply(&pod("late", &json!({})).to_string());
    let begun = Instant::now();
    eventually("it is stopped", || running(&place).0 == ["held"]);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    eventually("what cannot be stopped is told of", || {
        told(&place, "held").contains("launchers.disklet.io")
    });
    place.kubectl(&["delete", "replicaset", "made", "--wait=false"]);
}

/// Whether a VM pod would become a VM is one question, and whether there is room for one
/// more pod is another.
#[test]
#[ignore = "needs script/kube"]
fn a_quota_that_is_used_up_keeps_no_pod_from_being_made_anew() {
    let place = Place::new("slipped-quota");
    let webhook = Webhook::installed();
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"},
        "spec": {"hard": {"pods": "1"}},
    });
    place.apply(&quota.to_string());
    place.eventually("resourcequota/one", |quota| {
        quota["status"]["hard"]["pods"] == "1"
    });
    let mut template = pod("x", &json!({"metadata": {"labels": {"app": "made"}}}));
    template["metadata"].as_object_mut().unwrap().remove("name");
    // A template is no object of its own.
    for field in ["apiVersion", "kind"] {
        template.as_object_mut().unwrap().remove(field);
    }
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "made"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "made"}}, "template": template},
    });
    place.apply(&set.to_string());
    let pods = || -> Vec<Value> {
        let list = place.kubectl(&["get", "pods", "-o", "json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        list["items"].as_array().unwrap().clone()
    };
    eventually("there is a pod", || pods().len() == 1);
    let saved = |pod: &Value| pod["metadata"]["annotations"]["disklet.io/vm-pod"].is_string();
    assert!(!saved(&pods()[0]));
    let _controller = webhook.controller(&[]);
    eventually("a launcher has taken its place", || {
        pods().iter().any(saved)
    });
    place.kubectl(&["delete", "replicaset", "made", "--wait=false"]);
}

/// By its label a launcher is protected from updates, and another webhook can take it.
#[test]
#[ignore = "needs script/kube"]
fn a_launcher_without_its_label_has_it_again() {
    let place = Place::new("slipped-bare");
    let webhook = Webhook::installed();
    let controller = webhook.controller(&[]);
    place.apply(&pod("made", &json!({})).to_string());
    let launcher = place.get("pod/made");
    controller.kill();
    let mut bare = launcher.clone();
    let meta = bare["metadata"].as_object_mut().unwrap();
    for made in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "labels",
        "managedFields",
    ] {
        meta.remove(made);
    }
    bare["metadata"]["name"] = json!("bare");
    place.create(&bare.to_string());
    assert!(place.get("pod/bare")["metadata"]["labels"].is_null());
    let _controller = webhook.controller(&[]);
    place.eventually("pod/bare", |pod| {
        pod["metadata"]["labels"]["disklet.io/vm"] == "bare"
    });
    // And it is protected.
    let patch = json!({"spec": {"containers": [{"name": "vm", "image": "example.com/other"}]}});
    let set = ["-n", place.namespace(), "patch", "pod/bare", "-p"];
    let (done, said) = kubectl_says(&[&set[..], &[&patch.to_string()]].concat(), "");
    assert!(
        !done && said.contains("a VM pod stays as it was created"),
        "{said}"
    );
}

/// Of pods that come after their claims it is known what these are.
#[test]
#[ignore = "needs script/kube"]
fn who_names_a_claim_that_is_not_there_is_warned() {
    let place = Place::new("claims-later");
    let webhook = Webhook::installed();
    let _controller = webhook.controller(&[]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let manifest = |name: &str| pod(name, &json!({"spec": {"volumes": volumes}})).to_string();
    let (taken, said) = place.try_apply(&manifest("early"));
    assert!(taken, "{said}");
    let warning =
        "Warning: spec.volumes[0].persistentVolumeClaim.claimName: there is no claim \"data\" yet";
    assert!(said.contains(warning), "{said}");
    place.claim("data");
    let (taken, said) = place.try_apply(&manifest("late"));
    assert!(taken && !said.contains("Warning"), "{said}");
}
