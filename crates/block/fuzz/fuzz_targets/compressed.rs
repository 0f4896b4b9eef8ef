//! Packed clusters of any size and either kind.
#![no_main]

use disklet_block::qcow2::{Compression, Unpacker};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, packed)) = bytes.split_first() else {
        return;
    };
    let compression = match first & 1 {
        0 => Compression::Zlib,
        _ => Compression::Zstd,
    };
    let bits = 9 + u32::from(first >> 1) % 13;
    let mut cluster = vec![0; 1 << bits];
    let mut unpacker = Unpacker::new(compression);
    let once = unpacker.unpack(packed, &mut cluster).is_ok();
    // What was left behind must not change what comes next.
    let mut again = vec![0xff; 1 << bits];
    assert_eq!(once, unpacker.unpack(packed, &mut again).is_ok());
    assert!(!once || cluster == again);
});
