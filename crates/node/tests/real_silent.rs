//! What becomes of commands whose daemon stands still, or goes away before they
//! have begun.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::daemon::{StoppedDaemon, is_beside_own, kill_libvirtd, until_it_answers};
use support::fixtures::{Fixture, Kind};
use support::{Machine, guest, until_waited_for};

const AGAIN: [(&str, &str); 1] = [("LIBVIRTD_AGAIN", "yes")];

fn set_up(name: &str) -> (Machine, Fixture) {
    let machine = Machine::new(name);
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, name, Kind::RawDevice, &guest);
    (machine, fixture)
}

fn begin(machine: &Machine, arguments: &[&str]) -> Child {
    let mut command = machine.command(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// How it ended, which takes no longer than a minute and a half.
fn ended(process: Child) -> (Option<i32>, String) {
    let begun = Instant::now();
    let pid = process.id().to_string();
    std::thread::scope(|scope| {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            if ended.recv_timeout(Duration::from_secs(90)).is_err() {
                let _ = Command::new("kill").args(["-KILL", &pid]).status();
            }
        });
        let output = process.wait_with_output().unwrap();
        let _ = end.send(());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(begun.elapsed().as_secs() < 90, "it has waited: {said}");
        (output.status.code(), said)
    })
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_up_whose_daemon_stands_still_says_so_and_is_gone_on_with() {
    let test = "an_up_whose_daemon_stands_still_says_so_and_is_gone_on_with";
    if !is_beside_own(test, &AGAIN) {
        return;
    }
    let (machine, fixture) = set_up("up-silent");
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    // It waits after the root, before the device.
    let places = machine.hold_places();
    let silent = begin(&machine, &up);
    until_waited_for(&places);
    let stopped = StoppedDaemon::stop();
    drop(places);
    let (code, said) = ended(silent);
    assert_eq!(code, Some(1), "{said}");
    let wanted = "error: default/up-silent: libvirt does not answer any more: ";
    assert!(said.starts_with(wanted), "{said}");
    assert!(said.contains("help: say disklet up again once"), "{said}");
    drop(stopped);
    until_it_answers(&machine);
    assert_eq!(machine.done(&up), "default/up-silent started\n");
    machine.done(&["down", "up-silent", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn nobody_waits_for_ever_for_a_daemon_that_stands_still() {
    let test = "nobody_waits_for_ever_for_a_daemon_that_stands_still";
    if !is_beside_own(test, &AGAIN) {
        return;
    }
    let (machine, fixture) = set_up("begin-silent");
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    let stopped = StoppedDaemon::stop();
    let (code, said) = ended(begin(&machine, &up));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("does not answer"), "{said}");
    assert!(said.contains("it listens, but stands still"), "{said}");
    // Who changes their mind is heard at once.
    let cancelled = begin(&machine, &up);
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let pid = cancelled.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    let (code, said) = ended(cancelled);
    assert_eq!(code, Some(130), "{said}");
    assert!(begun.elapsed().as_secs() < 10, "it has waited");
    drop(stopped);
    until_it_answers(&machine);
    assert_eq!(machine.things(), before);
}

/// The emulator is not to blame for a daemon that is killed while it looks at it.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_daemon_that_goes_away_early_is_no_missing_emulator() {
    let test = "a_daemon_that_goes_away_early_is_no_missing_emulator";
    if !is_beside_own(test, &AGAIN) {
        return;
    }
    let (machine, fixture) = set_up("early-lost");
    let asked = machine.path("asked");
    // libvirt asks an emulator what it can, and this one takes its time.
    let slow = format!("#!/bin/sh\n: >{}\nsleep 60\n", asked.display());
    let slow = machine.write("slow-emulator", slow);
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = machine.path("config.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}emulator: {}\n", slow.display())).unwrap();
    let up = begin(&machine, &["up", "-f", &fixture.manifest]);
    let begun = Instant::now();
    while !asked.exists() {
        assert!(begun.elapsed().as_secs() < 60, "the emulator is not asked");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_libvirtd();
    let (code, said) = ended(up);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("error: libvirt has gone away: "), "{said}");
    assert!(
        said.contains("say it again once libvirtd answers"),
        "{said}"
    );
    assert!(!said.contains("install QEMU"), "{said}");
    until_it_answers(&machine);
}
