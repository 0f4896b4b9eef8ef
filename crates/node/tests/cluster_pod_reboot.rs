//! A node that loses its power while VM pods run on it.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/history.rs"]
mod history;
#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::path::Path;
use std::process::Command;

use history::{RECORD, check};
use kube::guests::{NODE, have_small_guest};
use kube::pods::{COUNT, COUNTED, restarts, vm_pod};
use kube::storage::{Folder, Loop, claim, local, write_blank};
use kube::{Tenant, on_node, repository, run, until};
use world::{alone, have_idle_guest, pod_of, until_nothing_is_left};

fn script_kube(arguments: &[&str]) {
    run(Command::new(repository().join("script/kube")).args(arguments));
}

/// As `script/lib/kube/installed.sh` has it: the link is in memory.
fn come_up() {
    script_kube(&["up"]);
    on_node(
        NODE,
        &["ln", "-sfn", "/run/disklet/libvirt", "/run/libvirt"],
    );
    for part in ["libvirt", "agent", "controller"] {
        pod_of(part);
    }
}

/// A pod that stays is started again, with what is persistent and with what lives as
/// long as the pod; of one that was deleted meanwhile nothing is left.
#[test]
#[ignore = "needs a cluster: script/test"]
fn pods_of_a_node_without_power_come_back_with_their_disks() {
    let _alone = alone();
    have_small_guest();
    have_idle_guest();
    let tenant = Tenant::new("power");
    let folder = Folder::new(&tenant);
    let disk = folder.0.join("history");
    write_blank(&disk);
    let device = Loop::of(&disk);
    tenant.apply(&claim(
        &tenant,
        "history",
        "Block",
        &local(Path::new(&device.path)),
    ));
    let volumes =
        format!("{COUNTED}\n  - {{name: history, persistentVolumeClaim: {{claimName: history}}}}");
    let guest = [&COUNT[..], &[RECORD, "stay"]].concat();
    tenant.apply(&vm_pod("stays", &volumes, &guest));
    let idle =
        vm_pod("goes", COUNTED, &["stay"]).replace("virtlet.cloud/small", "virtlet.cloud/idle");
    tenant.apply(&idle);
    tenant.await_console(180, "stays", "GUEST-READY");
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    tenant.await_field(60, "pod/goes", ready, "True");
    let uid = tenant.field("pod/stays", ".metadata.uid");
    script_kube(&["kill", NODE, "machine"]);
    tenant.kubectl(&["delete", "pod", "goes", "--wait=false"]);
    come_up();
    let console = until(240, "the guest has started again", || {
        let console = tenant.try_kubectl(&["logs", "stays"]).1;
        (restarts(&tenant, "stays") > 0 && console.contains("GUEST-READY")).then_some(console)
    });
    assert!(console.contains("STARTS 2"), "{console}");
    assert_eq!(tenant.field("pod/stays", ".metadata.uid"), uid);
    tenant.await_field(60, "pod/stays", ready, "True");
    until(120, "the other pod is gone", || {
        let uid = tenant.field("pod/goes", ".metadata.uid");
        uid.is_none().then_some(())
    });
    tenant.kubectl(&["delete", "pod", "stays", "--timeout=300s"]);
    until_nothing_is_left(60, "pods of a node that had no power");
    assert_eq!(check(&disk).len(), 2, "boots");
}
