//! How a launcher ends.

use std::fs;
use std::process::Command;

use crate::launched::{Launched, Launcher, Scratch};

#[test]
fn the_exit_code_is_the_vms_end() {
    for (how, code) in [
        ("off", 0),
        ("crashed", 1),
        ("killed", 137),
        ("refused", 64),
        ("failed", 70),
    ] {
        let launched = Launched::alone();
        let mut agent = launched.greeted();
        agent.say(&format!(
            r#"{{"type":"ended","how":"{how}","why":"the disk\nhelp: more"}}"#
        ));
        // The agent may be gone before anybody has looked.
        drop(agent);
        let agent_socket = launched.path("agent");
        let outcome = launched.end();
        assert_eq!(outcome.code, Some(code), "{how}");
        assert!(
            outcome.stderr.contains("disklet: help: more\n"),
            "{}",
            outcome.stderr
        );
        let message = if how == "off" {
            ""
        } else {
            "the disk\nhelp: more"
        };
        assert_eq!(outcome.message, message, "{how}");
        assert!(!agent_socket.exists());
    }
}

#[test]
fn a_long_reason_is_cut_as_the_kubelet_would() {
    let launched = Launched::alone();
    let why = "ü".repeat(5000);
    launched.greeted().say(&format!(
        r#"{{"type":"ended","how":"failed","why":"{why}"}}"#
    ));
    assert_eq!(launched.end().message, why[..4096]);
}

#[test]
fn a_directory_that_is_not_there_is_told() {
    let outcome = Command::new(env!("CARGO_BIN_EXE_disklet"))
        .args(["launch", "--no-network", "--directory=/nowhere/run"])
        .output()
        .unwrap();
    assert_eq!(outcome.status.code(), Some(70));
    let stderr = String::from_utf8(outcome.stderr).unwrap();
    for wanted in ["/nowhere/run/serial", "help: "] {
        assert!(stderr.contains(wanted), "{stderr}");
    }
}

#[test]
fn a_missing_termination_log_is_not_made() {
    let scratch = Scratch::new();
    let launcher = Launcher::within(scratch, &["--no-network"]);
    let log = launcher.scratch.path().join("log");
    fs::remove_file(&log).unwrap();
    let launched = launcher.start();
    launched
        .greeted()
        .say(r#"{"type":"ended","how":"failed","why":"x"}"#);
    let mut launched = launched;
    assert_eq!(launched.child.wait().unwrap().code(), Some(70));
    assert!(!log.exists());
}
