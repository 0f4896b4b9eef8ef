//! Several VMs of one name, VMs that stand still, and answers in time.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::fixtures::waiting;
use support::{Machine, guest};

fn variant(machine: &Machine, manifest: &str, file: &str, metadata: &str) -> String {
    let text = std::fs::read_to_string(manifest).unwrap();
    let text = text.replacen("metadata:\n", &format!("metadata:\n{metadata}"), 1);
    machine.write(file, text).display().to_string()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn one_name_in_two_namespaces_is_two_vms() {
    let (machine, fixture) = waiting("namesake");
    let before = machine.things();
    let red = variant(
        &machine,
        &fixture.manifest,
        "red.yaml",
        "  namespace: red\n",
    );
    let blue = variant(
        &machine,
        &fixture.manifest,
        "blue.yaml",
        "  namespace: blue\n",
    );
    assert_eq!(machine.done(&["up", "-f", &red]), "red/namesake started\n");
    assert_eq!(
        machine.done(&["up", "-f", &blue]),
        "blue/namesake started\n"
    );
    let refused = machine.refused(&["down", "namesake", "--grace", "0"]);
    assert!(
        refused.contains("there is no VM default/namesake"),
        "{refused}"
    );
    let removed = machine.done(&["down", "red/namesake", "--grace", "0"]);
    assert_eq!(removed, "red/namesake removed\n");
    let left = machine.done(&["ps"]);
    assert!(left.contains("blue") && left.contains("running"), "{left}");
    assert!(!left.contains("red"), "{left}");
    machine.done(&["down", "namesake", "-n", "blue", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn two_vms_of_one_name_are_told_apart_by_their_uuids() {
    let (machine, fixture) = waiting("twin");
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let uuids = [
        "53008994-44c0-4017-ad44-9c49758083da",
        "53008994-44c0-4017-ad44-9c49758083db",
    ];
    for uuid in uuids {
        let with = format!("  annotations:\n    VirtletSystemUUID: {uuid}\n");
        let file = machine.write("twin.yaml", text.replace("  annotations:\n", &with));
        machine.done(&["up", "-f", file.to_str().unwrap()]);
    }
    let refused = machine.refused(&["down", "twin", "--grace", "0"]);
    assert!(
        refused.contains("there are several VMs default/twin"),
        "{refused}"
    );
    assert!(refused.contains("disklet ps -o wide"), "{refused}");
    let wide = machine.done(&["ps", "-o", "wide"]);
    assert!(uuids.iter().all(|uuid| wide.contains(uuid)), "{wide}");
    machine.done(&["down", uuids[0], "--grace", "0"]);
    assert!(machine.done(&["ps"]).contains("running"), "the other");
    machine.done(&["down", "twin", "--grace", "0"]);
    assert!(!machine.done(&["ps"]).contains("twin"));
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_that_stands_still_is_called_paused() {
    let (machine, fixture) = waiting("paused");
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    machine.done(&up);
    machine.virsh(&["suspend", &machine.uuid()]).unwrap();
    assert!(machine.done(&["ps"]).contains("paused"));
    assert_eq!(machine.done(&up), "default/paused is paused\n");
    assert!(
        machine
            .done(&["describe", "paused"])
            .contains("State    paused")
    );
    machine.done(&["gc"]);
    machine.virsh(&["resume", &machine.uuid()]).unwrap();
    assert_eq!(machine.done(&up), "default/paused is running\n");
    machine.virsh(&["suspend", &machine.uuid()]).unwrap();
    // It cannot hear that it shall end: nobody waits for it.
    let begun = Instant::now();
    machine.done(&["down", "paused", "--grace", "5m"]);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_is_done_is_told_when_it_is_done() {
    let (machine, fixture) = waiting("in-time");
    let up = [
        "up",
        "-f",
        &fixture.manifest,
        "--wait",
        "exit",
        "--timeout",
        "6m",
    ];
    let mut up = machine.command(&up).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(up.stdout.take().unwrap()).lines();
    // The guest waits for a key, and `up` for the guest.
    assert_eq!(said.next().unwrap().unwrap(), "default/in-time started");
    assert!(up.try_wait().unwrap().is_none(), "not at its end");
    machine.until_it_says("in-time", guest::HELLO);
    machine.press_a_key("in-time");
    assert_eq!(said.next().unwrap().unwrap(), "default/in-time has ended");
    assert!(up.wait().unwrap().success());
    machine.done(&["down", "in-time"]);
}
