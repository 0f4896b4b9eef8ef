//! The reader of archives: it ends, keeps its allowance, and hands on what there is.
#![no_main]

use disklet_block::tar::{Allowance, Tar};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let allowance = Allowance {
        entries: 50,
        passed: 1 << 20,
    };
    let bytes = sealed(bytes);
    let mut tar = Tar::new(&bytes[..], allowance);
    let (mut entries, mut read) = (0, 0);
    while let Ok(Some(entry)) = tar.next_entry() {
        entries += 1;
        assert!(entries <= allowance.entries);
        let mut buffer = [0; 700];
        if let Ok(length) = tar.read_data(&mut buffer) {
            assert!(length as u64 <= entry.size);
            read += length;
        }
    }
    assert!(read <= bytes.len());
});

/// With right checksums, if the last byte says so: no fuzzer finds those by chance.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.last().is_some_and(|byte| byte % 4 != 0) {
        for block in bytes.chunks_exact_mut(512) {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    bytes
}
