use futures::FutureExt;
use serde_json::{Value, json};

use super::super::watch::{Filling, list};
use super::*;

/// A pod of the VM `UID` that goes, and that its agent holds.
fn launcher(name: &str, node: Option<&str>) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": [names::POD_FINALIZER],
            "ownerReferences": [{
                "apiVersion": "disklet.io/v1alpha1", "kind": "VM", "name": name,
                "uid": format!("uid-of-{name}"), "controller": true,
            }],
        },
        "spec": {"nodeName": node},
    })
}

fn vm_pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = launcher(name, node);
    pod["metadata"]["ownerReferences"] = json!([]);
    pod["metadata"]["annotations"] = json!({SAVED: "{}"});
    pod
}

fn vm(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": format!("uid-of-{name}")}})
}

/// What is let go now; nothing if that has to be waited for.
fn found(caches: &Caches) -> Option<Vec<String>> {
    let pods = forsaken(caches).now_or_never()?.unwrap();
    let mut names: Vec<_> = pods.iter().map(|pod| Key::of(&**pod).name).collect();
    names.sort();
    Some(names)
}

#[test]
fn nobody_is_let_go_before_the_nodes_are_known() {
    let mut filling = Filling::new();
    list(&mut filling.vms, []);
    list(&mut filling.pods, [vm_pod("runs", Some("node-1"))]);
    assert_eq!(found(&filling.caches), None);
    list(
        &mut filling.nodes,
        [json!({"metadata": {"name": "node-1"}})],
    );
    assert_eq!(found(&filling.caches), Some(Vec::new()));
    list(&mut filling.nodes, []);
    assert_eq!(found(&filling.caches), Some(vec!["runs".to_owned()]));
}

#[test]
fn launchers_are_let_go_whose_vm_and_node_are_gone() {
    let mut filling = Filling::new();
    let mut replaced = vm("replaced");
    replaced["metadata"]["uid"] = "another".into();
    list(&mut filling.vms, [vm("there"), replaced]);
    list(
        &mut filling.nodes,
        [json!({"metadata": {"name": "node-1"}})],
    );
    let mut free = launcher("free", None);
    free["metadata"]["finalizers"] = json!([]);
    let mut stays = launcher("stays", None);
    stays["metadata"]["deletionTimestamp"] = Value::Null;
    let pods = [
        launcher("there", None),
        launcher("replaced", None),
        launcher("gone", Some("node-2")),
        launcher("nowhere", None),
        launcher("runs", Some("node-1")),
        vm_pod("pod", None),
        free,
        stays,
    ];
    list(&mut filling.pods, pods);
    let let_go = ["gone", "nowhere", "pod", "replaced"].map(str::to_owned);
    assert_eq!(found(&filling.caches), Some(let_go.to_vec()));
}

/// Pods that are let go after so many seconds on nodes without agents.
fn let_go(filling: &Filling, absences: &mut Absences, at: Instant) -> Vec<String> {
    let caches = &filling.caches;
    let idle = caches.pods.state_filter(|pod| is_idle(caches, pod));
    let pods = lasting(caches, idle, &Agents::default(), absences, at);
    let mut names: Vec<_> = pods.iter().map(|pod| Key::of(&**pod).name).collect();
    names.sort();
    names
}

#[test]
fn where_no_agent_is_only_what_rests_is_let_go_after_a_while() {
    let mut filling = Filling::new();
    list(&mut filling.vms, [vm("of-vm")]);
    let labelled = json!({"metadata": {"name": "vms", "labels": {"extraRuntime": "virtlet"}}});
    let bare = json!({"metadata": {"name": "bare"}});
    list(&mut filling.nodes, [bare, labelled.clone()]);
    let with = |name: &str, node: &str, status: Value| {
        let mut pod = vm_pod(name, Some(node));
        pod["metadata"]["uid"] = name.into();
        pod["status"] = status;
        pod
    };
    let is = |state: &str| json!([{"name": "vm", "containerID": "x", "state": {state: {}}}]);
    let mut stays = with("stays", "bare", json!({}));
    stays["metadata"]["deletionTimestamp"] = Value::Null;
    let mut of_vm = launcher("of-vm", Some("bare"));
    of_vm["metadata"]["uid"] = "of-vm".into();
    let pods = [
        with("never", "bare", json!({"phase": "Pending"})),
        with("failed", "bare", json!({"phase": "Failed"})),
        with(
            "ended",
            "bare",
            json!({"phase": "Running", "containerStatuses": is("terminated")}),
        ),
        with(
            "runs",
            "bare",
            json!({"phase": "Running", "containerStatuses": is("running")}),
        ),
        with(
            "unknown",
            "bare",
            json!({"phase": "Running", "containerStatuses": [{"name": "vm"}]}),
        ),
        with("agent", "vms", json!({"phase": "Failed"})),
        stays,
        of_vm,
    ];
    list(&mut filling.pods, pods);
    assert_eq!(found(&filling.caches), Some(Vec::new()));
    let (mut absences, begun) = (Absences::default(), Instant::now());
    let after = |seconds| begun + Duration::from_secs(seconds);
    assert_eq!(let_go(&filling, &mut absences, begun), [""; 0]);
    assert_eq!(let_go(&filling, &mut absences, after(19)), [""; 0]);
    let at_rest = ["ended", "failed", "never"];
    assert_eq!(let_go(&filling, &mut absences, after(20)), at_rest);
    // An agent has come, and has told so.
    let come = json!({"metadata": {"name": "bare", "labels": {"extraRuntime": "virtlet"}}});
    list(&mut filling.nodes, [come, labelled]);
    assert_eq!(let_go(&filling, &mut absences, after(30)), [""; 0]);
}
