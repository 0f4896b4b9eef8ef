//! What crashes and failures leave, and who takes it away.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn that_it_cannot_be_undone_does_not_hide_why_it_failed() {
    let machine = Machine::new("both-told");
    let fixture = Fixture::new(&machine, "both-told", Kind::RawDevice);
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let volume = "  - name: early\n    flexVolume: {driver: virtlet/flexvolume_driver, options: {type: qcow2, capacity: 8MB}}\n";
    let text = text
        .replace("- name: data", "- name: late")
        .replace("  volumes:\n", &format!("  volumes:\n{volume}"));
    let manifest = machine.write("both.yaml", text).display().to_string();
    let before = machine.things();

    // It stands still after the volume, before the device.
    let place = machine.hold_places();
    let up = machine
        .command(&["up", "-f", &manifest])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let volume = machine.wait_for_volume("-early");
    // What is mounted on cannot be removed.
    let volume = volume.to_str().unwrap();
    run("mount", &["--bind", "/dev/null", volume]);
    machine.write("data/cloud-init", "in the way");
    drop(place);
    let output = up.wait_with_output().unwrap();
    run("umount", &[volume]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("data/cloud-init: cannot be made"), "{said}");
    assert!(said.contains("cannot be undone"), "{said}");
    assert!(said.contains("-early: cannot be removed"), "{said}");
    assert!(said.contains("then run disklet gc"), "{said}");

    std::fs::remove_file(machine.path("data/cloud-init")).unwrap();
    machine.done(&["gc"]);
    assert_eq!(machine.things(), before);
}

/// Mounts a filesystem that the daemon sees, too, and has the machine's data on
/// it; where it is, and where the data is.
fn data_on_a_disk(machine: &Machine, mount: &[&str]) -> (String, PathBuf) {
    let disk = machine.run_dir().join("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let data = disk.join("data");
    let disk = disk.display().to_string();
    run("mount", &[mount, &[&disk]].concat());
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    let config = config.replace(
        &format!("dataDir: {}", machine.path("data").display()),
        &format!("dataDir: {}", data.display()),
    );
    machine.write("config.yaml", config);
    (disk, data)
}

/// Writes until nothing more can be written, not even a small file.
fn fill_up(directory: &Path) {
    for (nth, size) in [1 << 20, 4096, 1].into_iter().enumerate() {
        let mut file = File::create(directory.join(format!("filler-{nth}"))).unwrap();
        let piece = vec![0xa5; size];
        let full = loop {
            if let Err(error) = file.write_all(&piece).and_then(|()| file.sync_data()) {
                break error;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn down_makes_room_on_a_full_disk() {
    let tmpfs = ["-t", "tmpfs", "-o", "size=16m", "tmpfs"];
    for (name, is_ext4) in [("down-full-tmpfs", false), ("down-full-ext4", true)] {
        let machine = Machine::new(name);
        let guest = guest::waiting_disk();
        let fixture = Fixture::of_guest(&machine, name, Kind::NewVolume, &guest);
        let file = machine.write_zeroes("disk.img", 16 << 20);
        let device = LoopDevice::attach(&file);
        run("mke2fs", &["-q", "-t", "ext4", &device.path]);
        let (disk, data) = match is_ext4 {
            true => data_on_a_disk(&machine, &[&device.path]),
            false => data_on_a_disk(&machine, &tmpfs),
        };
        machine.add_image_to(&data, "tiny", &guest);
        let count = |name: &str| std::fs::read_dir(data.join(name)).unwrap().count();
        for keep in [&["--keep-volumes"][..], &[]] {
            machine.done(&["up", "-f", &fixture.manifest]);
            fill_up(Path::new(&disk));
            machine.done(&[&["down", name, "--grace", "0"][..], keep].concat());
            assert_eq!(count("volumes"), 2 * keep.len());
            assert_eq!(count("cloud-init"), 0);
            for nth in 0..3 {
                let filler = Path::new(&disk).join(format!("filler-{nth}"));
                std::fs::remove_file(filler).unwrap();
            }
        }
        assert_eq!(count("vms"), 0);
        run("umount", &[&disk]);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_is_removed_stays_removed_after_a_power_cut() {
    let machine = Machine::new("power-cut");
    let fixture = Fixture::new(&machine, "power-cut", Kind::NewVolume);
    let file = machine.write_zeroes("disk.img", 64 << 20);
    let device = LoopDevice::attach(&file);
    run("mke2fs", &["-q", "-t", "ext4", &device.path]);
    // Nothing is written by itself for an hour, but what is asked for.
    let (disk, data) = data_on_a_disk(&machine, &["-o", "commit=3600", &device.path]);
    let disk = disk.as_str();
    machine.add_image_to(&data, "tiny", &guest::disk());

    machine.done(&["up", "-f", &fixture.manifest]);
    run("sync", &["-f", disk]);
    assert_eq!(std::fs::read_dir(data.join("volumes")).unwrap().count(), 2);
    machine.done(&["down", "power-cut", "--grace", "0"]);
    let copy = machine.path("after.img");
    std::fs::copy(&file, &copy).unwrap();
    run("umount", &[disk]);

    let copy = LoopDevice::attach(&copy);
    run("mount", &[&copy.path, disk]);
    for directory in ["volumes", "cloud-init"] {
        let left = std::fs::read_dir(data.join(directory)).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    run("umount", &[disk]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn habits_of_the_user_change_no_rights() {
    let machine = Machine::new("habits");
    let fixture = Fixture::new(&machine, "habits", Kind::RawDevice);
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let volume = "  - name: more\n    flexVolume: {driver: virtlet/flexvolume_driver, options: {type: qcow2, capacity: 8MB}}\n";
    let text = text.replace("  volumes:\n", &format!("  volumes:\n{volume}"));
    let manifest = machine.write("more.yaml", text).display().to_string();
    let with_mask = |mask: &str| {
        for directory in ["data/volumes", "data/vms", "data/cloud-init"] {
            let _ = std::fs::remove_dir_all(machine.path(directory));
        }
        let _ = std::fs::remove_dir_all(machine.run_dir());
        let up = machine.command(&["up", "-f", &manifest]);
        let script = format!("umask {mask}; exec \"$0\" \"$@\"");
        let output = Command::new("bash")
            .args(["-c", &script])
            .arg(up.get_program())
            .args(up.get_args())
            .envs(up.get_envs().filter_map(|(key, value)| Some((key, value?))))
            .output()
            .unwrap();
        assert!(output.status.success(), "umask {mask}: {output:?}");
        let modes = machine.modes();
        machine.done(&["down", "habits", "--grace", "0"]);
        modes
    };
    let usual = with_mask("022");
    assert!(
        usual.iter().any(|line| line.contains("device-")),
        "{usual:?}"
    );
    assert_eq!(with_mask("077"), usual);
    assert_eq!(with_mask("000"), usual);
}
