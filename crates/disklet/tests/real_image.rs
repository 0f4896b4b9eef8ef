//! `disklet image` onto real block devices. Needs root for loop devices.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "image/scratch.rs"]
mod scratch;

use std::fs::{self, File};
use std::io::Read;

use scratch::{Scratch, refused};

/// A block device of 4 MiB, full of old bytes.
struct Loop(String);

impl Loop {
    fn new(scratch: &Scratch) -> Self {
        fs::write(scratch.path("backing"), vec![0xee; 4 << 20]).unwrap();
        let name = scratch.tool("losetup", "--find --show backing");
        Self(name.trim().to_owned())
    }

    fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut device = File::open(&self.0).unwrap();
        device.read_exact(&mut bytes).unwrap();
        bytes
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut command = std::process::Command::new("losetup");
        let _ = command.args(["-d", &self.0]).status();
    }
}

#[test]
#[ignore = "needs root"]
fn disks_go_onto_devices_with_all_their_zeroes() {
    let scratch = Scratch::new("device");
    scratch.disk("disk.raw", 3);
    scratch.qemu("convert -f raw -O qcow2 -c disk.raw disk.qcow2");
    let wanted = scratch.read("disk.raw");
    for source in ["disk.qcow2", "-"] {
        let device = Loop::new(&scratch);
        let line = format!("convert -f qcow2 -O raw {source} {}", device.0);
        let output = scratch.piped("disk.qcow2", &line);
        assert!(output.status.success(), "{source}: {output:?}");
        let found = device.bytes(4 << 20);
        assert!(found[..3 << 20] == wanted, "{source}");
        let behind = found[3 << 20..].iter().all(|byte| *byte == 0xee);
        assert!(behind, "{source}: more than the disk was written");
    }
}

#[test]
#[ignore = "needs root"]
fn devices_that_are_too_small_or_in_use_are_left_alone() {
    let scratch = Scratch::new("device-refused");
    scratch.disk("disk.raw", 5);
    let device = Loop::new(&scratch);
    let before = device.bytes(4 << 20);
    let line = format!("convert -f raw -O raw disk.raw {}", device.0);
    let told = scratch.fails(1, &line);
    let wanted = format!("{}: the device has 4194304 bytes, fewer", device.0);
    assert!(told.contains(&wanted), "{told}");
    let user = scratch.in_use("raw", &device.0);
    scratch.disk("small.raw", 1);
    for source in ["small.raw", "-"] {
        let line = format!("convert -f raw -O raw {source} {}", device.0);
        let told = refused(1, &line, &scratch.piped("small.raw", &line));
        assert!(told.contains("another process"), "{told}");
    }
    assert!(device.bytes(4 << 20) == before);
    drop(user);
    let told = scratch.fails(1, &format!("resize -f raw {} +1M", device.0));
    assert!(told.contains("a block device cannot be resized"), "{told}");
    let line = format!(
        "convert -f raw -O raw --preallocation full disk.raw {}",
        device.0
    );
    scratch.fails(2, &line);
}

#[test]
#[ignore = "needs root"]
fn a_mounted_device_is_not_overwritten() {
    let scratch = Scratch::new("device-mounted");
    scratch.disk("disk.raw", 3);
    let device = Loop::new(&scratch);
    scratch.tool("mkfs.ext4", &format!("-q {}", device.0));
    fs::create_dir(scratch.path("mounted")).unwrap();
    scratch.tool("mount", &format!("{} mounted", device.0));
    let lines = ["disk.raw", "-"].map(|source| {
        let line = format!("convert -f raw -O raw {source} {}", device.0);
        (scratch.piped("disk.raw", &line), line)
    });
    scratch.tool("umount", "mounted");
    for (output, line) in lines {
        let told = refused(1, &line, &output);
        assert!(told.contains("the device is in use: mounted"), "{told}");
        assert!(told.contains("unmount it"), "{told}");
    }
    scratch.tool("fsck.ext4", &format!("-fn {}", device.0));
}
