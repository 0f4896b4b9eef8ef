//! What launchers and tenants' disks cannot reach on a real cluster.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use kube::guests::NODE;
use kube::{Tenant, on_node, until};
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
    tenant.kubectl(&["delete", "vm", "confined", "--timeout=90s"]);
    until_nothing_is_left(30, "a launcher that was confined");
}

/// QEMU is on the node's network: what listens there for the node alone, and the
/// metadata of clouds, is not for tenants.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_disk_at_the_node_itself_is_refused() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("closed");
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
        ("iscsi", iscsi("::1"), "::1/128"),
        ("mapped", iscsi("::ffff:127.0.0.1"), "127.0.0.0/8"),
        ("named", iscsi("localhost"), "where VMs may not have disks"),
    ];
    for (name, source, _) in &sources {
        let read_only = if *name == "http" {
            ", access-mode: read-only"
        } else {
            ""
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
    tenant.kubectl(&["delete", "vm", "--all", "--timeout=90s"]);
    until_nothing_is_left(30, "VMs that were refused");
}
