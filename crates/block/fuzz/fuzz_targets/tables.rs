//! L1 and L2 tables: every piece of the disk is mapped and read.
#![no_main]

use std::sync::Arc;

use disklet_block::device::{Extents, MemoryDevice, ReadAt, Size};
use disklet_block::qcow2::{GuestOffset, Qcow2};
use libfuzzer_sys::fuzz_target;

/// Larger disks are mapped no further.
const MOST: u64 = 8 << 20;

fuzz_target!(|bytes: &[u8]| {
    let device = MemoryDevice::new(bytes.to_vec());
    let Ok(header) = Qcow2::read_header(&device, "image") else {
        return;
    };
    let Ok(image) = Qcow2::assemble(header, "image", Arc::new(device), None, None) else {
        return;
    };
    let end = image.size().unwrap_or(0).min(MOST);
    let mut at = 0;
    while at < end {
        let length = match image.map(GuestOffset(at), end - at) {
            Ok((_, length)) => length,
            Err(_) => image.header().cluster.bytes(),
        };
        assert!(length > 0);
        let _ = image.extent_at(at);
        let mut buffer = vec![0; length.min(100_000) as usize];
        let _ = image.read_at(&mut buffer, at);
        at += length;
    }
});
