//! The stream converter, wrapped or not, beside the reader that can seek: what
//! both accept is the same disk.
#![no_main]

use std::sync::Arc;

use disklet_block::convert::{Before, Unwatched};
use disklet_block::device::{MemoryDevice, ReadAt, Size};
use disklet_block::image::Format;
use disklet_block::qcow2::Qcow2;
use disklet_block::stream::{Contents, Limits, Options, Room, Unwrap, Wrapping, to_raw};
use libfuzzer_sys::fuzz_target;

const DISK: usize = 4 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, file)) = bytes.split_last() else {
        return;
    };
    let wrapping = match first % 8 {
        0 => Wrapping::Gzip,
        1 => Wrapping::Xz,
        2 => Wrapping::Zstd,
        _ => Wrapping::Plain,
    };
    let target = MemoryDevice::new(vec![0xee; DISK]);
    let options = Options {
        contents: Contents::As(Format::Qcow2),
        unwrap: Unwrap::As(wrapping),
        limits: Limits {
            disk: DISK as u64,
            file: Some(16 << 20),
            parked: 16 << 20,
        },
        before: Before::Anything,
        room: Room::Fixed,
    };
    let scratch = MemoryDevice::default();
    let streamed = to_raw(file, &options, &target, &scratch, &Unwatched);
    if let (Ok(report), Wrapping::Plain) = (streamed, wrapping) {
        let streamed = target.contents();
        let size = usize::try_from(report.size).expect("no larger than the target");
        if let Some(disk) = by_seeking(file) {
            assert!(disk == streamed[..size], "another disk");
        }
        assert!(streamed[size..].iter().all(|byte| *byte == 0xee), "written behind the disk");
    }
});

/// The disk, if it can be read from the first to the last byte.
fn by_seeking(file: &[u8]) -> Option<Vec<u8>> {
    let device = MemoryDevice::new(file.to_vec());
    let header = Qcow2::read_header(&device, "image").ok()?;
    let image = Qcow2::assemble(header, "image", Arc::new(device), None, None).ok()?;
    let mut disk = vec![0; usize::try_from(image.size().ok()?).ok()?];
    image.read_at(&mut disk, 0).ok()?;
    Some(disk)
}
