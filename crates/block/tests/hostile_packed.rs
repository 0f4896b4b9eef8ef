//! Packed clusters that lie about their size.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use support::confined::tried;
use support::forge::{COMPRESSED, Forged, L2};

/// Where the attempts run.
#[test]
fn child() {
    support::confined::child();
}

#[test]
fn packed_clusters_that_lie_are_refused() {
    let cluster = 1 << 16;
    let cases: [(&str, Vec<u8>, u64); 5] = [
        ("short", deflate(cluster / 2), 2),
        ("long", deflate(cluster * 4), 8),
        ("garbage", vec![0xa5; 1024], 2),
        ("empty", vec![0; 512], 1),
        ("sectors", deflate(cluster), 256),
    ];
    for (name, packed, sectors) in cases {
        let mut image = Forged::sound(16);
        image.packed(&packed, sectors);
        let outcome = tried(&format!("zlib-{name}"), &image);
        if name == "sectors" {
            // More sectors than the file has: what is there is enough.
            outcome.fine("read").fine("copy");
            outcome.refused("check", "Corrupt", "");
            continue;
        }
        outcome.refused("read", "Corrupt", "compressed cluster");
        outcome.refused("copy", "Corrupt", "compressed cluster");
    }
    let mut outside = Forged::sound(16);
    outside.set(L2, 0, COMPRESSED | 1 << 50);
    let outcome = tried("packed-outside", &outside);
    outcome.refused("read", "Corrupt", "beyond the end of the file");
    outcome.refused("copy", "Corrupt", "beyond the end of the file");
}

/// One block of stored bytes for each 32 KiB: deflate without a library.
fn deflate(length: usize) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut left = length;
    while left > 0 {
        let step = left.min(32 << 10);
        left -= step;
        packed.push(u8::from(left == 0));
        let step16 = u16::try_from(step).unwrap();
        packed.extend(step16.to_le_bytes());
        packed.extend((!step16).to_le_bytes());
        packed.extend(vec![3; step]);
    }
    packed
}

#[test]
fn zstd_frames_that_lie_are_refused() {
    // Magic, a frame without a size, a window, and one block of RLE.
    let frame = |window: u8, length: u32| {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window];
        let block = 1 | 1 << 1 | length << 3;
        frame.extend(&block.to_le_bytes()[..3]);
        frame.push(5);
        frame
    };
    let log = |log: u8| (log - 10) << 3;
    let try_it = |name: &str, frame: &[u8]| {
        let mut image = Forged::sound(16);
        image.zstd().packed(frame, 1);
        tried(&format!("zstd-{name}"), &image)
    };
    try_it("sound", &frame(log(17), 1 << 16))
        .fine("read")
        .fine("copy");
    for (name, frame) in [
        ("window", frame(log(31), 1 << 16)),
        ("window-24", frame(log(24), 1 << 16)),
        ("short", frame(log(17), 1 << 15)),
        ("garbage", vec![0x5a; 512]),
        ("cut", vec![0x28, 0xb5, 0x2f, 0xfd]),
    ] {
        let outcome = try_it(name, &frame);
        outcome.refused("read", "Corrupt", "compressed cluster");
        outcome.refused("copy", "Corrupt", "compressed cluster");
    }
}
