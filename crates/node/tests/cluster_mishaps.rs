//! What happens to VMs on a real cluster: processes that crash, disks that are full,
//! and how long a VM takes to go.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::time::{Duration, Instant};

use kube::guests::{self, NODE, have_small_guest};
use kube::{Tenant, on_node, until};
use world::{
    alone, have_idle_guest, idle_vm, kill, processes, seed, tell, until_nothing_is_left_of,
};

/// A small filesystem on the node, at a path of its own.
struct SmallFilesystem;

const FULL: &str = "/var/lib/full";

impl SmallFilesystem {
    /// With a disk of 48 MiB on it that takes no room yet, and 16 MiB left for it.
    fn new() -> Self {
        let make = format!(
            "mkdir -p {FULL} && truncate -s 96M {FULL}.img && mkfs.ext4 -q -O ^has_journal -m 0 {FULL}.img &&
             mount -o loop {FULL}.img {FULL} && truncate -s 48M {FULL}/disk.img && chown 64055 {FULL}/disk.img &&
             room=$(df --output=avail -B1 {FULL} | tail -n 1) && fallocate -l $((room - (16 << 20))) {FULL}/filler"
        );
        on_node(NODE, &["sh", "-ec", &make]);
        Self
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let remove = format!("umount {FULL} && rm -r {FULL} {FULL}.img || true");
        on_node(NODE, &["sh", "-c", &remove]);
    }
}

fn claim(namespace: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: full-{namespace}}}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {{storage: 48Mi}}
  storageClassName: ''
  persistentVolumeReclaimPolicy: Retain
  claimRef: {{namespace: {namespace}, name: full}}
  hostPath: {{path: {FULL}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: full}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ''
  resources: {{requests: {{storage: 48Mi}}}}
"
    )
}

/// QEMU stops the guest, which says so by a condition and an event, and goes on by
/// itself; meanwhile nothing is told again and again.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_whose_storage_is_full_waits_for_room() {
    let _alone = alone();
    have_small_guest();
    let filesystem = SmallFilesystem::new();
    let tenant = Tenant::new("full");
    tenant.apply(&claim(&tenant.name));
    let disk = "      - {name: data, serial: data, source: {pvc: {claimname: full}}}";
    let write = "dd if=/dev/urandom of=/dev/disk-by-serial/data bs=1M count=40 conv=fsync && echo ALL-WRITTEN";
    tenant.apply(&guests::vm("full", disk, &[write, "stay"]));
    let condition = |field: &str| tenant.condition("full", "Ready", field);
    until(180, "the guest stands still", || {
        (condition("reason").as_deref() == Some("DiskFull")).then_some(())
    });
    assert_eq!(condition("status").as_deref(), Some("False"));
    let why = condition("message").expect("it says why");
    assert!(
        why.contains("disk data cannot be written, as its storage is full"),
        "{why}"
    );
    tenant.await_field(10, "vm/full", ".status.phase", "Paused");
    // It is tried, in vain, without a word.
    std::thread::sleep(Duration::from_secs(12));
    let events = || tenant.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
    let told = |reason: &str| events().split(' ').filter(|it| *it == reason).count();
    assert_eq!((told("DiskFull"), told("Resumed")), (1, 0));
    let console = tenant.kubectl(&["logs", "full"]);
    assert!(!console.contains("ALL-WRITTEN"), "{console}");
    on_node(NODE, &["rm", &format!("{FULL}/filler")]);
    tenant.await_console(60, "full", "ALL-WRITTEN");
    tenant.await_ready(30, "full");
    assert_eq!((told("DiskFull"), told("Resumed")), (1, 1));
    tenant.kubectl(&["delete", "vm", "full", "--timeout=300s"]);
    tenant.kubectl(&["delete", "pvc", "full"]);
    tenant.kubectl(&["delete", "pv", &format!("full-{}", tenant.name)]);
    until_nothing_is_left_of(60, "full");
    drop(filesystem);
}

/// A process of a VM's pod, by the beginning of its command line, and its parent.
fn in_pod(tenant: &Tenant, vm: &str, beginning: &str) -> Option<(String, String)> {
    let uid = tenant.field(&format!("pod/{vm}"), ".metadata.uid")?;
    let is_of_pod = |process: &&String| {
        let groups = on_node(NODE, &["cat", &format!("/proc/{process}/cgroup")]);
        groups.contains(&uid)
    };
    let process = processes(beginning).into_iter().find(|it| is_of_pod(&it))?;
    let status = on_node(NODE, &["cat", &format!("/proc/{process}/status")]);
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Some((process, parent.trim().to_owned()))
}

const LAUNCHER: &str = "disklet launch ";

fn launcher(tenant: &Tenant, vm: &str) -> (String, String) {
    in_pod(tenant, vm, LAUNCHER).expect("the launcher runs")
}

/// Another QEMU runs in place of one that has ended, and the VM says so.
fn await_another(tenant: &Tenant, vm: &str, qemu: &str) {
    until(120, &format!("another QEMU runs for {vm}"), || {
        tenant.qemu(vm).filter(|it| it != qemu).map(drop)
    });
    tenant.await_ready(90, vm);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn what_crashes_is_started_again_or_ends_with_a_reason() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("crash");
    let vms = ["crash-qemu", "crash-passt", "crash-launcher", "crash-shim"];
    for vm in vms {
        tenant.apply(&idle_vm(vm, "OnFailure"));
    }
    tenant.apply(&idle_vm("crash-never", "Never"));
    let qemus = vms.map(|vm| {
        tenant.await_ready(120, vm);
        tenant.qemu(vm).expect("QEMU runs")
    });
    tenant.await_ready(120, "crash-never");
    let passt = until(30, "passt runs", || in_pod(&tenant, vms[1], "passt "));
    kill(&qemus[0]);
    kill(&passt.0);
    kill(&launcher(&tenant, vms[2]).0);
    // The parent of a pod's first process is the shim that containerd has for it.
    kill(&launcher(&tenant, vms[3]).1);
    kill(&tenant.qemu("crash-never").expect("QEMU runs"));
    for crashed in [0, 2, 3] {
        await_another(&tenant, vms[crashed], &qemus[crashed]);
    }
    until(30, "another passt runs", || {
        in_pod(&tenant, vms[1], "passt ").filter(|it| it.0 != passt.0)
    });
    assert_eq!(tenant.qemu(vms[1]).as_ref(), Some(&qemus[1]));
    tenant.await_ready(10, vms[1]);
    tenant.await_field(60, "vm/crash-never", ".status.phase", "Failed");
    let why = tenant.condition("crash-never", "Launched", "message");
    assert!(why.is_some_and(|why| why.contains("crashed")));
    assert_eq!(tenant.domain_state("crash-never"), "");
    tenant.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    until_nothing_is_left_of(60, "crash-");
}

/// As its author says, any number of times.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_that_shall_not_run_leaves_the_node_and_comes_back() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("onoff");
    tenant.apply(&idle_vm("onoff", "Always"));
    for _ in 0..2 {
        tenant.await_ready(120, "onoff");
        let run = |running: bool| {
            let patch = format!("{{\"spec\":{{\"running\":{running}}}}}");
            tenant.kubectl(&["patch", "vm", "onoff", "--type=merge", "-p", &patch]);
        };
        run(false);
        tenant.await_field(60, "vm/onoff", ".status.phase", "Stopped");
        until_nothing_is_left_of(30, "onoff");
        assert_eq!(
            tenant.condition("onoff", "Ready", "status").as_deref(),
            Some("False")
        );
        run(true);
    }
    tenant.await_ready(120, "onoff");
    tenant.kubectl(&["delete", "vm", "onoff", "--timeout=300s"]);
    until_nothing_is_left_of(30, "onoff");
}

/// How long a VM's guest takes to be gone, and how long the VM.
fn deleted_in(tenant: &Tenant, vm: &str) -> [f32; 2] {
    let begun = Instant::now();
    tenant.kubectl(&["delete", "vm", vm, "--wait=false"]);
    until(60, &format!("QEMU of {vm} is gone"), || {
        tenant.qemu(vm).is_none().then_some(())
    });
    let guest = begun.elapsed().as_secs_f32();
    until(120, &format!("the agent lets go of {vm}"), || {
        let held = tenant.field(&format!("pod/{vm}"), ".metadata.finalizers");
        held.is_none().then_some(())
    });
    let ours = begun.elapsed().as_secs_f32();
    until(60, &format!("{vm} is gone"), || {
        let uid = tenant.field(&format!("vm/{vm}"), ".metadata.uid");
        uid.is_none().then_some(())
    });
    let all = begun.elapsed().as_secs_f32();
    tell(&format!(
        "{vm}: the guest is gone after {guest:.1} s, all that is ours after {ours:.1} s, the VM after {all:.1} s"
    ));
    until_nothing_is_left_of(30, vm);
    [guest, all]
}

/// A kubelet needs some time to see that a pod has ended and can go, however often it
/// looks (script/lib/kube/build.sh); so do guests that boot.
const KUBELET: f32 = 16.0;

/// A guest that hears the power button is gone soon, also if it still boots; one
/// that does not has its grace, and no more.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_goes_when_its_guest_does() {
    let _alone = alone();
    have_idle_guest();
    have_small_guest();
    let tenant = Tenant::new("going");
    let times = if seed().is_none() { 10 } else { 1 };
    for round in 0..times {
        let vm = format!("going-deaf-{round}");
        let grace = |seconds| format!("terminationGracePeriodSeconds: {seconds}");
        let manifest = idle_vm(&vm, "OnFailure").replace(&grace(2), &grace(8));
        tenant.apply(&manifest);
        tenant.await_ready(120, &vm);
        let [guest, all] = deleted_in(&tenant, &vm);
        assert!((4.0..8.0).contains(&guest), "{vm}: the guest had 4 s");
        assert!(all < guest + KUBELET, "{vm}: freeing takes no time");
    }
    for round in 0..times {
        let vm = format!("going-{round}");
        tenant.apply(&guests::vm(&vm, "", &["stay"]));
        // Every other one still boots.
        match round % 2 {
            0 => tenant.await_ready(120, &vm),
            _ => drop(tenant.await_console(180, &vm, "GUEST-READY")),
        }
        let [guest, all] = deleted_in(&tenant, &vm);
        assert!(guest < 20.0, "{vm}: ended by force after 25 s");
        assert!(all < guest + KUBELET, "{vm}: freeing takes no time");
    }
}
