//! A pool that one of two nodes has. Needs a cluster with two nodes in which Disklet is
//! installed.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/per_node.rs"]
mod per_node;
#[path = "kube/two_nodes.rs"]
mod two_nodes;
#[path = "kube/world.rs"]
mod world;

use kube::{Tenant, on_node};
use per_node::{FILES, PoolOfNode, label, until_nothing_fits, vm};
use two_nodes::{NODES, delete, have_idle_guests, on_all, only_on, until_runs};

/// VMs go where their pool is, also if another node has more room, and wait while that
/// node takes none.
#[test]
#[ignore = "needs a cluster: script/test"]
fn vms_go_to_the_node_that_has_the_pool() {
    have_idle_guests();
    let tenant = Tenant::new("pool-of-one");
    on_all();
    let given = PoolOfNode::give_to(NODES[1]);
    assert_eq!(label(NODES[0], "fast"), "");
    let names: Vec<String> = (0..4).map(|nth| format!("fast{nth}")).collect();
    for name in &names {
        tenant.apply(&vm(name, "fast"));
    }
    for name in &names {
        until_runs(&tenant, name, NODES[1]);
    }
    let files = on_node(NODES[1], &["ls", FILES]);
    assert_eq!(files.lines().count(), names.len(), "{files}");

    only_on(NODES[0]);
    tenant.apply(&vm("late", "fast"));
    until_nothing_fits(&tenant, "late");
    on_all();
    until_runs(&tenant, "late", NODES[1]);
    for name in names.iter().map(String::as_str).chain(["late"]) {
        delete(&tenant, name);
    }
    assert_eq!(on_node(NODES[1], &["ls", FILES]).trim(), "");
    drop(given);
}
