//! The serial port, on standard output and input.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Stdio;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::launched::{LONG, Launched, Launcher, collect, wait_until};

const OFF: &str = r#"{"type":"ended","how":"off"}"#;

/// Not compressible, not periodic, the same each time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn ten_megabytes_come_out_as_they_were() {
    let mut launched = Launched::alone();
    let output = collect(launched.child.stdout.take().unwrap());
    // Before any agent: what a guest says is not lost for want of one.
    let mut serial = launched.connect("serial");
    let sent = noise(10 << 20);
    serial.write_all(&sent).unwrap();
    drop(serial);
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
    assert!(output.join().unwrap() == sent, "the output differs");
}

#[test]
fn input_goes_to_the_guest_and_its_end_ends_nothing() {
    let mut launched = Launched::alone();
    let mut input = launched.child.stdin.take().unwrap();
    // Typed before there is a guest.
    input.write_all(b"early\n").unwrap();
    let mut serial = launched.connect("serial");
    serial.set_read_timeout(Some(LONG)).unwrap();
    let mut seen = [0; 6];
    serial.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"early\n");
    let sent = noise(1 << 20);
    let sender = std::thread::spawn({
        let sent = sent.clone();
        move || input.write_all(&sent).unwrap()
    });
    let mut seen = vec![0; sent.len()];
    serial.read_exact(&mut seen).unwrap();
    assert!(seen == sent, "the input differs");
    // It drops the input: that was its end.
    sender.join().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(launched.runs());
    serial.write_all(b"still here").unwrap();
    drop(serial);
    let output = collect(launched.child.stdout.take().unwrap());
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
    assert_eq!(output.join().unwrap(), b"still here");
}

#[test]
fn a_new_guest_takes_the_console_over() {
    let mut launched = Launched::alone();
    let mut old = launched.connect("serial");
    old.write_all(b"one ").unwrap();
    let mut new = launched.connect("serial");
    old.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(old.read(&mut [0; 8]).unwrap(), 0);
    new.write_all(b"two").unwrap();
    new.shutdown(Shutdown::Both).unwrap();
    let output = collect(launched.child.stdout.take().unwrap());
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
    assert_eq!(output.join().unwrap(), b"one two");
}

/// The guest waits for a reader, then goes on without one, and memory has an end.
#[test]
fn nobody_reads_and_the_guest_goes_on() {
    let mut launched = Launched::alone();
    let mut serial = launched.connect("serial");
    let sent = noise(24 << 20);
    let start = std::time::Instant::now();
    serial.write_all(&sent).unwrap();
    drop(serial);
    assert!(start.elapsed() > Duration::from_secs(5), "it did not wait");
    let status = fs::read_to_string(format!("/proc/{}/status", launched.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(peak < 24 << 10, "{peak} KiB");
    let output = collect(launched.child.stdout.take().unwrap());
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
    let output = output.join().unwrap();
    let mark = b"bytes of the console are missing here: nobody read them]\r\n";
    let end = output.windows(mark.len()).position(|window| window == mark);
    let rest = &output[end.unwrap() + mark.len()..];
    assert!(rest.len() >= 1 << 20 && sent.ends_with(rest));
}

#[test]
fn a_closed_output_does_not_stop_the_guest() {
    let mut launched = Launched::alone();
    drop(launched.child.stdout.take());
    let mut serial = launched.connect("serial");
    let start = std::time::Instant::now();
    serial.write_all(&noise(8 << 20)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(8));
    launched.greeted().say(OFF);
    drop(serial);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn a_terminal_passes_every_key_and_changes_no_byte() {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inner = fs::File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut terminal = fs::File::from(terminal);
    let mut launcher = Launcher::new(&["--no-network"]);
    launcher
        .command
        .stdin(inner.try_clone().unwrap())
        .stdout(inner);
    let launched = launcher.start();
    let mut serial = launched.connect("serial");
    serial.set_read_timeout(Some(LONG)).unwrap();
    let keys = b"a\x03\x04\x1a\x1c\r\x11\x13\x7f";
    terminal.write_all(keys).unwrap();
    let mut seen = [0; 9];
    serial.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, keys);
    serial.write_all(b"x\ny\r\n\t").unwrap();
    let mut seen = [0; 6];
    terminal.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"x\ny\r\n\t");
    drop(serial);
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn an_end_is_not_held_up_by_a_guest_that_stays_connected() {
    let mut launcher = Launcher::new(&["--no-network"]);
    launcher.command.stdout(Stdio::null());
    let launched = launcher.start();
    let serial = launched.connect("serial");
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
    drop(serial);
}

#[test]
fn is_small() {
    let launched = Launched::alone();
    let _agent = launched.greeted();
    wait_until("it is idle", || {
        let status = fs::read_to_string(format!("/proc/{}/status", launched.child.id())).unwrap();
        let size = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let size: u64 = size
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        size < 4 << 10
    });
}
