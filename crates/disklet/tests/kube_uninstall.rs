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
#[path = "kube/webhook.rs"]
#[allow(dead_code, reason = "the webhook's tests use the rest")]
mod webhook;

use std::process::Command;

use cluster::{Place, eventually, kubectl, kubectl_says, kubectl_with};
use controller::Controller;
use serde_json::json;
use webhook::Webhook;

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

/// A VM pod's launcher, as the webhook would have made it, and beside it somebody's own pod.
const PODS: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: pod
  labels: {disklet.io/vm: pod}
  annotations: {disklet.io/vm-pod: '{\"containers\": []}'}
  finalizers: [disklet.io/agent]
spec:
  containers: [{name: vm, image: example.com/disklet}]
---
apiVersion: v1
kind: Pod
metadata:
  name: own
  labels: {disklet.io/vm: not-a-vm}
spec:
  containers: [{name: main, image: example.com/own}]
";

/// Where it is uninstalled from: the account of other tests stays.
const ELSEWHERE: &str = "disklet-elsewhere";

/// The rights are the controller's, and an installation elsewhere has them, too. The first
/// controller has them written again.
fn be_installed_elsewhere() {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
    kubectl_with(&["apply", "-f", "-"], &namespace.to_string());
    serve(ELSEWHERE);
}

/// One more namespace has the account of an installation.
fn serve(namespace: &str) {
    let account = json!([{"op": "add", "path": "/subjects/-", "value": {
        "kind": "ServiceAccount", "name": "disklet-controller", "namespace": namespace,
    }}]);
    let patch = account.to_string();
    let binding = "clusterrolebinding/disklet-controller";
    kubectl(&["patch", binding, "--type=json", "-p", &patch]);
}

fn uninstall(namespace: &str, options: &[&str]) -> (bool, String) {
    let mut disklet = Command::new(env!("CARGO_BIN_EXE_disklet"));
    disklet.args(["uninstall", "--namespace", namespace]);
    let output = disklet.args(options).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), said)
}

/// What uninstalling says; VMs of earlier tests may still be going.
fn uninstalled(options: &[&str]) -> String {
    let mut said = String::new();
    eventually("Disklet is uninstalled", || {
        let (is_done, told) = uninstall(ELSEWHERE, options);
        said = told;
        is_done
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
    controller::have_rights();
    let controller = Controller::start();
    be_installed_elsewhere();
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

    // Somebody else's installation is not touched.
    let (is_done, said) = uninstall("wrong", &[]);
    let where_it_is = format!(
        "installed in namespace {}, not in wrong",
        controller::NAMESPACE
    );
    assert!(!is_done && said.contains(&where_it_is), "{said}");
    kubectl(&["get", "clusterrole/disklet-controller"]);

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

/// The kubelet ends what is deleted, and the agent lets go of it.
fn frees(place: &Place, pod: &str) {
    place.eventually(&format!("pod/{pod}"), |pod| {
        pod["metadata"]["deletionTimestamp"].is_string()
    });
    place.ended(pod);
    place.agent_lets_go(pod);
}

#[test]
#[ignore = "needs script/kube"]
fn by_force_vm_objects_and_vm_pods_go_first() {
    let place = Place::new("force");
    controller::have_rights();
    let controller = Controller::start();
    be_installed_elsewhere();
    place.volume(
        "disk",
        json!({"iscsi": {"targetPortal": "192.0.2.1:3260", "iqn": "iqn.2026-01.com.example:disk", "lun": 2}}),
    );
    place.claim("disk");
    place.apply(VM);
    place.running("kept");
    place.create(PODS);
    for pod in ["pod", "own"] {
        place.run_on_a_node(pod);
        place.set_running(pod);
    }
    let (is_done, said) = uninstall(ELSEWHERE, &[]);
    let (vm, pod) = (
        format!("{}/kept", place.namespace()),
        format!("{}/pod", place.namespace()),
    );
    assert!(
        !is_done && said.contains(&vm) && said.contains(&pod),
        "{said}"
    );
    assert!(!said.contains("/own"), "{said}");

    let said = std::thread::scope(|scope| {
        let by_force = scope.spawn(|| uninstall(ELSEWHERE, &["--force", "--timeout=60"]));
        frees(&place, "kept");
        frees(&place, "pod");
        let (is_done, said) = by_force.join().unwrap();
        assert!(is_done, "{said}");
        said
    });
    assert!(said.contains(&format!("deleting VM pod {pod}")), "{said}");
    for gone in ["pod/kept", "pod/pod"] {
        place.gone(gone);
    }
    let own = place.get("pod/own");
    assert!(own["metadata"]["deletionTimestamp"].is_null());
    // It has lost its rights meanwhile.
    controller.kill();
}

/// Who names a node by itself can name one without an agent. The controller lets go of the
/// pod, and if that is not there either, who uninstalls.
#[test]
#[ignore = "needs script/kube"]
fn a_vm_pod_on_a_node_without_an_agent_can_go() {
    let place = Place::new("agentless");
    controller::have_rights();
    let controller = Controller::start();
    be_installed_elsewhere();
    place.create(PODS);
    place.run_on_a_node("pod");
    place.set_running("pod");
    place.kubectl(&["delete", "pod/pod", "--wait=false"]);
    // What may run is held, however long.
    std::thread::sleep(std::time::Duration::from_secs(25));
    assert!(place.find("pod/pod").is_some());
    place.ended("pod");
    place.gone("pod/pod");
    controller.kill();
    place.kubectl(&["delete", "pod/own", "--wait=false"]);
    place.gone("pod/own");

    place.create(PODS);
    place.run_on_a_node("pod");
    let (is_done, said) = uninstall(ELSEWHERE, &[]);
    let pod = format!("{}/pod", place.namespace());
    assert!(!is_done && said.contains(&pod), "{said}");
    let said = std::thread::scope(|scope| {
        let by_force = scope.spawn(|| uninstall(ELSEWHERE, &["--force", "--timeout=60"]));
        place.eventually("pod/pod", |pod| {
            pod["metadata"]["deletionTimestamp"].is_string()
        });
        // The kubelet has never had it, and says so.
        let last = [
            "delete",
            "pod/pod",
            "--force",
            "--grace-period=0",
            "--wait=false",
        ];
        place.kubectl(&last);
        let (is_done, said) = by_force.join().unwrap();
        assert!(is_done, "{said}");
        said
    });
    assert!(said.contains("its node has no agent"), "{said}");
    place.gone("pod/pod");
}

/// Who deletes the namespace takes controllers and agents away, and whoever would let go of
/// VMs with them; our webhooks stay, and nobody answers for them.
#[test]
#[ignore = "needs script/kube"]
fn when_the_namespace_was_deleted_vms_can_still_go() {
    let place = Place::new("forsaken");
    let webhook = Webhook::installed();
    let controller = webhook.controller(&[]);
    // One that is not there.
    serve("disklet-deleted");
    place.volume(
        "disk",
        json!({"iscsi": {"targetPortal": "192.0.2.1:3260", "iqn": "iqn.2026-01.com.example:disk", "lun": 3}}),
    );
    place.claim("disk");
    place.apply(VM);
    place.running("kept");
    controller.kill();
    place.create(PODS);
    place.run_on_a_node("pod");
    place.set_running("pod");
    // An update of a launcher is refused for lack of an answer: its finalizer stays.
    let patch = [
        "-n",
        place.namespace(),
        "patch",
        "pod/pod",
        "--type=merge",
        "-p",
    ];
    let let_go = r#"{"metadata":{"finalizers":null}}"#;
    let (done, said) = kubectl_says(&[&patch[..], &[let_go]].concat(), "");
    assert!(!done && said.contains("launchers.disklet.io"), "{said}");

    let (is_done, said) = std::thread::scope(|scope| {
        let options = ["--force", "--timeout=60"];
        let by_force = scope.spawn(move || uninstall("disklet-deleted", &options));
        for pod in ["kept", "pod"] {
            place.eventually(&format!("pod/{pod}"), |pod| {
                pod["metadata"]["deletionTimestamp"].is_string()
            });
            // What runs is held.
            std::thread::sleep(std::time::Duration::from_secs(2));
            assert!(place.find(&format!("pod/{pod}")).is_some());
            place.ended(pod);
        }
        by_force.join().unwrap()
    });
    assert!(is_done, "{said}");
    assert!(
        said.contains("there is no namespace disklet-deleted"),
        "{said}"
    );
    for gone in ["pod/kept", "pod/pod", "vm/kept"] {
        place.gone(gone);
    }
    drop(webhook);
}
