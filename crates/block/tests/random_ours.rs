//! Random images made here, judged by QEMU's tools.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;

use disklet_block::image::Format;
use disklet_block::qcow2::{Compression, Verdict, check};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use support::ours::{contents, random_image};
use support::{QemuCheck, Random, Scratch, open, qemu_img, shown};

#[test]
fn what_is_written_here_is_what_qemu_reads() {
    let default = ProptestConfig::default();
    // Each case runs QEMU's tools twice.
    let cases = (default.cases / 12).max(40);
    TestRunner::new(ProptestConfig { cases, ..default })
        .run(&any::<u32>(), |seed| {
            let scratch = Scratch::new("random-ours");
            let path = scratch.file("image");
            let mut random = Random::new(seed.into());
            let bytes = random_image(&path, &[Compression::Zlib, Compression::Zstd], &mut random);
            let judged = QemuCheck::of(&path);
            assert_eq!(judged.verdict, Verdict::Clean, "{judged:?}");
            assert_eq!(
                QemuCheck::from(&check(&open(&path), "image").unwrap()),
                judged
            );
            assert!(contents(&path, Format::Qcow2) == bytes, "our reader");
            let raw = scratch.file("raw");
            fs::write(&raw, bytes).unwrap();
            let compare = ["compare", "-q", "-f", "raw", "-F", "qcow2"];
            qemu_img(&[&compare[..], &[&shown(&raw), &shown(&path)]].concat());
            Ok(())
        })
        .unwrap();
}
