//! What launchers and tenants' disks cannot reach on a real cluster.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;

use kube::guests::NODE;
use kube::pods::{delete_pod, idle_pod};
use kube::storage::{Folder, Loop, claim, write_disk};
use kube::{Tenant, on_node, run, until};
use world::{alone, have_idle_guest, idle_vm, processes, replace_pod, until_nothing_is_left};

const PROFILE: &str = "/var/lib/kubelet/seccomp/disklet/launcher.json";

/// Launchers are confined by our profile. Where it is not on the node yet, they wait
/// for it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn launchers_are_confined_by_our_profile() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("confined");
    on_node(NODE, &["rm", PROFILE]);
    tenant.apply(&idle_vm("confined", "OnFailure"));
    let waits = ".status.containerStatuses[0].state.waiting.reason";
    tenant.await_field(60, "pod/confined", waits, "CreateContainerError");
    until(30, "the VM says what it waits for", || {
        let reason = tenant.condition("confined", "Launched", "reason");
        (reason.as_deref() == Some("CreateContainerError")).then_some(())
    });
    replace_pod("agent");
    let there = on_node(NODE, &["cat", PROFILE]);
    assert_eq!(there, disklet_core::launch::pod::SECCOMP_PROFILE_TEXT);
    tenant.await_ready(120, "confined");
    let profile = ".spec.securityContext.seccompProfile";
    assert_eq!(
        tenant.field("pod/confined", &format!("{profile}.localhostProfile")),
        Some("disklet/launcher.json".to_owned())
    );
    let launchers = processes("disklet launch ");
    assert_eq!(launchers.len(), 1);
    let status = on_node(NODE, &["cat", &format!("/proc/{}/status", launchers[0])]);
    for wanted in ["Seccomp:\t2", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(wanted), "no {wanted:?} in {status}");
    }
    tenant.kubectl(&["delete", "vm", "confined", "--timeout=300s"]);
    until_nothing_is_left(30, "a launcher that was confined");
}

/// QEMU is on the node's network: what listens there for the node alone, and the
/// metadata of clouds, is not for tenants.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_disk_at_the_node_itself_is_refused() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::with_own_rights("closed");
    let iscsi = |host: &str| {
        format!("iscsi: {{host: {{name: \"{host}\"}}, portal: iqn.2017-01.test:t, lun: 1}}")
    };
    let sources = [
        (
            "nbd",
            "nbd: {host: {name: 127.0.0.1}, export: x}".to_owned(),
            "127.0.0.0/8",
        ),
        (
            "http",
            "http: {url: \"http://169.254.169.254/latest/disk\"}".to_owned(),
            "169.254.0.0/16",
        ),
        // Where it sends QEMU, nobody knows.
        (
            "web",
            "http: {url: \"http://192.0.2.1/disk\"}".to_owned(),
            "VMs may not have disks at web servers",
        ),
        (
            "pulled",
            "image: {name: \"https://localhost:1/disk.img\"}".to_owned(),
            "from where no images of VMs may come",
        ),
        ("iscsi", iscsi("::1"), "::1/128"),
        ("mapped", iscsi("::ffff:127.0.0.1"), "127.0.0.0/8"),
        ("named", iscsi("localhost"), "where VMs may not have disks"),
    ];
    for (name, source, _) in &sources {
        let read_only = match source.starts_with("http") {
            true => ", access-mode: read-only",
            false => "",
        };
        let disk = format!("      - {{source: {{{source}}}{read_only}}}\n");
        tenant.apply(&(idle_vm(&format!("closed-{name}"), "Never") + &disk));
    }
    for (name, _, wanted) in &sources {
        let vm = format!("closed-{name}");
        let why = until(90, &format!("{vm} is refused"), || {
            let ready = tenant.condition(&vm, "Ready", "status")?;
            assert_eq!(ready, "False", "{vm}");
            tenant.condition(&vm, "Ready", "message")
        });
        assert!(why.contains(wanted), "{vm}: {why}");
        assert_eq!(tenant.qemu(&vm), None, "{vm}");
    }
    tenant.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    until_nothing_is_left(30, "VMs that were refused");
}

/// What the agents' VIRTLET_RAW_DEVICES says comes from a key of the ConfigMap.
fn set_raw_devices(globs: &str) {
    let patch = format!(r#"{{"data": {{"raw-devices": "{globs}"}}}}"#);
    let what = ["patch", "configmap", "disklet-config", "--type=merge", "-p"];
    run(Command::new("kubectl")
        .args(["-n", "disklet"])
        .args(what)
        .arg(patch));
    replace_pod("agent");
}

/// A device that no glob of the administrator's holds is nobody's.
#[test]
#[ignore = "needs a cluster: script/test"]
fn an_administrator_says_which_devices_vms_may_use() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("raw");
    let folder = Folder::new(&tenant);
    let file = folder.0.join("disk");
    write_disk(&file, "a device");
    let device = Loop::of(&file);
    let options = format!("options: {{type: raw, path: {}}}", device.path);
    let volume = format!("flexVolume: {{driver: virtlet/flexvolume_driver, {options}}}");
    tenant.apply(&claim(&tenant, "device", "Filesystem", &volume));
    let vm = |name: &str| idle_vm(name, "Never") + "      - {source: {pvc: {claimname: device}}}\n";
    // The same device, as a VM pod has it by itself.
    let pod = |name: &str| {
        let volumes = format!("  restartPolicy: Never\n  volumes:\n  - {{name: disk, {volume}}}");
        idle_pod(name, &volumes).replace("PeriodSeconds: 20", "PeriodSeconds: 1")
    };

    set_raw_devices("nothing*");
    let refused = std::panic::catch_unwind(|| {
        tenant.apply(&vm("raw-closed"));
        tenant.apply(&pod("pod-closed"));
        let of_vm = until(90, "the VM is refused", || {
            let ready = tenant.condition("raw-closed", "Ready", "status")?;
            assert_eq!(ready, "False");
            tenant.condition("raw-closed", "Ready", "message")
        });
        let running = ".status.conditions[?(@.type==\"disklet.io/running\")]";
        let of_pod = until(90, "the VM pod is refused", || {
            let status = tenant.field("pod/pod-closed", &format!("{running}.status"))?;
            assert_eq!(status, "False");
            tenant.field("pod/pod-closed", &format!("{running}.message"))
        });
        (of_vm, of_pod)
    });
    set_raw_devices("");
    let (of_vm, of_pod) = refused.expect("both are refused");
    for refused in [of_vm, of_pod] {
        assert!(refused.contains("whitelist"), "{refused}");
    }
    tenant.kubectl(&["delete", "vm", "raw-closed", "--timeout=300s"]);
    delete_pod(&tenant, "pod-closed");
    tenant.apply(&vm("raw-open"));
    tenant.await_ready(120, "raw-open");
    tenant.kubectl(&["delete", "vm", "raw-open", "--timeout=300s"]);
    tenant.apply(&pod("pod-open"));
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    tenant.await_field(120, "pod/pod-open", ready, "True");
    delete_pod(&tenant, "pod-open");
    until_nothing_is_left(30, "VMs with a device");
}
