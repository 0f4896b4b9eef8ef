//! The check, and what it promises: a disk that was found sound can be given
//! another size, and is sound then.
#![no_main]

use disklet_block::device::MemoryDevice;
use disklet_block::qcow2::{Beyond, ResizeOptions, Verdict, check, resize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let device = MemoryDevice::new(bytes.to_vec());
    let Ok(report) = check(&device, "image") else {
        return;
    };
    if report.verdict() == Verdict::Corrupt {
        return;
    }
    let options = ResizeOptions {
        beyond: Beyond::Lose,
        backing_size: Some(0),
    };
    let size = u64::from(bytes.last().copied().unwrap_or(0)) << 14;
    if resize(&device, "image", size, &options).is_ok() {
        let after = check(&device, "image").expect("an image that can be opened");
        assert_ne!(after.verdict(), Verdict::Corrupt, "{:?}", after.problems);
    }
});
