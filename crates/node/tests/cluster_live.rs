//! VM objects that change while their guests run.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;

use kube::guests::{NODE, delete, have_image, have_small_guest, vm};
use kube::storage::{Folder, Iscsi, claim, disk, local, write_disk, written};
use kube::{Tenant, cluster_directory, on_node, run, until};
use world::{alone, have_idle_guest, idle_vm, until_nothing_is_left};

/// The guest says again and again which disks it has, and reads and writes that of the
/// server when it comes.
const LOOKS: &str = "while :; do disks; d=/dev/disk-by-serial/lun; if [ -e $d ] && [ ! -e /run/seen ]; then echo lun READS $(head -n 1 $d); echo guest wrote lun | dd of=$d bs=512 seek=1 conv=notrunc,fsync; touch /run/seen; fi; echo ROUND; sleep 1; done";

/// The last whole round of the guest that was begun after this was asked.
fn round(tenant: &Tenant, vm: &str) -> String {
    let rounds = || -> Vec<String> {
        let console = tenant.kubectl(&["logs", vm]).replace('\r', "");
        console.split("ROUND\n").map(str::to_owned).collect()
    };
    let before = rounds().len();
    until(60, "the guest goes on", || {
        let now = rounds();
        (now.len() >= before + 2).then(|| now[now.len() - 2].clone())
    })
}

fn until_it_sees(tenant: &Tenant, vm: &str, disk: &str, sees: bool) {
    let serial = format!("serial={disk} ");
    until(60, &format!("whether it sees {disk} is {sees}"), || {
        (round(tenant, vm).contains(&serial) == sees).then_some(())
    });
}

fn names(tenant: &Tenant, vm: &str) -> String {
    let path = ".status.disks[*].name";
    tenant.field(&format!("vm/{vm}"), path).unwrap_or_default()
}

fn restart(tenant: &Tenant, vm: &str, field: &str) -> Option<String> {
    tenant.condition(vm, "RestartRequired", field)
}

fn until_told(tenant: &Tenant, reason: &str, of: &str) {
    let path = format!("{{range .items[?(@.reason==\"{reason}\")]}}{{.message}}{{\"\\n\"}}{{end}}");
    until(20, &format!("{reason} is told of {of}"), || {
        let events = tenant.kubectl(&["get", "events", "-o", &format!("jsonpath={path}")]);
        events.contains(of).then_some(())
    });
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_has_the_disks_of_its_object_as_it_changes() {
    let _alone = alone();
    have_small_guest();
    have_idle_guest();
    let tenant = Tenant::new("live");
    let server = Iscsi::start(&tenant);
    let (source, secret) = server.chap_source(server.address());
    tenant.apply(&secret);
    let with = |disks: &str| vm("follows", disks, &[LOOKS]);
    let lun = format!("      - {{name: lun, source: {{{source}}}, serial: lun}}\n");
    tenant.apply(&with(""));
    tenant.await_console(180, "follows", "ROUND");
    let uid = tenant.field("pod/follows", ".metadata.uid").expect("a pod");

    // A disk more. The guest uses it, and nobody else can.
    tenant.apply(&with(&lun));
    until_told(&tenant, "DiskAttached", "disk lun is attached at sdb");
    until_it_sees(&tenant, "follows", "lun", true);
    tenant.await_console(30, "follows", "lun READS disk of iscsi chap");
    let file = server.directory().join("chap.raw");
    until(20, "the guest has written", || {
        (written(&file) == "guest wrote lun").then_some(())
    });
    let generation = tenant.field("vm/follows", ".metadata.generation");
    let generation = generation.expect("it has one");
    tenant.await_field(10, "vm/follows", ".status.observedGeneration", &generation);
    assert_eq!(names(&tenant, "follows"), "sda cloud-init lun");
    assert_eq!(restart(&tenant, "follows", "status"), None);
    let secrets = on_node(
        NODE,
        &["virsh", "-q", "-c", "qemu:///system", "secret-list"],
    );
    assert_eq!(secrets.trim(), "");
    let rival = format!(
        "{}      - {{source: {{{source}}}, serial: lun}}\n",
        idle_vm("rival", "Never")
    );
    tenant.apply(&rival);
    let reason = ".status.conditions[?(@.type==\"DisksReady\")].reason";
    tenant.await_field(60, "vm/rival", reason, "StorageInUse");

    // Another agent knows what this one has done, and what it has not.
    let agents = [
        "-n",
        "disklet",
        "delete",
        "pods",
        "-l",
        "disklet.io/component=agent",
    ];
    run(Command::new("kubectl").args(agents));
    let idle = "      - {name: idle, source: {image: {name: virtlet.cloud/idle}}, serial: idle}\n";
    tenant.apply(&with(&format!("{lun}{idle}")));
    until_it_sees(&tenant, "follows", "idle", true);
    assert!(round(&tenant, "follows").contains("serial=lun "));

    // It grows.
    let larger = idle.replace(
        "}}, serial",
        "}}, copy: {mode: copy-on-write, size: 24Mi}, serial",
    );
    tenant.apply(&with(&format!("{lun}{larger}")));
    until_told(&tenant, "DiskResized", "disk idle has 24 MiB");
    until(30, "the guest sees 24 MiB", || {
        let round = round(&tenant, "follows");
        let mut lines = round.lines();
        lines
            .any(|it| it.contains("serial=idle ") && it.contains("size=25165824 "))
            .then_some(())
    });

    // What the kubelet has to open, and what makes another machine of it, waits.
    let folder = Folder::new(&tenant);
    let kept = folder.volume("kept");
    write_disk(&kept.join("disk.img"), "disk of kept");
    tenant.apply(&claim(&tenant, "kept", "Filesystem", &local(&kept)));
    let more = format!("{lun}{larger}{}", disk("kept", ""));
    tenant.apply(&with(&more).replace("memory: 128Mi", "memory: 160Mi"));
    until(60, "a restart is required", || {
        let told = restart(&tenant, "follows", "message")?;
        (told.contains("memory") && told.contains("claim kept")).then_some(())
    });
    assert_eq!(
        restart(&tenant, "follows", "status").as_deref(),
        Some("True")
    );

    // Two disks less: what nobody uses any more is free for others.
    tenant.apply(&with(""));
    until_told(&tenant, "DiskDetached", "disk lun");
    until_told(&tenant, "DiskDetached", "disk idle");
    until_it_sees(&tenant, "follows", "lun", false);
    tenant.await_field(60, "vm/rival", ".status.phase", "Running");
    until(20, "the status has two disks", || {
        (names(&tenant, "follows") == "sda cloud-init").then_some(())
    });
    until(20, "no restart is required any more", || {
        (restart(&tenant, "follows", "status").as_deref() == Some("False")).then_some(())
    });
    let volumes = on_node(NODE, &["ls", "/var/lib/disklet/volumes"]);
    assert!(!volumes.contains("-idle\n"), "{volumes}");
    // It is the same guest all the time.
    assert_eq!(tenant.field("pod/follows", ".metadata.uid"), Some(uid));
    let restarts = ".status.containerStatuses[0].restartCount";
    assert_eq!(tenant.field("pod/follows", restarts).as_deref(), Some("0"));
    delete(&tenant, "rival");
    delete(&tenant, "follows");
}

/// A guest that neither does anything nor hears anything, for ever: `cli; hlt; jmp` back.
fn have_deaf_guest() {
    let mut disk = vec![0; 1 << 20];
    disk[..4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let file = cluster_directory().join("shared/deaf.img");
    std::fs::write(&file, disk).expect("room");
    have_image("deaf", &file);
}

/// On virtio the guest decides. What it does not let go of stays its own, and that is said,
/// until it does.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_disk_that_the_guest_keeps_stays_leased_and_is_told() {
    let _alone = alone();
    have_deaf_guest();
    have_idle_guest();
    let tenant = Tenant::new("keeps");
    let server = Iscsi::start(&tenant);
    let source = server.open_source();
    let bare = idle_vm("keeps", "Never").replace("virtlet.cloud/idle", "virtlet.cloud/deaf");
    let unit = format!("      - {{name: unit, source: {{{source}}}, target: {{bus: virtio}}}}\n");
    tenant.apply(&format!("{bare}{unit}"));
    tenant.await_ready(120, "keeps");
    let rival = format!("      - {{source: {{{source}}}}}\n");
    tenant.apply(&format!("{}{rival}", idle_vm("heir", "Never")));
    let reason = ".status.conditions[?(@.type==\"DisksReady\")].reason";
    tenant.await_field(60, "vm/heir", reason, "StorageInUse");

    tenant.apply(&bare);
    let why = until(60, "that the guest keeps it is told", || {
        let status = restart(&tenant, "keeps", "status")?;
        (status == "True").then(|| restart(&tenant, "keeps", "message"))?
    });
    let kept = "disk unit: the guest was asked to let go of it, and still has it";
    assert!(why.contains(kept), "{why}");
    until_told(&tenant, "RestartRequired", kept);
    // It is asked again meanwhile.
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert!(names(&tenant, "keeps").contains(" unit"));
    let waits = tenant.condition("heir", "DisksReady", "reason");
    assert_eq!(waits.as_deref(), Some("StorageInUse"));

    // Another agent says the same, and a guest that begins anew has let go.
    let uid = tenant.field("pod/keeps", ".metadata.uid");
    world::replace_pod("agent");
    until(60, "the next agent tells it, too", || {
        restart(&tenant, "keeps", "message")?
            .contains(kept)
            .then_some(())
    });
    let reset = "virsh -q -c qemu:///system reset \"$(virsh -q -c qemu:///system list --name | grep -e '-keeps$')\"";
    on_node(NODE, &["sh", "-c", reset]);
    until_told(&tenant, "DiskDetached", "the guest has let go of disk unit");
    tenant.await_field(60, "vm/heir", ".status.phase", "Running");
    until(30, "no restart is required any more", || {
        (restart(&tenant, "keeps", "status").as_deref() == Some("False")).then_some(())
    });
    assert!(!names(&tenant, "keeps").contains(" unit"));
    assert_eq!(tenant.field("pod/keeps", ".metadata.uid"), uid);
    tenant.kubectl(&["delete", "vm", "keeps", "heir", "--timeout=300s"]);
    until_nothing_is_left(30, "a guest that kept its disk");
}
