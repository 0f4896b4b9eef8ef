//! The header and its extensions, and what they name.
#![no_main]

use std::sync::Arc;

use disklet_block::device::MemoryDevice;
use disklet_block::qcow2::{Header, Qcow2};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Header::parse(bytes);
    let device = MemoryDevice::new(bytes.to_vec());
    let Ok(header) = Qcow2::read_header(&device, "image") else {
        return;
    };
    if let Ok(image) = Qcow2::assemble(header, "image", Arc::new(device), None, None) {
        let _ = image.snapshots();
        let _ = image.bitmaps();
    }
});
