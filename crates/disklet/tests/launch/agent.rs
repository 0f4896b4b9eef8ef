//! What launcher and agent say to each other.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::launched::{Launched, Launcher, wait_until};

const OFF: &str = r#"{"type":"ended","how":"off"}"#;

#[test]
fn all_sockets_are_there_when_the_agents_is() {
    let launched = Launched::alone();
    wait_until("agent shows", || launched.path("agent").exists());
    for name in ["agent", "serial", "net"] {
        let meta = fs::symlink_metadata(launched.path(name)).unwrap();
        assert!(meta.file_type().is_socket(), "{name}");
        assert_eq!(meta.permissions().mode() & 0o777, 0o666, "{name}");
    }
    assert!(!launched.path(".agent").exists());
}

#[test]
fn takes_the_place_of_a_launcher_that_was_killed() {
    let first = Launched::alone();
    let mut lost = first.greeted();
    let scratch = first.killed();
    assert_eq!(lost.hear(), "");
    assert!(scratch.path().join("agent").exists());
    let launched = Launcher::within(scratch, &["--no-network"]).start();
    // What is there from before refuses until it was replaced.
    wait_until("a new socket", || {
        UnixStream::connect(launched.path("agent")).is_ok()
    });
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn tells_people_what_the_agent_does() {
    let launched = Launched::alone();
    let mut agent = launched.greeted();
    agent.say(r#"{"type":"working","what":"pulling \u001b[31mimage"}"#);
    agent.say(r#"{"type":"running"}"#);
    agent.say(r#"{"type":"paused","why":"no space"}"#);
    agent.say(OFF);
    let outcome = launched.end();
    let told: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(
        told,
        [
            "disklet: waiting for the agent of this node",
            "disklet: pulling ?[31mimage",
            "disklet: the VM runs",
            "disklet: the VM is paused: no space",
            "disklet: the VM is off",
        ]
    );
}

#[test]
fn a_second_agent_takes_the_place_of_the_first() {
    let launched = Launched::alone();
    let mut first = launched.greeted();
    let mut second = launched.greeted();
    assert_eq!(first.hear(), "");
    let mut third = launched.agent();
    // Who has not said who it is takes nobody's place.
    std::thread::sleep(Duration::from_millis(200));
    second.say(r#"{"type":"ended","how":"crashed","why":"x"}"#);
    assert_eq!(third.hear(), "");
    assert_eq!(launched.end().code, Some(1));
}

#[test]
fn the_vm_outlives_the_agent() {
    let mut launched = Launched::alone();
    drop(launched.greeted());
    std::thread::sleep(Duration::from_millis(300));
    assert!(launched.runs());
    launched.greeted().say(OFF);
    let outcome = launched.end();
    assert_eq!(outcome.code, Some(0));
    assert!(
        outcome.stderr.contains("the agent has gone"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_signal_becomes_a_stop_and_is_said_again_to_the_next_agent() {
    let launched = Launcher::new(&["--no-network", "--grace", "40"]).start();
    let mut agent = launched.greeted();
    launched.signal(Signal::TERM);
    assert_eq!(agent.hear(), r#"{"type":"stop","grace":35}"#);
    std::thread::sleep(Duration::from_millis(1100));
    let mut next = launched.greeted();
    let again = grace(&next.hear());
    assert!((1..=34).contains(&again), "{again}");
    launched.signal(Signal::TERM);
    assert!(grace(&next.hear()) <= 5);
    launched.signal(Signal::INT);
    assert_eq!(next.hear(), r#"{"type":"stop","grace":0}"#);
    next.say(r#"{"type":"ended","how":"killed","why":"the grace was over"}"#);
    assert_eq!(launched.end().code, Some(137));
}

fn grace(line: &str) -> u32 {
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(value["type"], "stop", "{line}");
    value["grace"].as_u64().unwrap().try_into().unwrap()
}

#[test]
fn a_stop_waits_for_an_agent_that_is_being_replaced() {
    let mut launched = Launched::alone();
    drop(launched.greeted());
    // The launcher has seen it go when it tells so; until then it would be
    // said to nobody.
    std::thread::sleep(Duration::from_millis(200));
    launched.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    assert!(launched.runs());
    let mut agent = launched.greeted();
    assert!(grace(&agent.hear()) > 20);
    agent.say(OFF);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn without_any_agent_there_is_nothing_to_wait_for() {
    let launched = Launched::alone();
    wait_until("agent shows", || launched.path("agent").exists());
    launched.signal(Signal::TERM);
    let outcome = launched.end();
    assert_eq!(outcome.code, Some(0));
    assert!(
        outcome.stderr.contains("before the agent"),
        "{}",
        outcome.stderr
    );
}
