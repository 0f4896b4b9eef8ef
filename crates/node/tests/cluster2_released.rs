//! An administrator lets others use storage although its VM may still use it. Needs a
//! cluster with two nodes in which Disklet is installed.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[allow(dead_code, reason = "others need the rest")]
#[path = "kube/plugin.rs"]
mod plugin;
#[path = "kube/two_nodes.rs"]
mod two_nodes;
#[path = "kube/world.rs"]
mod world;

use kube::storage::Iscsi;
use kube::{Tenant, on_node, until};
use plugin::{Plugin, Said};
use two_nodes::{
    delete, have_idle_guests, on_all, only_on, replace_agent, until_held_by, until_runs,
    until_waits, vm,
};

fn is_running_on(node: &str, vm: &str) -> bool {
    let list = ["virsh", "-q", "-c", "qemu:///system", "list", "--name"];
    on_node(node, &list)
        .lines()
        .any(|name| name.trim().ends_with(vm))
}

/// The word of an administrator counts, and is asked for. Whoever has lost a lease to
/// another goes on only until an agent looks: it is ended, and waits.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_lease_that_was_released_by_force_is_somebody_elses() {
    have_idle_guests();
    let tenant = Tenant::new("forced");
    let server = Iscsi::start(&tenant);
    only_on("node1");
    tenant.apply(&vm("first", "Always", &server, ""));
    until_runs(&tenant, "first", "node1");
    only_on("node2");
    tenant.apply(&vm("second", "Never", &server, ""));
    until_waits(&tenant, "second");

    let plugin = Plugin::of(&tenant);
    let leases = |arguments: &[&str]| plugin.said(&[&["leases"], arguments].concat(), "");
    let listed = leases(&["ls"]).out;
    let full_name = format!("{}/first", tenant.name);
    let line = listed.lines().find(|line| line.contains(&full_name));
    let line = line.unwrap_or_else(|| panic!("{listed}"));
    for word in ["node1", "live", "write-exclusive", "iscsi unit"] {
        assert!(line.contains(word), "{word}: {listed}");
    }
    let lease = line.split_whitespace().next().expect("a name");
    // Not without saying it, not one that is not there, not another VM's.
    let refuses = |arguments: &[&str], why: &str| {
        let Said { code, out, err } = leases(arguments);
        assert_ne!(code, Some(0), "{arguments:?}: {out}");
        assert!(err.contains(why), "{arguments:?}: {err}");
    };
    refuses(&["release", lease], "--force");
    refuses(&["release", "storage-none", "--force"], "storage-none");
    refuses(
        &["release", lease, "--vm", "other/first", "--force"],
        "other/first",
    );
    until_held_by(1, &[("first", "node1")]);

    let released = leases(&["release", lease, "--vm", &full_name, "--force"]);
    assert_eq!(released.code, Some(0), "{}", released.err);
    until_runs(&tenant, "second", "node2");
    until_held_by(10, &[("second", "node2")]);
    assert!(is_running_on("node1", "first"), "nobody has told it");
    replace_agent("node1");
    until(60, "the first is ended", || {
        (!is_running_on("node1", "first")).then_some(())
    });
    let why = until_waits(&tenant, "first");
    assert!(why.contains(&format!("{}/second", tenant.name)), "{why}");
    until_held_by(1, &[("second", "node2")]);

    // It starts again when it can, where it is.
    delete(&tenant, "second");
    until(120, "the first runs again", || {
        is_running_on("node1", "first").then_some(())
    });
    until_held_by(10, &[("first", "node1")]);
    delete(&tenant, "first");
    until_held_by(30, &[]);
    on_all();
}
