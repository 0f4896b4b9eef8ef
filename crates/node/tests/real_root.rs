//! Persistent roots: filled once, kept since, and never overwritten unasked.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use support::fixtures::{Fixture, Kind};
use support::foreign::ForeignQemu;
use support::{Machine, guest};

const DATA: u64 = 1 << 20;

fn set_up(name: &str) -> (Machine, Fixture) {
    let machine = Machine::new(name);
    let fixture = Fixture::new(&machine, name, Kind::PersistentRoot);
    (machine, fixture)
}

/// The manifest of a user who gives up what is on the device.
fn allowed(machine: &Machine, fixture: &Fixture) -> String {
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let text = text.replace(
        "  annotations:\n",
        "  annotations:\n    disklet.io/recreate-root: \"true\"\n",
    );
    machine.write("allowed.yaml", text).display().to_string()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_root_keeps_what_its_guest_wrote() {
    let (machine, fixture) = set_up("root-keeps");
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "root-keeps", "--grace", "0"]);
    let written = fixture.read(DATA + guest::COPY, guest::GREETING.len());
    assert_eq!(written, guest::GREETING, "by the guest");
    fixture.write(DATA + 5000, b"what the user has added");

    machine.run_to_end(&fixture.manifest);
    assert_eq!(fixture.read(DATA + 5000, 23), b"what the user has added");
    // Permission to overwrite is no order to.
    machine.done(&["down", "root-keeps", "--grace", "0"]);
    machine.run_to_end(&allowed(&machine, &fixture));
    assert_eq!(fixture.read(DATA + 5000, 23), b"what the user has added");
    machine.done(&["down", "root-keeps", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn foreign_data_is_refused_unless_the_user_gives_it_up() {
    let (machine, fixture) = set_up("root-foreign");
    let before = machine.things();
    fixture.write(1080, &[0x53, 0xef]);
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(refused.contains("not a root disk of ours"), "{refused}");
    assert!(refused.contains("disklet.io/recreate-root"), "{refused}");
    assert!(refused.contains(fixture.device()), "{refused}");
    assert_eq!(fixture.read(1080, 2), [0x53, 0xef]);
    assert_eq!(machine.things(), before);

    machine.run_to_end(&allowed(&machine, &fixture));
    assert_eq!(
        fixture.read(DATA + guest::COPY, guest::GREETING.len()),
        guest::GREETING
    );
    machine.done(&["down", "root-foreign", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn another_image_is_refused_and_a_revert_finds_the_old_disk() {
    let (machine, fixture) = set_up("root-image");
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "root-image", "--grace", "0"]);
    fixture.write(DATA + 5000, b"precious");

    machine.add_image("tiny", &guest::waiting_disk());
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(refused.contains("another image, sha256:"), "{refused}");

    machine.add_image("tiny", &guest::disk());
    machine.run_to_end(&fixture.manifest);
    assert_eq!(fixture.read(DATA + 5000, 8), b"precious");
    machine.done(&["down", "root-image", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn virtlets_own_roots_are_adopted_where_they_are() {
    let (machine, fixture) = set_up("root-virtlet");
    let digest = machine.add_image("tiny", &guest::disk());
    fixture.write(0, &[0x26, 0x3d, 0xbe, 0x52, 0xba, 0x57, 0x67, 0x02, 0, 1]);
    fixture.write(10, digest.bytes());
    fixture.write(512, &guest::disk());
    let header = fixture.read(0, 512);
    machine.run_to_end(&fixture.manifest);
    assert_eq!(
        fixture.read(512 + guest::COPY, guest::GREETING.len()),
        guest::GREETING
    );
    assert_eq!(fixture.read(0, 512), header);
    machine.done(&["down", "root-virtlet", "--grace", "0"]);

    fixture.write(9, &[3]);
    let refused = machine.refused(&["up", "-f", &allowed(&machine, &fixture)]);
    assert!(refused.contains("version 3"), "{refused}");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn whoever_changes_their_mind_while_it_is_filled_leaves_nothing() {
    let machine = Machine::new("root-cancel");
    let size = 400 << 20;
    // Data all over, so that there is time to change one's mind.
    let mut disk = vec![0xa5; size];
    disk[..1 << 20].copy_from_slice(&guest::disk());
    let fixture = Fixture::sized(&machine, "root-cancel", &disk, size as u64 + (2 << 20));
    let before = machine.things();
    let mut up = machine
        .command(&["up", "-f", &fixture.manifest])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(up.stderr.take().unwrap()).lines();
    // Whoever looks into a log learns what takes so long.
    for wanted in ["looking whether anything is on it", "filling the root disk"] {
        let line = said.next().unwrap().unwrap();
        let told = format!("{}: {wanted}", fixture.device());
        assert!(line.starts_with(&told), "{line}");
    }
    let pid = up.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert_eq!(up.wait().unwrap().code(), Some(130));
    assert_eq!(machine.things(), before);
    assert_eq!(fixture.read(48, 8), b"filling\0");
    machine.run_to_end(&fixture.manifest);
    assert_eq!(fixture.read(48, 8), b"complete");
    machine.done(&["down", "root-cancel", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_device_that_is_too_small_is_left_alone() {
    let (machine, fixture) = set_up("root-small");
    let before = machine.things();
    machine.add_image("tiny", &vec![1; 8 << 20]);
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(refused.contains("too small"), "{refused}");
    assert_eq!(fixture.read(0, 4096), vec![0; 4096]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_root_that_some_qemu_has_open_is_not_filled() {
    let (machine, fixture) = set_up("root-open");
    let up = ["up", "-f", &fixture.manifest];
    let before = machine.things();
    let blank = || assert_eq!(fixture.read(0, 8 << 20), vec![0; 8 << 20]);
    let refused_while_open = |path: &str| {
        let foreign = ForeignQemu::with(path);
        let refused = machine.refused(&up);
        drop(foreign);
        let told = format!("disk root: device {} is in use", fixture.device());
        assert!(refused.contains(&told), "{refused}");
        assert!(refused.contains("stop that first"), "{refused}");
        blank();
    };
    refused_while_open(fixture.device());
    assert_eq!(machine.things(), before);

    // Somebody has started it from where our own VM has it.
    machine.run_to_end(&fixture.manifest);
    fixture.reset();
    let shown = machine.run_dir().join("vms").join(machine.uuid());
    refused_while_open(shown.join("data").to_str().unwrap());
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "root-open"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn nobody_opens_a_root_while_it_is_filled() {
    let machine = Machine::new("root-locked");
    let size = 400 << 20;
    let fixture = Fixture::sized(
        &machine,
        "root-locked",
        &vec![0xa5; size],
        (size as u64) * 2,
    );
    let mut up = machine
        .command(&["up", "-f", &fixture.manifest])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(up.stderr.take().unwrap()).lines();
    // Whoever looks into a log learns what takes so long.
    for wanted in ["looking whether anything is on it", "filling the root disk"] {
        let line = said.next().unwrap().unwrap();
        let told = format!("{}: {wanted}", fixture.device());
        assert!(line.starts_with(&told), "{line}");
    }
    let opened = Command::new("qemu-io")
        .args(["-f", "raw", "-c", "read 0 512", fixture.device()])
        .output()
        .unwrap();
    assert!(!opened.status.success(), "{opened:?}");
    let why = String::from_utf8(opened.stderr).unwrap();
    assert!(why.contains("lock"), "{why}");
    let pid = up.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert_eq!(up.wait().unwrap().code(), Some(130), "it was not done yet");
}
