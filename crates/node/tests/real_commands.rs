//! The commands around a running VM, and the errors that users meet.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use disklet_block::device::Size;
use support::fixtures::{Fixture, Kind, waiting};
use support::terminal::{Terminal, read_until};
use support::{Machine, guest};

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_the_guest_says_is_kept_and_followed() {
    let (machine, fixture) = waiting("talks");
    machine.done(&["up", "-f", &fixture.manifest]);
    let mut follower = machine
        .command(&["logs", "-f", "talks"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = follower.stdout.take().unwrap();
    read_until(&mut out, guest::HELLO);

    let mut console = machine
        .command(&["console", "talks"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    console.stdin.as_mut().unwrap().write_all(b"k").unwrap();
    let mut echoed = console.stdout.take().unwrap();
    read_until(&mut echoed, "k");
    read_until(&mut out, "k");
    // The guest is done, and so is whoever listened to it.
    for listener in [console, follower] {
        let output = listener.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "default/talks has ended\n");
    }
    // Whoever comes later hears the same, and need not wait for more.
    let late = machine.node(&["logs", "-f", "talks"]);
    assert!(late.status.success(), "{late:?}");
    assert!(String::from_utf8_lossy(&late.stdout).contains(guest::HELLO));
    let said = String::from_utf8(late.stderr).unwrap();
    assert_eq!(said, "default/talks is not running\n");
    machine.done(&["down", "talks", "--grace", "0"]);
}

/// Waits for the end of a process, and not for ever.
fn ended(process: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            process.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn whoever_has_read_enough_of_a_log_keeps_nobody_waiting() {
    let (machine, fixture) = waiting("enough");
    machine.done(&["up", "-f", &fixture.manifest]);
    let mut follower = machine
        .command(&["logs", "-f", "enough"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = follower.stdout.take().unwrap();
    read_until(&mut out, guest::HELLO);
    // The guest says no more, and nobody listens.
    drop(out);
    assert!(ended(&mut follower).success());
    let output = follower.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    machine.done(&["down", "enough", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn signals_that_were_ignored_before_stay_ignored() {
    let (machine, fixture) = waiting("nohup");
    machine.done(&["up", "-f", &fixture.manifest]);
    let up = ["up", "-f", &fixture.manifest, "--wait", "exit"];
    for (signals, code) in [
        ("--default-signal=HUP,TERM", 130),
        ("--ignore-signal=HUP", 0),
    ] {
        let mut command = machine.command_with(signals, &up);
        let mut waits = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = waits.stdout.take().unwrap();
        read_until(&mut out, "default/nohup is running\n");
        let pid = waits.id().to_string();
        let sent = Command::new("kill").args(["-s", "HUP", &pid]).status();
        assert!(sent.unwrap().success());
        if code == 0 {
            std::thread::sleep(Duration::from_secs(2));
            assert!(waits.try_wait().unwrap().is_none(), "it has ended");
            machine.press_a_key("nohup");
        }
        assert_eq!(ended(&mut waits).code(), Some(code), "{signals}");
    }
    machine.done(&["down", "nohup", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_console_that_is_taken_over_says_so() {
    let (machine, fixture) = waiting("taken");
    machine.done(&["up", "-f", &fixture.manifest]);
    let mut first = Terminal::run(&machine, &["console", "taken"]);
    first.read_until("Ctrl-] detaches.");
    let busy = machine.refused(&["console", "taken"]);
    assert!(busy.contains("--force takes it over"), "{busy}");
    let mut second = Terminal::run(&machine, &["console", "taken", "--force"]);
    second.read_until("Ctrl-] detaches.");
    let (code, said) = first.end();
    assert_eq!(code, 1);
    assert!(
        said.contains("error: default/taken: somebody else has taken the console over"),
        "{said}"
    );
    second.press(b"k");
    let (code, said) = second.end();
    assert_eq!(code, 0);
    assert!(said.contains("default/taken has ended"), "{said}");
    machine.done(&["down", "taken", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn the_terminal_is_what_it_was_after_the_console() {
    let (machine, fixture) = waiting("terminal");
    machine.done(&["up", "-f", &fixture.manifest]);
    let mut terminal = Terminal::run(&machine, &["console", "terminal"]);
    terminal.read_until("Ctrl-] detaches.");
    terminal.press(&[0x1d]);
    let (code, _) = terminal.end();
    assert_eq!(code, 0);
    assert!(
        machine.done(&["ps"]).contains("running"),
        "it only detached"
    );
    machine.done(&["down", "terminal", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_guest_that_does_not_read_keeps_nobody_at_its_console() {
    let (machine, fixture) = waiting("deaf");
    machine.done(&["up", "-f", &fixture.manifest]);
    machine.until_it_says("deaf", guest::HELLO);
    machine.virsh_done(&["suspend", &machine.uuid()]);
    let attached = || {
        let mut terminal = Terminal::run(&machine, &["console", "deaf"]);
        terminal.read_until("Ctrl-] detaches.");
        terminal
    };
    for pasted in [50_000, 2_000_000] {
        let mut terminal = attached();
        terminal.press(&vec![b'x'; pasted]);
        terminal.press(&[0x1d]);
        let (code, _) = terminal.end_within(Duration::from_secs(20));
        assert_eq!(code, 0, "{pasted} bytes");
    }
    // The console is free again, and works once the guest reads.
    let mut terminal = attached();
    machine.virsh_done(&["resume", &machine.uuid()]);
    terminal.press(b"k");
    let (code, said) = terminal.end();
    assert_eq!(code, 0);
    assert!(said.contains("default/deaf has ended"), "{said}");
    machine.done(&["down", "deaf", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn waiting_ends_in_time_and_the_vm_runs_on() {
    let (machine, fixture) = waiting("patience");
    let up = [
        "up",
        "-f",
        &fixture.manifest,
        "--wait",
        "ready",
        "--timeout",
        "2s",
    ];
    let late = machine.refused(&up);
    assert!(late.contains("is not ready in time"), "{late}");
    let shown = machine.done(&["ps", "-o", "json"]);
    assert!(shown.contains("\"state\": \"running\""), "{shown}");
    let text = machine.done(&["describe", "patience"]);
    for part in [
        "State    running",
        "sda root",
        "KiB allocated",
        "cloud-init",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = machine.done(&["describe", "patience", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["disks"][0]["chain"][1]["format"], "raw");
    assert_eq!(json["disks"][0]["chain"][1]["there"], true);
    machine.virsh_done(&["suspend", &machine.uuid()]);
    let late = machine.refused(&up);
    assert!(late.contains("help: it is paused: virsh resume"), "{late}");
    assert!(!late.contains("runs on"), "{late}");
    machine.done(&["down", "patience", "--grace", "1s"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn two_at_once_are_as_good_as_one() {
    let (machine, fixture) = waiting("twice");
    let up = ["up", "-f", &fixture.manifest];
    let both: Vec<_> = (0..2)
        .map(|_| machine.command(&up).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut said: Vec<_> = both
        .into_iter()
        .map(|one| String::from_utf8(one.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    said.sort();
    assert_eq!(
        said,
        ["default/twice is running\n", "default/twice started\n"]
    );
    machine.done(&["down", "twice", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn volumes_can_outlive_their_vm() {
    let machine = Machine::new("kept");
    let fixture = Fixture::new(&machine, "kept", Kind::NewVolume);
    let before = machine.things();
    machine.run_to_end(&fixture.manifest);
    let said = machine.done(&["down", "kept", "--grace", "0", "--keep-volumes"]);
    assert_eq!(said, "default/kept stopped, its volumes are kept\n");
    assert!(machine.done(&["ps"]).contains("kept"), "listed");
    let volumes = || {
        std::fs::read_dir(machine.path("data/volumes"))
            .unwrap()
            .count()
    };
    assert_eq!(volumes(), 2);
    machine.done(&["gc"]);
    assert_eq!(volumes(), 2, "gc leaves them alone");
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "kept", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_root_disk_is_not_laid_over_another_image() {
    let machine = Machine::new("moved");
    let fixture = Fixture::new(&machine, "moved", Kind::NewVolume);
    machine.run_to_end(&fixture.manifest);
    let overlay = machine.volume("virtlet_root_");
    let before = std::fs::read(&overlay).unwrap();
    machine.add_image("tiny", &guest::waiting_disk());
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(refused.contains("begun over another master"), "{refused}");
    assert_eq!(std::fs::read(&overlay).unwrap(), before);

    machine.add_image("tiny", &guest::disk());
    let larger = std::fs::read_to_string(&fixture.manifest).unwrap();
    let larger = larger.replace(
        "  annotations:\n",
        "  annotations:\n    VirtletRootVolumeSize: 3Mi\n",
    );
    let larger = machine.write("larger.yaml", larger).display().to_string();
    machine.run_to_end(&larger);
    assert_eq!(machine.open_volume(&overlay).size().unwrap(), 3 << 20);
    machine.done(&["down", "moved", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_device_has_one_user_at_a_time() {
    let machine = Machine::new("busy");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "busy", Kind::RawDevice, &guest);
    machine.done(&["up", "-f", &fixture.manifest]);
    let other = std::fs::read_to_string(&fixture.manifest).unwrap();
    let other = other.replace("name: busy", "name: other");
    let other = machine.write("other.yaml", other).display().to_string();
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", &other]);
    assert!(refused.contains("disk data: device /dev/loop"), "{refused}");
    assert!(refused.contains("in use by VM default/busy"), "{refused}");
    assert_eq!(machine.things(), before);
    machine.done(&["down", "busy", "--grace", "0"]);

    let mkfs = Command::new("/sbin/mke2fs")
        .args(["-q", fixture.device()])
        .status();
    assert!(mkfs.unwrap().success());
    let mounted = machine.path("mounted");
    std::fs::create_dir(&mounted).unwrap();
    let mount = |command: &str, arguments: &[&str]| {
        let status = Command::new(command).args(arguments).status().unwrap();
        assert!(status.success(), "{command}");
    };
    let mounted = mounted.to_str().unwrap();
    mount("mount", &[fixture.device(), mounted]);
    let refused = machine.node(&["up", "-f", &fixture.manifest]);
    mount("umount", &[mounted]);
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("disk data: device"), "{refused}");
    assert!(refused.contains("is in use"), "{refused}");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_full_disk_leaves_nothing_behind() {
    let machine = Machine::new("full");
    let fixture = Fixture::new(&machine, "full", Kind::NewVolume);
    let volumes = machine.path("data/volumes");
    std::fs::create_dir_all(&volumes).unwrap();
    let volumes = volumes.to_str().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=300k", "tmpfs", volumes];
    assert!(
        Command::new("mount")
            .args(mount)
            .status()
            .unwrap()
            .success()
    );
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(
        refused.contains("error: default/full: disk data: "),
        "{refused}"
    );
    assert!(refused.contains("-data: cannot be"), "{refused}");
    assert!(refused.contains("No space left"), "{refused}");
    assert!(
        refused.contains("help: make room there: disklet images gc"),
        "{refused}"
    );
    assert_eq!(refused.matches(volumes).count(), 1, "{refused}");
    assert_eq!(machine.things(), before);
    assert!(
        Command::new("umount")
            .arg(volumes)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_link_in_a_claim_is_not_followed() {
    let machine = Machine::new("link");
    let fixture = Fixture::new(&machine, "link", Kind::DiskImage);
    let before = machine.things();
    let secret = machine.write("secret", vec![7; 8 << 20]);
    let image = machine.path("volume/disk.img");
    std::fs::remove_file(&image).unwrap();
    std::os::unix::fs::symlink(&secret, &image).unwrap();
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(refused.contains("is a symbolic link"), "{refused}");
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_answer_that_cannot_be_written_is_told() {
    let machine = Machine::new("unwritten");
    let fixture = Fixture::new(&machine, "unwritten", Kind::NewVolume);
    machine.run_to_end(&fixture.manifest);
    let full = || {
        let open = std::fs::File::options().write(true).open("/dev/full");
        open.unwrap()
    };
    let commands = [
        &["ps"][..],
        &["ps", "-o", "json"],
        &["describe", "unwritten"],
        &["logs", "unwritten"],
        &["logs", "-f", "unwritten"],
        &["ps", "--help"],
    ];
    for arguments in commands {
        let output = machine.command(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error: "), "{arguments:?}: {said}");
        assert!(said.contains("cannot be written"), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");

        // Whoever has read enough is not told anything.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = machine.command(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
    machine.done(&["down", "unwritten", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn one_unknown_name_leaves_all_vms_alone() {
    let (machine, fixture) = waiting("beside-unknown");
    machine.done(&["up", "-f", &fixture.manifest]);
    let told = machine.refused(&["down", "beside-unknown", "nobody", "--grace", "0"]);
    let wanted =
        "error: no VM is stopped or removed: there is no VM default/nobody on this machine";
    assert!(told.starts_with(wanted), "{told}");
    assert!(machine.done(&["ps"]).contains("running"));
    let told = machine.refused(&["down", "nobody"]);
    assert!(
        told.starts_with("error: there is no VM default/nobody"),
        "{told}"
    );
    machine.done(&["down", "beside-unknown", "--grace", "0"]);
}
