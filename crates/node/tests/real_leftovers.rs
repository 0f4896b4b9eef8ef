//! What crashes and failures leave, and who takes it away.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::File;
use std::process::Command;

use rustix::fs::FlockOperation;
use support::fixtures::{Fixture, Kind, LoopDevice};
use support::things::with_secrets;
use support::{Machine, guest};

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

/// What the other tests rely on: whatever is left of a VM, they see it.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn nothing_that_is_left_is_overlooked() {
    let machine = Machine::new("seen");
    let _secrets = with_secrets();
    let file = machine.write_zeroes("file", 1 << 20);
    let directory = machine.path("data/volumes/empty");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.to_str().unwrap();
    let lock = File::open(&directory).unwrap();
    let secret = "<secret ephemeral='yes'><uuid>0b1c0f39-6f0a-4b3c-9e0e-9d3a4f6b5c21</uuid><usage type='ceph'><name>seen</name></usage></secret>";
    let secret = machine.write("secret.xml", secret);

    let before = machine.things();
    let is_seen = |what: &str, make: &dyn Fn(), unmake: &dyn Fn()| {
        make();
        assert_ne!(machine.things(), before, "{what}");
        unmake();
        assert_eq!(machine.things(), before, "{what}");
    };
    let virsh = |arguments: &[&str]| assert!(machine.virsh(arguments).is_some());
    let below = machine.path("data/vms/x");
    is_seen(
        "an empty directory",
        &|| std::fs::create_dir_all(&below).unwrap(),
        &|| std::fs::remove_dir(&below).unwrap(),
    );
    is_seen(
        "a lock",
        &|| rustix::fs::flock(&lock, FlockOperation::LockShared).unwrap(),
        &|| rustix::fs::flock(&lock, FlockOperation::Unlock).unwrap(),
    );
    is_seen(
        "a mount",
        &|| run("mount", &["-t", "tmpfs", "tmpfs", path]),
        &|| run("umount", &[path]),
    );
    let device = std::cell::RefCell::new(None);
    is_seen(
        "a loop device",
        &|| *device.borrow_mut() = Some(LoopDevice::attach(&file)),
        &|| *device.borrow_mut() = None,
    );
    is_seen(
        "a pool",
        &|| virsh(&["pool-define-as", "seen", "dir", "--target", path]),
        &|| virsh(&["pool-undefine", "seen"]),
    );
    is_seen(
        "a secret",
        &|| virsh(&["secret-define", secret.to_str().unwrap()]),
        &|| virsh(&["secret-undefine", "0b1c0f39-6f0a-4b3c-9e0e-9d3a4f6b5c21"]),
    );
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn gc_sweeps_nodes_without_a_vm_and_no_others() {
    let machine = Machine::new("sweep");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "sweep", Kind::RawDevice, &guest);
    let before = machine.things();
    machine.done(&["up", "-f", &fixture.manifest]);
    let running = machine.things();
    // As a crash leaves it: made, and not linked yet.
    let nodes = machine.run_dir().join("vms");
    let orphan = nodes.join("device-7-4711");
    run("mknod", &[orphan.to_str().unwrap(), "b", "7", "4711"]);
    machine.done(&["gc"]);
    assert!(!orphan.exists());
    assert_eq!(machine.things(), running);

    // Somebody has taken the VM's link away; QEMU has the device nevertheless.
    let shown = nodes.join(machine.uuid()).join("data");
    std::fs::remove_file(shown).unwrap();
    machine.done(&["gc"]);
    let left = std::fs::read_dir(&nodes).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let is_node = |name: &std::ffi::OsString| name.to_str().unwrap().starts_with("device-7-");
    assert!(left.iter().any(is_node), "{left:?}");
    machine.done(&["down", "sweep", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn gc_sweeps_trial_disks_that_nobody_uses() {
    let machine = Machine::new("sweep-trial");
    std::fs::create_dir_all(machine.path("data")).unwrap();
    let left = machine.write("data/trial-1.img", "left by a crash");
    let used = machine.write("data/trial-2.img", "in use");
    let other = machine.write("data/trial.txt", "somebody's notes");
    let lock = File::open(&used).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    machine.done(&["gc"]);
    assert!(!left.exists());
    assert!(used.exists() && other.exists());
    drop(lock);
    machine.done(&["gc"]);
    assert!(!used.exists() && other.exists());
}
