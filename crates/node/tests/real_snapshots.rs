//! What virsh does to a VM behind our back: snapshots and saved states.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::path::PathBuf;

use disklet_block::device::ReadAt;
use support::fixtures::{Fixture, waiting};
use support::{Machine, guest};

/// A VM whose guest waits for a key, with a snapshot of its root below it; where
/// the guest writes from now on.
fn with_snapshot(name: &str) -> (Machine, Fixture, String, PathBuf) {
    let (machine, fixture) = waiting(name);
    machine.done(&["up", "-f", &fixture.manifest]);
    machine.until_it_says(name, guest::HELLO);
    let uuid = machine.uuid();
    machine.virsh_done(&[
        "snapshot-create-as",
        &uuid,
        "before",
        "--disk-only",
        "--diskspec",
        "sda",
        "--diskspec",
        "sdb,snapshot=no",
    ]);
    let above = machine.volume(&format!("virtlet_root_{uuid}.before"));
    (machine, fixture, uuid, above)
}

/// Where the guest copies its greeting to.
fn copied(machine: &Machine) -> Vec<u8> {
    let mut bytes = vec![0; guest::GREETING.len()];
    let root = machine.volume("virtlet_root_");
    let root = machine.open_volume(&root);
    root.read_at(&mut bytes, guest::COPY).unwrap();
    bytes
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_was_written_above_a_snapshot_is_not_lost() {
    let (machine, fixture, uuid, above) = with_snapshot("snapshot");
    let up = ["up", "-f", &fixture.manifest];
    let told = machine.node(&up);
    assert!(told.status.success(), "{told:?}");
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(
        told.starts_with("notice: default/snapshot: disk root: its domain writes to"),
        "{told}"
    );
    machine.press_a_key("snapshot");
    machine.until_it_is("snapshot", "stopped");
    let written = std::fs::read(&above).unwrap();
    let root = above.with_extension("");

    let things = machine.things();
    for command in [&up[..], &["down", "snapshot", "--keep-volumes"]] {
        let refused = machine.refused(command);
        let told = format!(
            "default/snapshot: disk root: its domain writes to {}, and no more to {}",
            above.display(),
            root.display()
        );
        assert!(refused.contains(&told), "{refused}");
        let commit = format!("blockcommit {uuid} sda --base '{}'", root.display());
        assert!(refused.contains(&commit), "{refused}");
        assert!(
            refused.contains("disklet down default/snapshot"),
            "{refused}"
        );
        assert_eq!(refused.lines().count(), 2, "{refused}");
    }
    assert_eq!(machine.things(), things);
    assert_eq!(std::fs::read(&above).unwrap(), written);
    let xml = machine.virsh_done(&["dumpxml", &uuid]);
    assert!(xml.contains(above.to_str().unwrap()), "{xml}");

    // What was advised helps.
    machine.virsh_done(&["start", &uuid]);
    let base = root.to_str().unwrap();
    let commit = ["blockcommit", &uuid, "sda", "--base", base];
    machine.virsh_done(&[&commit[..], &["--active", "--pivot"]].concat());
    machine.destroy("snapshot");
    std::fs::remove_file(&above).unwrap();
    assert_eq!(copied(&machine), guest::GREETING, "written by the guest");
    assert_eq!(machine.done(&up), "default/snapshot started\n");
    machine.done(&["down", "snapshot", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn down_gives_a_snapshot_up_and_says_what_stays() {
    let (machine, fixture, uuid, above) = with_snapshot("given-up");
    let down = machine.node(&["down", "given-up", "--grace", "0"]);
    assert!(down.status.success(), "{down:?}");
    let told = String::from_utf8(down.stderr).unwrap();
    let stays = format!("notice: {} was not made by disklet", above.display());
    assert!(told.starts_with(&stays), "{told}");
    assert!(machine.virsh(&["dominfo", &uuid]).is_none(), "its domain");
    let left = std::fs::read_dir(machine.path("data/volumes")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, std::slice::from_ref(&above));
    // It is in nobody's way.
    machine.done(&["up", "-f", &fixture.manifest]);
    machine.done(&["down", "given-up", "--grace", "0"]);
    assert!(above.exists());
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_saved_state_is_gone_on_with_and_goes_with_its_vm() {
    let (machine, fixture) = waiting("saved");
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    machine.done(&up);
    machine.until_it_says("saved", guest::HELLO);
    let uuid = machine.uuid();
    let save = || {
        machine.virsh_done(&["managedsave", &uuid]);
        let info = machine.virsh_done(&["dominfo", &uuid]);
        let saved = info.lines().find(|line| line.starts_with("Managed save:"));
        assert!(saved.unwrap().ends_with("yes"), "{info}");
    };
    save();
    assert_eq!(machine.done(&up), "default/saved started\n");
    save();
    machine.done(&["down", "saved"]);
    assert_eq!(machine.things(), before);

    // Nothing of it comes back.
    machine.done(&up);
    let info = machine.virsh_done(&["dominfo", &uuid]);
    assert!(info.contains("Managed save:   no"), "{info}");
    machine.done(&["down", "saved", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_checkpoint_does_not_keep_a_vm() {
    let (machine, fixture) = waiting("pointed");
    let before = machine.things();
    machine.done(&["up", "-f", &fixture.manifest]);
    let uuid = machine.uuid();
    let disks = ["--diskspec", "sda", "--diskspec", "sdb,checkpoint=no"];
    machine.virsh_done(&[&["checkpoint-create-as", &uuid, "point"][..], &disks].concat());
    let point = machine.virsh_done(&["checkpoint-list", &uuid, "--name"]);
    assert_eq!(point.trim(), "point");
    machine.done(&["down", "pointed", "--grace", "0"]);
    assert!(machine.virsh(&["dominfo", &uuid]).is_none());
    assert_eq!(machine.things(), before);
}
