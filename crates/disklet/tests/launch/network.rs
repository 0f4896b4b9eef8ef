//! Who serves QEMU's network. What passt itself does is in real_launch.rs.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::launched::{LONG, Launched, Launcher, Scratch, wait_until};

const OFF: &str = r#"{"type":"ended","how":"off"}"#;

/// A launcher whose passt is a script. It notes its arguments.
fn with_passt(script: &str, args: &[&str]) -> Launcher {
    let scratch = Scratch::new();
    let passt = scratch.path().join("passt");
    let said = scratch.path().join("args");
    let text = format!("#!/bin/sh\necho \"$@\" >>{}\n{script}\n", said.display());
    // Written by another process: nobody else starts a program while this one
    // has it open to write.
    let made = Command::new("sh")
        .args(["-c", "printf %s \"$1\" >\"$2\"", "sh", &text])
        .arg(&passt)
        .status();
    assert!(made.unwrap().success());
    fs::set_permissions(&passt, fs::Permissions::from_mode(0o755)).unwrap();
    let passt = format!("--passt={}", passt.display());
    let mut all = vec![passt.as_str()];
    all.extend(args);
    Launcher::within(scratch, &all)
}

fn network(launched: &Launched) -> UnixStream {
    let stream = launched.connect("net");
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn has_ended(stream: &mut UnixStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn passt_gets_the_connection_and_the_ports() {
    let launcher = with_passt("cat <&0 >&0", &["--tcp-ports=80,22,23", "--udp-ports=none"]);
    let launched = launcher.start();
    let mut qemu = network(&launched);
    qemu.write_all(b"frame").unwrap();
    let mut echo = [0; 5];
    qemu.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"frame");
    let args = fs::read_to_string(launched.path("args")).unwrap();
    assert_eq!(
        args.lines().collect::<Vec<_>>(),
        [
            "--foreground --stderr --quiet --no-map-gw --fd 0",
            "--foreground --stderr --quiet --no-map-gw --fd 0 --tcp-ports 22-23,80 --udp-ports none",
        ]
    );
    drop(qemu);
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn the_next_connection_has_the_next_passt() {
    let launched = with_passt("cat <&0 >&0", &[]).start();
    let mut first = network(&launched);
    first.write_all(b"1").unwrap();
    first.read_exact(&mut [0]).unwrap();
    // QEMU was replaced, and the old one is still there.
    let mut second = network(&launched);
    second.write_all(b"2").unwrap();
    second.read_exact(&mut [0]).unwrap();
    assert!(has_ended(&mut first));
    assert_eq!(
        fs::read_to_string(launched.path("args"))
            .unwrap()
            .lines()
            .count(),
        3
    );
}

#[test]
fn a_passt_that_does_not_go_is_ended() {
    // It does not see that its connection has ended.
    let script = "[ $# -lt 8 ] && exit\ntrap '' TERM\ndd bs=1 count=1 <&0 >&0 2>/dev/null\nexec sleep 1000 <&-";
    let launched = with_passt(script, &[]).start();
    for _ in 0..2 {
        let mut qemu = network(&launched);
        qemu.write_all(b"x").unwrap();
        qemu.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn a_passt_that_dies_is_told_once() {
    let script = "[ $# -lt 8 ] && exit\necho out of luck >&2\nexit 3";
    let launched = with_passt(script, &[]).start();
    for _ in 0..3 {
        assert!(has_ended(&mut network(&launched)));
    }
    let mut launched = launched;
    assert!(launched.runs());
    wait_until("all were started", || {
        fs::read_to_string(launched.path("args"))
            .unwrap()
            .lines()
            .count()
            == 4
    });
    launched.greeted().say(OFF);
    let stderr = launched.end().stderr;
    assert_eq!(
        stderr.matches("ended with code 3: out of luck").count(),
        1,
        "{stderr}"
    );
}

#[test]
fn without_a_network_that_works_there_is_no_vm() {
    let script = "echo Failed to send 9 bytes to syslog >&2\n\
                  echo \"Couldn't create user namespace: Operation not permitted\" >&2\nexit 1";
    let outcome = with_passt(script, &[]).start().end();
    assert_eq!(outcome.code, Some(70));
    for wanted in ["Couldn't create user namespace", "seccomp"] {
        assert!(outcome.message.contains(wanted), "{}", outcome.message);
    }
    assert!(!outcome.message.contains("syslog"), "{}", outcome.message);

    let outcome = Launcher::new(&["--passt=/nowhere/passt"]).start().end();
    assert_eq!(outcome.code, Some(70));
    assert!(
        outcome.message.contains("/nowhere/passt"),
        "{}",
        outcome.message
    );
}

#[test]
fn wrong_ports_are_wrong_usage() {
    for arg in [
        "--tcp-ports=all",
        "--udp-ports=0",
        "--tcp-ports=9-1",
        "--tcp-ports=",
    ] {
        let outcome = Command::new(env!("CARGO_BIN_EXE_disklet"))
            .args(["launch", arg])
            .output()
            .unwrap();
        assert_eq!(outcome.status.code(), Some(2), "{arg}");
    }
}
