//! VM objects on a real cluster, as a tenant applies them and sees them.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use kube::guests::{NODE, have_small_guest, things, vm};
use kube::{Tenant, on_node, until};

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_runs_is_seen_and_goes() {
    have_small_guest();
    let tenant = Tenant::new("runs");
    tenant.apply(&vm(
        "only",
        "",
        &["echo SEEN $(cat /proc/meminfo | head -n 1)", "stay"],
    ));
    let console = tenant.await_console(180, "only", "GUEST-READY");
    assert!(console.contains("SEEN MemTotal"), "{console}");
    assert!(console.contains("DISK name=sda"), "{console}");
    tenant.await_field(10, "vm/only", ".status.phase", "Running");
    tenant.await_field(10, "vm/only", ".status.node", NODE);
    tenant.await_field(
        10,
        "vm/only",
        ".status.conditions[?(@.type==\"Ready\")].status",
        "True",
    );
    tenant.await_field(
        10,
        "vm/only",
        ".status.conditions[?(@.type==\"DisksReady\")].status",
        "True",
    );
    tenant.await_field(
        10,
        "vm/only",
        ".status.disks[0].source",
        "image virtlet.cloud/small",
    );
    // QEMU is in the cgroup of the launcher's container.
    let uid = tenant
        .field("pod/only", ".metadata.uid")
        .expect("the launcher is there");
    let groups = on_node(
        NODE,
        &[
            "sh",
            "-c",
            "cat /proc/$(cat /run/libvirt/qemu/*-only.pid)/cgroup",
        ],
    );
    let memory = groups
        .lines()
        .find(|line| line.contains("memory") || line.starts_with("0::"));
    assert!(memory.is_some_and(|line| line.contains(&uid)), "{groups}");
    // Nothing is left.
    tenant.kubectl(&["delete", "vm", "only", "--timeout=300s"]);
    until(30, "the VM's things go", || {
        (!things().contains("-only")).then_some(())
    });
    assert_eq!(tenant.field("pod/only", ".metadata.name"), None);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_that_switches_itself_off_ends_its_pod_well() {
    have_small_guest();
    let tenant = Tenant::new("off");
    let manifest =
        vm("short", "", &["echo SHORT"]).replace("spec:\n", "spec:\n  restartPolicy: Never\n");
    tenant.apply(&manifest);
    tenant.await_console(180, "short", "GUEST-END");
    tenant.await_field(60, "pod/short", ".status.phase", "Succeeded");
    until(30, "the VM's things go", || {
        (!things().contains("-short")).then_some(())
    });
}
