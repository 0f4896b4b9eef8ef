//! VMs from manifests, on a real libvirtd, with a guest that really runs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use disklet_block::device::ReadAt;
use support::fixtures::{Fixture, Kind};
use support::{Machine, guest};

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_comes_runs_and_goes() {
    let machine = Machine::new("first");
    let fixture = Fixture::new(&machine, "first", Kind::NewVolume);
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];

    assert_eq!(machine.done(&up), "default/first started\n");
    // Two volumes, image, record, plan, lock, log; domain and pool.
    let there = machine.things();
    assert!(there.len() >= before.len() + 8, "{there:?}");
    machine.run_to_end(&fixture.manifest);
    let overlay = machine.volume("virtlet_root_");
    let mut seen = vec![0; guest::GREETING.len()];
    machine
        .open_volume(&overlay)
        .read_at(&mut seen, guest::COPY)
        .unwrap();
    assert_eq!(
        seen,
        guest::GREETING,
        "the guest writes what the host wrote"
    );

    // Started again, it goes on with its disks.
    assert_eq!(machine.done(&up), "default/first started\n");
    assert_eq!(
        machine.done(&["down", "first", "--grace", "0"]),
        "default/first removed\n"
    );
    assert_eq!(machine.things(), before);
    let gone = machine.refused(&["down", "first", "--grace", "0"]);
    assert!(gone.contains("no VM default/first"), "{gone}");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_new_volume_has_one_partition_with_a_sound_filesystem() {
    let machine = Machine::new("volume");
    let fixture = Fixture::new(&machine, "volume", Kind::NewVolume);
    machine.run_to_end(&fixture.manifest);
    let volume = machine.open_volume(&machine.volume("-data"));
    let mut disk = vec![0; 8_000_000];
    volume.read_at(&mut disk, 0).unwrap();
    assert_eq!(disk[510..512], [0x55, 0xaa]);
    let partition = machine.write("partition", &disk[1 << 20..]);
    let check = std::process::Command::new("/sbin/e2fsck")
        .args(["-f", "-n"])
        .arg(partition)
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
    machine.done(&["down", "volume", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_cannot_be_had_leaves_nothing_behind() {
    let machine = Machine::new("refused");
    let fixture = Fixture::new(&machine, "refused", Kind::NewVolume);
    std::fs::remove_dir_all(machine.path("data/images")).unwrap();
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    let missing = machine.refused(&up);
    assert!(
        missing.contains("disk root: image tiny: it is not known where it comes from"),
        "{missing}"
    );
    assert_eq!(machine.things(), before);

    machine.add_image("tiny", &guest::disk());
    let nowhere = machine.refused(
        &[
            &up[..],
            &["--connect", "qemu+unix:///system?socket=/nonexistent"],
        ]
        .concat(),
    );
    assert!(nowhere.contains("does not answer"), "{nowhere}");
    assert_eq!(machine.things(), before);
}
