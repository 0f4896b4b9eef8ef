//! `disklet populate` onto real block devices. Needs root for loop devices.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "image/scratch.rs"]
mod scratch;
#[path = "images/server.rs"]
mod server;

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use scratch::Scratch;
use server::{Reply, Server};

const TAG: &str = "\"one\"";
const SIZE: usize = 6 << 20;

/// A block device.
struct Loop(String);

impl Loop {
    fn of(scratch: &Scratch, byte: u8) -> Self {
        fs::write(scratch.path("backing"), vec![byte; SIZE]).unwrap();
        let name = scratch.tool("losetup", "--find --show backing");
        Self(name.trim().to_owned())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        let mut device = File::open(&self.0).unwrap();
        device.read_exact(&mut bytes).unwrap();
        bytes
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

fn command(server: &Server, device: &Loop, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args([
        "populate",
        "http",
        &server.url("/disk"),
        "--target",
        &device.0,
    ]);
    command.args(more);
    command
}

#[test]
#[ignore = "needs root"]
fn a_device_is_filled_whole_or_has_no_beginning() {
    let scratch = Scratch::new("populate-device");
    scratch.disk("disk.raw", 5);
    scratch.qemu("convert -f raw -O qcow2 -c disk.raw disk.qcow2");
    let wanted = scratch.read("disk.raw");
    let file = scratch.read("disk.qcow2");
    let server = Server::start(move |request| Reply::file(request, &file, TAG));

    // What is there is left alone, unless somebody gives it up.
    let device = Loop::of(&scratch, 0xee);
    let refused = command(&server, &device, &[]).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("has data in it already"), "{told}");
    assert!(device.bytes().iter().all(|byte| *byte == 0xee));
    let done = command(&server, &device, &["--replace"]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(device.bytes()[..wanted.len()] == wanted);

    // Too small for the disk.
    let larger = Server::start(|request| Reply::file(request, &vec![1; SIZE + 512], TAG));
    let refused = command(&larger, &device, &["--replace"]).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("use a larger volume"), "{told}");
    assert!(device.bytes()[..1 << 20].iter().all(|byte| *byte == 0));

    // Killed half way.
    let slow =
        Server::start(|request| Reply::file(request, &vec![7; SIZE], TAG).stalled_at(4 << 20));
    let mut running = command(&slow, &device, &[]);
    let mut running = running.stderr(Stdio::null()).spawn().unwrap();
    while slow.seen().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(device.bytes()[..1 << 20].iter().all(|byte| *byte == 0));
    // And again, without a word about what is there.
    let done = command(&server, &device, &[]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(device.bytes()[..wanted.len()] == wanted);
}
