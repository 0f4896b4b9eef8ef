//! `disklet serve upload` onto real block devices and a full filesystem. Needs root.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "upload/kills.rs"]
mod kills;
#[path = "upload/proxy.rs"]
mod proxy;
#[path = "image/scratch.rs"]
mod scratch;
#[path = "upload/serving.rs"]
mod serving;

use std::fs::{self, File};
use std::io::Read;
use std::process::Command;

use scratch::{Scratch, wait_until};
use serving::{Serving, sha256};

const SIZE: usize = 24 << 20;

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

#[test]
#[ignore = "needs root"]
fn a_device_that_was_filled_half_way_has_no_beginning_and_is_gone_on_with() {
    let scratch = Scratch::new("upload-device");
    let device = Loop::of(&scratch, 0xee);
    let told = Serving::refused(&scratch, &device.0, "");
    assert!(told.contains("has data in it already"), "{told}");
    let upload: Vec<u8> = (0..SIZE)
        .map(|at| u8::try_from(at / 4096 % 251).unwrap() + 1)
        .collect();
    let digest = sha256(&upload);

    let mut serving = Serving::start(&scratch, &device.0, "--replace");
    let larger = serving.put(&vec![1; SIZE + 512], "");
    assert_eq!(larger.status, 413, "{larger:?}");
    assert!(device.bytes().iter().all(|byte| *byte == 0xee));
    let mut first = serving.connect();
    let head = format!("Content-Length: {SIZE}\r\nX-Checksum-Sha256: {digest}");
    first.send(serving.head("PUT", &head).as_bytes());
    first.send(&upload[..SIZE / 2]);
    drop(first);
    wait_until("it is lost", || serving.standing("upload-state") != "busy");
    serving.kill();
    serving.ends();
    assert!(device.bytes()[..1 << 20].iter().all(|byte| *byte == 0));

    let mut serving = Serving::start(&scratch, &device.0, "--replace");
    let from = serving.offset();
    assert!(from > 0);
    let range = format!("Content-Range: bytes {from}-{}/{SIZE}", SIZE - 1);
    let answer = serving.put(&upload[from..], &range);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(serving.ends(), Some(0));
    assert!(device.bytes() == upload);
}

#[test]
#[ignore = "takes its time"]
fn a_gibibyte_goes_on_after_twenty_kills() {
    kills::killed_and_gone_on_with(1 << 30, 20, "none");
}

/// A small filesystem of its own.
struct Mounted<'s>(&'s Scratch);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path("volume")).status();
    }
}

#[test]
#[ignore = "needs root"]
fn a_volume_that_is_full_is_said_to_be() {
    let scratch = Scratch::new("upload-full");
    fs::create_dir(scratch.path("volume")).unwrap();
    scratch.tool("mount", "-t tmpfs -o size=8m none volume");
    let _mounted = Mounted(&scratch);
    let serving = Serving::start(&scratch, "volume", "");
    let answer = serving.put(&vec![7; 16 << 20], "");
    assert_eq!(answer.status, 507, "{answer:?}");
    assert_eq!(fs::read_dir(scratch.path("volume")).unwrap().count(), 0);
}
