//! `disklet uninstall` against a real cluster without nodes: what it leaves can be
//! deleted by whoever it belongs to, without anything of ours.

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

use std::process::Command;

use cluster::{Place, eventually, kubectl, kubectl_with};
use controller::Controller;
use serde_json::json;

/// It runs, by a claim that QEMU opens.
const VM: &str = "
apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {name: kept}
spec:
  domain:
    memory: 64Mi
    devices:
      disks:
      - source: {pvc: {claimname: disk}}
";

/// What uninstalling says; VMs of earlier tests may still be going.
fn uninstalled(options: &[&str]) -> String {
    let mut said = String::new();
    eventually("Disklet is uninstalled", || {
        let mut disklet = Command::new(env!("CARGO_BIN_EXE_disklet"));
        // The account of other tests stays.
        disklet.args(["uninstall", "--namespace", "disklet-elsewhere"]);
        let output = disklet.args(options).output().unwrap();
        said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        output.status.success()
    });
    said
}

fn label(node: &str, manager: &str) {
    let manager = format!("--field-manager={manager}");
    let label = r#"{"metadata":{"labels":{"extraRuntime":"virtlet"}}}"#;
    kubectl(&["patch", node, &manager, "--type=merge", "-p", label]);
}

fn labelled() -> String {
    kubectl(&["get", "nodes", "-l", "extraRuntime=virtlet", "-o", "name"])
}

#[test]
#[ignore = "needs script/kube"]
fn what_stays_is_held_by_nobody() {
    let place = Place::new("uninstall");
    let controller = Controller::start();
    place.volume(
        "disk",
        json!({"iscsi": {"targetPortal": "192.0.2.1:3260", "iqn": "iqn.2026-01.com.example:disk", "lun": 1}}),
    );
    place.claim("disk");
    place.apply(VM);
    place.running("kept");
    place.patch("vm/kept", &json!({"spec": {"running": false}}));
    place.eventually("pod/kept", |pod| {
        pod["metadata"]["deletionTimestamp"].is_string()
    });
    place.ended("kept");
    place.agent_lets_go("kept");
    place.gone("pod/kept");
    place.eventually("vm/kept", |vm| vm["status"]["phase"] == "Stopped");
    controller.end();
    let node = format!("node/{}", place.namespace());
    label(&node, "disklet-agent");
    let another = format!("{}-by-hand", place.namespace());
    let object = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": another},
        "spec": {"unschedulable": true},
    });
    kubectl_with(&["create", "-f", "-"], &object.to_string());
    let another = format!("node/{another}");
    label(&another, "kubectl");

    // Nothing is changed by looking.
    let said = uninstalled(&["--dry-run"]);
    let kept = format!("VM {}/kept would be held no more", place.namespace());
    assert!(said.contains(&kept), "{said}");
    let held = |object: &str| place.get(object)["metadata"]["finalizers"].to_string();
    assert!(held("vm/kept").contains("disklet.io/vm"));
    assert!(held("pvc/disk").contains("disklet.io/in-use"));
    assert_eq!(labelled().lines().count(), 2);

    uninstalled(&[]);
    assert!(!held("pvc/disk").contains("disklet.io"));
    assert_eq!(labelled().trim(), another);
    // As the administrator would do next.
    place.kubectl(&["delete", "vm", "kept", "--timeout=20s"]);
    place.kubectl(&["delete", "pvc", "disk", "--timeout=20s"]);
    kubectl(&["delete", &another]);
}
