//! Tenants who say that they are somebody else, or who change what is ours in their
//! own pods: neighbours notice nothing, and nothing is left.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use kube::{Tenant, until};
use world::{alone, have_idle_guest, idle_vm, replace_pod, until_nothing_is_left};

const UUID: &str = "7d9f1c52-6a0b-4b5e-8d2c-0a5b6d1e4f30";

fn vm_with_uuid(name: &str) -> String {
    let memory = "    memory: 32Mi\n";
    let firmware = format!("{memory}    firmware: {{uuid: {UUID}}}\n");
    let vm = idle_vm(name, "OnFailure").replace(memory, &firmware);
    assert!(vm.contains(UUID));
    vm
}

/// Who says the UUID of another VM does not get that VM's things, nor end it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_uuid_that_another_vm_has_is_refused() {
    let _alone = alone();
    have_idle_guest();
    let (owner, thief) = (Tenant::new("uuid-owner"), Tenant::new("uuid-thief"));
    owner.apply(&vm_with_uuid("jewels"));
    owner.await_ready(120, "jewels");
    let qemu = owner.qemu("jewels").expect("QEMU runs");
    let (owner_name, none) = (owner.name.as_str(), None);
    let cases = [
        (
            &thief,
            "second",
            "another VM on this node has the UUID",
            Some(owner_name),
        ),
        (&owner, "third", "VM jewels on this node has the UUID", none),
    ];
    for (tenant, vm, wanted, hidden) in cases {
        tenant.apply(&vm_with_uuid(vm));
        let why = until(90, &format!("{vm} is refused"), || {
            let reason = tenant.condition(vm, "Ready", "reason")?;
            assert_eq!(reason, "Refused", "{vm}");
            tenant.condition(vm, "Ready", "message")
        });
        assert!(why.contains(wanted) && why.contains(UUID), "{why}");
        let events = tenant.kubectl(&["get", "events", "-o", "yaml"]);
        for hidden in hidden.into_iter().chain(hidden.map(|_| "jewels")) {
            assert!(!why.contains(hidden), "{hidden} is in {why}");
            assert!(!events.contains(hidden), "{hidden} is in {events}");
        }
        assert_eq!(tenant.qemu(vm), None, "{vm}");
    }
    // It is started again and again, and changes nothing.
    std::thread::sleep(std::time::Duration::from_secs(15));
    assert_eq!(owner.qemu("jewels"), Some(qemu));
    owner.await_ready(5, "jewels");
    thief.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    assert_eq!(owner.domain_state("jewels"), "running");
    // Nor is a VM kept by the UUID of one that is gone.
    owner.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    until_nothing_is_left(30, "VMs of one UUID");
    thief.apply(&vm_with_uuid("second"));
    thief.await_ready(120, "second");
    thief.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    until_nothing_is_left(30, "a VM of a UUID that was another's");
}

/// Takes away what says that a pod is a launcher.
fn strip(tenant: &Tenant, vm: &str, what: &str) {
    let change = format!("[{{\"op\":\"remove\",\"path\":\"/metadata/{what}\"}}]");
    tenant.kubectl(&["patch", "pod", vm, "--type=json", "-p", &change]);
}

const OWNER: &str = "ownerReferences";
const LABEL: &str = "labels/disklet.io~1vm";
const FINALIZER: &str = "finalizers";

/// The agent knows its pods, whatever becomes of their labels and owners.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_launcher_that_its_tenant_has_changed_leaves_nothing() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("stripped");
    let changes: [(&str, &[&str]); 4] = [
        ("no-label", &[LABEL]),
        ("no-owner", &[OWNER]),
        ("no-nothing", &[LABEL, OWNER]),
        ("no-finalizer", &[LABEL, OWNER, FINALIZER]),
    ];
    for (vm, _) in changes {
        tenant.apply(&idle_vm(vm, "OnFailure"));
    }
    for (vm, change) in changes {
        tenant.await_ready(120, vm);
        for what in change {
            strip(&tenant, vm, what);
        }
    }
    // VMs run on for as long as their pods do.
    std::thread::sleep(std::time::Duration::from_secs(5));
    for (vm, _) in changes {
        assert_eq!(tenant.domain_state(vm), "running", "{vm}");
    }
    tenant.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    tenant.kubectl(&["delete", "pod", "--all", "--timeout=300s"]);
    until_nothing_is_left(30, "launchers that were changed");
}

/// The same, by an agent that has never known them otherwise.
#[test]
#[ignore = "needs a cluster: script/test"]
fn an_agent_frees_what_is_left_of_launchers_that_are_none_any_more() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("disowned");
    for (vm, change) in [("held", &[OWNER][..]), ("unheld", &[OWNER, FINALIZER])] {
        tenant.apply(&idle_vm(vm, "OnFailure"));
        tenant.await_ready(120, vm);
        for what in change {
            strip(&tenant, vm, what);
        }
    }
    replace_pod("agent");
    for vm in ["held", "unheld"] {
        until(60, &format!("{vm} is freed"), || {
            (tenant.domain_state(vm).is_empty() && tenant.qemu(vm).is_none()).then_some(())
        });
    }
    tenant.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    tenant.kubectl(&["delete", "pod", "--all", "--timeout=300s"]);
    until_nothing_is_left(30, "pods that are launchers no more");
}
