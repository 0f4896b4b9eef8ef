//! Pools that one node has: its agent mounts them, its labels name them, and VMs that
//! want them go there.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/per_node.rs"]
mod per_node;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;

use kube::guests::{NODE, delete};
use kube::{Tenant, on_node, run, until};
use per_node::{FILES, PoolOfNode, until_nothing_fits, vm};
use world::{alone, have_idle_guest, pod_of, until_nothing_is_left};

fn kubectl(arguments: &[&str]) -> String {
    run(Command::new("kubectl").args(arguments))
}

fn label(usage: &str) -> String {
    per_node::label(NODE, usage)
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_node_has_a_pool_of_its_own() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("pools");
    assert_eq!(label("volumes"), "yes", "every node has it");
    assert_eq!(label("fast"), "");
    tenant.apply(&vm("early", "fast"));
    until_nothing_fits(&tenant, "early");

    let given = PoolOfNode::give_to(NODE);
    // The one that waited comes, and its copy is in the pool.
    tenant.await_ready(90, "early");
    let files = on_node(NODE, &["ls", FILES]);
    assert!(files.contains("-sda"), "{files}");
    let listed = run(Command::new("kubectl").args([
        "-n",
        "disklet",
        "exec",
        &pod_of("agent"),
        "-c",
        "agent",
        "--",
        "sh",
        "-c",
        "virsh -q -c \"$LIBVIRT_DEFAULT_URI\" pool-list --name",
    ]));
    assert!(listed.lines().any(|pool| pool.trim() == "fast"), "{listed}");
    delete(&tenant, "early");
    assert_eq!(on_node(NODE, &["ls", FILES]).trim(), "");

    drop(given);
    until(
        60,
        "the node says that it has not the pool any more",
        || label("fast").is_empty().then_some(()),
    );
    assert_eq!(label("volumes"), "yes");
    until_nothing_is_left(60, "the test");
}

fn lease_of_nobody(object: &str) -> String {
    let nobody = "00000000-0000-0000-0000-00000000dead";
    let storage = "iscsi unit iqn.2026-01.example:forgotten/1";
    let content = format!(
        r#"{{"version":1,"storage":"{storage}","holders":[{{"uuid":"{nobody}","namespace":"gone","name":"gone","node":"{NODE}","boot":"earlier","access":"write-exclusive","since":"2026-01-01T00:00:00Z"}}]}}"#
    );
    format!(
        "apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {object}
  labels: {{disklet.io/lease: storage}}
  annotations: {{disklet.io/lease: '{content}'}}
spec: {{holderIdentity: gone/gone}}
"
    )
}

/// Also while no agent starts.
#[test]
#[ignore = "needs a cluster: script/test"]
fn labels_that_are_taken_off_and_leases_of_nobody_are_mended() {
    let _alone = alone();
    let agent = pod_of("agent");
    let lease = "storage-00000000000000000000000000000000000000ff";
    Tenant::apply_to_disklet(&lease_of_nobody(lease));
    kubectl(&[
        "label",
        "node",
        NODE,
        "extraRuntime-",
        "storage.disklet.io/volumes-",
        "storage.disklet.io/slow=yes",
    ]);
    assert_eq!(label("volumes"), "");
    until(180, "the node has its labels again, and no other", || {
        let runs_vms = kubectl(&[
            "get",
            "node",
            NODE,
            "-o",
            "jsonpath={.metadata.labels.extraRuntime}",
        ]);
        let labels = [&runs_vms, &label("volumes"), &label("slow")];
        (labels == ["virtlet", "yes", ""]).then_some(())
    });
    until(10, "nobody holds what nobody has", || {
        let found = Command::new("kubectl")
            .args(["-n", "disklet", "get", "lease", lease])
            .output()
            .expect("kubectl starts");
        (!found.status.success()).then_some(())
    });
    assert_eq!(pod_of("agent"), agent, "it was this agent");
}
