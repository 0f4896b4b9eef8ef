//! What becomes of commands and VMs when their daemon goes away.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::daemon::{is_beside_own, kill_libvirtd, until_it_answers};
use support::fixtures::{Fixture, Kind, waiting};
use support::terminal::{Terminal, read_until};
use support::{Machine, guest, until_waited_for};

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn vms_outlive_their_daemon_and_whoever_waits_finds_them_again() {
    let test = "vms_outlive_their_daemon_and_whoever_waits_finds_them_again";
    if !is_beside_own(test, &[("LIBVIRTD_AGAIN", "yes")]) {
        return;
    }
    let machine = Machine::new("outlive");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "outlive", Kind::RawDevice, &guest);
    let before = machine.things();
    machine.done(&["up", "-f", &fixture.manifest]);
    let up = [
        "up",
        "-f",
        &fixture.manifest,
        "--wait",
        "exit",
        "--timeout",
        "6m",
    ];
    let waiting = machine.command(&up).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    kill_libvirtd();
    until_it_answers(&machine);
    assert!(machine.done(&["ps"]).contains("running"));
    let mut console = machine
        .command(&["console", "outlive"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(console.stdin.as_mut().unwrap(), b"k").unwrap();
    let waited = waiting.wait_with_output().unwrap();
    let said = String::from_utf8(waited.stdout).unwrap();
    assert!(said.ends_with("default/outlive has ended\n"), "{said}");
    console.wait().unwrap();
    machine.done(&["down", "outlive"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_console_ends_with_its_daemon() {
    if !is_beside_own(
        "a_console_ends_with_its_daemon",
        &[("LIBVIRTD_AGAIN", "yes")],
    ) {
        return;
    }
    let (machine, fixture) = waiting("console-lost");
    machine.done(&["up", "-f", &fixture.manifest]);
    let mut terminal = Terminal::run(&machine, &["console", "console-lost"]);
    terminal.read_until("Ctrl-] detaches.");
    kill_libvirtd();
    let (code, said) = terminal.end();
    assert_eq!(code, 1);
    let wanted = "error: default/console-lost: libvirt has gone away, and the console with it";
    assert!(said.contains(wanted), "{said}");
    assert!(said.contains("the VM runs on"), "{said}");
    until_it_answers(&machine);
    assert!(machine.done(&["ps"]).contains("running"));
    machine.done(&["down", "console-lost", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn down_does_not_wait_for_a_daemon_that_is_gone() {
    let test = "down_does_not_wait_for_a_daemon_that_is_gone";
    if !is_beside_own(test, &[("LIBVIRTD_AGAIN", "yes")]) {
        return;
    }
    let (machine, fixture) = waiting("down-lost");
    let before = machine.things();
    machine.done(&["up", "-f", &fixture.manifest]);
    // Its guest does not hear that it shall switch itself off.
    let down = machine
        .command(&["down", "down-lost", "--grace", "5m"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    kill_libvirtd();
    let begun = Instant::now();
    let output = down.wait_with_output().unwrap();
    assert!(begun.elapsed().as_secs() < 30, "it has waited");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    for part in [
        "error: default/down-lost: libvirt has gone away",
        "nothing of the VM is removed",
        "say disklet down again",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    until_it_answers(&machine);
    assert!(machine.done(&["ps"]).contains("running"));
    machine.done(&["down", "down-lost", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_log_is_followed_past_the_end_of_a_daemon() {
    let test = "a_log_is_followed_past_the_end_of_a_daemon";
    if !is_beside_own(test, &[("LIBVIRTD_AGAIN", "yes")]) {
        return;
    }
    let (machine, fixture) = waiting("log-outlives");
    machine.done(&["up", "-f", &fixture.manifest]);
    let mut follower = machine
        .command(&["logs", "-f", "log-outlives"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    read_until(follower.stdout.as_mut().unwrap(), guest::HELLO);
    kill_libvirtd();
    until_it_answers(&machine);
    machine.press_a_key("log-outlives");
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "default/log-outlives has ended\n");
    machine.done(&["down", "log-outlives", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_up_whose_daemon_goes_away_is_gone_on_with_or_removed() {
    let test = "an_up_whose_daemon_goes_away_is_gone_on_with_or_removed";
    if !is_beside_own(test, &[("LIBVIRTD_AGAIN", "yes")]) {
        return;
    }
    let machine = Machine::new("up-lost");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "up-lost", Kind::RawDevice, &guest);
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    let lose = || {
        // It stands still after the root, before the device.
        let places = machine.hold_places();
        let up = machine.command(&up).stderr(Stdio::piped()).spawn().unwrap();
        until_waited_for(&places);
        kill_libvirtd();
        drop(places);
        let output = up.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("error: default/up-lost: libvirt has gone away: "),
            "{said}"
        );
        assert!(said.contains("help: say disklet up again once"), "{said}");
        assert!(!said.contains("cannot be undone"), "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
        until_it_answers(&machine);
    };
    for undo in [&["down", "up-lost", "--grace", "0"][..], &["gc"]] {
        lose();
        machine.done(undo);
        assert_eq!(machine.things(), before, "{undo:?}");
    }
    lose();
    assert_eq!(machine.done(&up), "default/up-lost started\n");
    // The same once it has run.
    machine.destroy("up-lost");
    lose();
    assert_eq!(machine.done(&up), "default/up-lost started\n");
    machine.done(&["down", "up-lost", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

/// A VM whose daemon is ended while it starts QEMU: the emulator does something,
/// and then waits until it is told to end.
fn half_started(machine: &Machine, fixture: &Fixture, before: &str) {
    let program = format!(
        "#!/usr/bin/python3\nimport os, sys, time\n\
         if any(word.startswith('guest=') for word in sys.argv):\n\
         \x20   {before}\n\
         \x20   while not os.path.exists(sys.argv[0] + '.end'): time.sleep(0.1)\n\
         \x20   sys.exit(1)\n\
         os.execvp('qemu-system-x86_64', ['qemu-system-x86_64'] + sys.argv[1:])\n"
    );
    let path = machine.write("emulator", program);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    let config = format!("{config}emulator: {}\n", path.display());
    machine.write("config.yaml", config);
    let mut up = machine.command(&["up", "-f", &fixture.manifest]);
    let up = up.stderr(Stdio::piped()).spawn().unwrap();
    machine.until_it_is("half", "starting");
    kill_libvirtd();
    let output = up.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    until_it_answers(machine);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_whose_daemon_was_ended_while_it_started_is_not_called_paused() {
    let test = "a_vm_whose_daemon_was_ended_while_it_started_is_not_called_paused";
    if !is_beside_own(test, &[("LIBVIRTD_AGAIN", "yes")]) {
        return;
    }
    let (machine, fixture) = waiting("half");
    let before = machine.things();
    half_started(&machine, &fixture, "pass");
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    let wanted = "its start has begun and does not end";
    assert!(refused.contains(wanted), "{refused}");
    assert!(!refused.contains("paused"), "{refused}");
    // What is advised helps.
    let uuid = machine.uuid();
    assert!(refused.contains(&format!("destroy {uuid}")), "{refused}");
    machine.virsh_done(&["destroy", &uuid]);
    machine.done(&["down", "half", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_that_libvirt_is_busy_with_is_told_with_a_remedy() {
    let test = "a_vm_that_libvirt_is_busy_with_is_told_with_a_remedy";
    if !is_beside_own(test, &[("LIBVIRTD_AGAIN", "yes")]) {
        return;
    }
    let (machine, fixture) = waiting("half");
    let before = machine.things();
    // Somebody has the monitor still open when the process itself is gone.
    half_started(&machine, &fixture, "os.fork()");
    let down = ["down", "half", "--grace", "0"];
    let refused = machine.refused(&down);
    for part in ["state change lock", "help: ", "start libvirtd again"] {
        assert!(refused.contains(part), "{refused}");
    }
    machine.write("emulator.end", "");
    machine.done(&down);
    assert_eq!(machine.things(), before);
}
