//! Streams judged by what `qemu-img convert` makes of the same file.

mod bounds;
mod confined;
mod hostile;
mod images;
mod placing;
mod shuffle;
mod shuffled;
mod wrapped;

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::convert::Unwatched;
use crate::device::MemoryDevice;

/// A directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("disklet-stream-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

/// What QEMU makes of a qcow2 image.
fn judged(folder: &Folder, image: &str) -> Vec<u8> {
    let raw = folder.file("judged.raw");
    run(
        "qemu-img",
        &["convert", "-f", "qcow2", "-O", "raw", image, &raw],
    );
    std::fs::read(raw).unwrap()
}

/// Numbers without a pattern, the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A disk with holes, text and noise by turns.
fn sample(length: usize) -> Vec<u8> {
    let mut noise = Noise(7);
    let mut bytes = vec![0; length];
    for (index, block) in bytes.chunks_mut(4096).enumerate() {
        match index % 7 {
            0..=2 => {}
            3..=4 => block.fill(u8::try_from(index % 251).unwrap()),
            _ => block
                .iter_mut()
                .for_each(|byte| *byte = noise.next().to_be_bytes()[0]),
        }
    }
    bytes
}

fn options(format: Format, unwrap: Unwrap) -> Options<'static> {
    Options {
        contents: Contents::As(format),
        unwrap,
        limits: Limits {
            disk: 1 << 30,
            file: None,
            parked: 1 << 30,
        },
        before: Before::Anything,
        room: Room::Fixed,
    }
}

/// Streams a file onto a disk that was full of something else.
fn stream(file: &[u8], options: &Options<'_>, size: usize) -> Result<(Vec<u8>, Report)> {
    let target = MemoryDevice::new(vec![0xee; size]);
    let scratch = MemoryDevice::default();
    let report = to_raw(file, options, &target, &scratch, &Unwatched)?;
    assert_eq!(report.written + report.zero, report.size);
    // Durable: a power cut takes nothing away.
    Ok((target.after_power_cut(|_| false).contents(), report))
}

fn stream_qcow2(file: &[u8], size: usize) -> Result<(Vec<u8>, Report)> {
    let plain = Unwrap::As(Wrapping::Plain);
    stream(file, &options(Format::Qcow2, plain), size)
}

/// Streams a file and compares the disk.
fn assert_streams(file: &[u8], disk: &[u8], what: &str) -> Report {
    let (bytes, report) =
        stream_qcow2(file, disk.len()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let differs = bytes.iter().zip(disk).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}");
    report
}
