//! New volumes of any size.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use disklet_block::device::Size;
use support::Machine;
use support::fixtures::{Fixture, Kind, LoopDevice};

fn of_capacity(machine: &Machine, fixture: &Fixture, capacity: &str) -> String {
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let text = text.replace("capacity: 8MB", &format!("capacity: {capacity}"));
    machine.write("sized.yaml", text).display().to_string()
}

/// Where the only partition begins, in bytes, as the boot record says.
fn begin_of_partition(disk: &[u8]) -> usize {
    assert_eq!(disk[510..512], [0x55, 0xaa]);
    let sector = u32::from_le_bytes(disk[454..458].try_into().unwrap());
    usize::try_from(sector).unwrap() * 512
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn the_smallest_volumes_have_a_sound_filesystem() {
    let machine = Machine::new("smallest");
    let fixture = Fixture::new(&machine, "smallest", Kind::NewVolume);
    let before = machine.things();
    for (capacity, size) in [
        ("512Ki", 512 << 10),
        ("1MB", 1_000_448),
        ("1Mi", 1 << 20),
        ("2Mi", 2 << 20),
        ("4Mi", 4 << 20),
    ] {
        machine.run_to_end(&of_capacity(&machine, &fixture, capacity));
        let volume = machine.volume("-data");
        assert_eq!(machine.open_volume(&volume).size().unwrap(), size);
        let whole = machine.path("whole");
        machine.read_volume(&volume, 0, &whole);
        let disk = std::fs::read(&whole).unwrap();
        let partition = machine.write("partition", &disk[begin_of_partition(&disk)..]);
        run("e2fsck", &["-f", "-n", partition.to_str().unwrap()]);
        machine.done(&["down", "smallest", "--grace", "0"]);
    }
    assert_eq!(machine.things(), before);
}

/// Its filesystem may only not be mounted: a new one would hide from the guest that its data
/// are gone.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_volume_that_is_gone_is_not_made_anew() {
    let machine = Machine::new("gone");
    let fixture = Fixture::new(&machine, "gone", Kind::NewVolume);
    let before = machine.things();
    machine.run_to_end(&fixture.manifest);
    let up = ["up", "-f", &fixture.manifest, "--wait", "exit"];
    for (part, disk) in [("virtlet_root_", "disk root: "), ("-data", "disk data: ")] {
        let volume = machine.volume(part);
        let away = machine.path("away");
        std::fs::rename(&volume, &away).unwrap();
        for up in [&up[..], &up[..3]] {
            let refused = machine.refused(up);
            let wanted = format!(
                "{disk}{} is gone, and held what the guest wrote",
                volume.display()
            );
            assert!(refused.contains(&wanted), "{refused}");
            assert!(refused.contains("disklet down gone"), "{refused}");
            assert!(!volume.exists());
        }
        std::fs::rename(&away, &volume).unwrap();
        machine.done(&up);
    }
    // What is kept for later is missed as well.
    machine.done(&["down", "gone", "--grace", "0", "--keep-volumes"]);
    let volume = machine.volume("-data");
    std::fs::remove_file(&volume).unwrap();
    assert!(machine.refused(&up).contains("is gone, and held what"));
    machine.done(&["down", "gone", "--grace", "0"]);
    assert_eq!(machine.things(), before);
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "gone", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_volume_that_takes_long_is_told_of_and_can_be_cancelled() {
    let machine = Machine::new("huge");
    let fixture = Fixture::new(&machine, "huge", Kind::NewVolume);
    let before = machine.things();
    let huge = of_capacity(&machine, &fixture, "15Ti");
    for signal in ["-INT", "-TERM"] {
        let mut up = machine
            .command_with("--default-signal=INT,TERM", &["up", "-f", &huge])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(up.stderr.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        assert!(
            first.contains("-data: making a volume of 15 TiB"),
            "{first}"
        );
        // It would take for ever, if nobody ended it.
        let mke2fs = child_of(&up);
        // Before it is mke2fs, its parent waits for it alone.
        while std::fs::read_to_string(format!("/proc/{mke2fs}/comm")).unwrap() != "mke2fs\n" {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        run("kill", &["-STOP", &mke2fs]);
        run("kill", &[signal, &up.id().to_string()]);
        assert_eq!(up.wait().unwrap().code(), Some(130));
        assert!(!Path::new("/proc").join(mke2fs).exists());
        assert_eq!(machine.things(), before);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn nobody_goes_on_making_a_volume_for_who_was_killed() {
    let machine = Machine::new("orphan");
    let fixture = Fixture::new(&machine, "orphan", Kind::NewVolume);
    let before = machine.things();
    let huge = of_capacity(&machine, &fixture, "15Ti");
    let mut up = machine.command_with("--default-signal=INT,TERM", &["up", "-f", &huge]);
    let mut up = up.stderr(Stdio::null()).spawn().unwrap();
    let mke2fs = child_of(&up);
    while std::fs::read_to_string(format!("/proc/{mke2fs}/comm")).unwrap() != "mke2fs\n" {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    up.kill().unwrap();
    up.wait().unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    // One that was reaped by nobody yet does nothing any more.
    let works = || {
        let stat = std::fs::read_to_string(format!("/proc/{mke2fs}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while works() {
        assert!(std::time::Instant::now() < until, "it works on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    machine.done(&["down", "orphan"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_volume_that_no_file_can_hold_is_refused_in_words() {
    let machine = Machine::new("too-huge");
    let fixture = Fixture::new(&machine, "too-huge", Kind::NewVolume);
    // With blocks of 1 KiB, files end at 4 TiB.
    let device = LoopDevice::attach(&machine.write_zeroes("disk.img", 32 << 20));
    run("mke2fs", &["-q", "-t", "ext4", "-b", "1024", &device.path]);
    let pool = machine.run_dir().join("pool");
    std::fs::create_dir_all(&pool).unwrap();
    let pool = pool.to_str().unwrap();
    run("mount", &[&device.path, pool]);
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    machine.write(
        "config.yaml",
        format!("{config}pools: {{volumes: {{path: {pool}}}}}\n"),
    );
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", &of_capacity(&machine, &fixture, "5Ti")]);
    assert!(
        refused.contains(&format!(
            "-data: 5 TiB are more than a file can have in {pool}"
        )),
        "{refused}"
    );
    assert!(refused.contains("less capacity"), "{refused}");
    assert_eq!(machine.things(), before);
    run("umount", &[pool]);
}

/// The program that a program has started, as soon as it has.
fn child_of(parent: &Child) -> String {
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(&children).unwrap();
        if let Some(child) = text.split_whitespace().next() {
            return child.to_owned();
        }
        assert!(begun.elapsed().as_secs() < 180, "no child");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}
