//! Random steps by QEMU, read here: what QEMU reads is what counts.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;
use std::path::Path;

use disklet_block::device::{Extents, ReadAt, Size};
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image};
use support::models::{VARIANTS, make};
use support::{Random, Scratch, attempt, open, shown};

#[test]
fn disks_that_qemu_wrote_read_the_same_here() {
    let scratch = Scratch::new("models");
    let (path, raw) = (scratch.file("image"), scratch.file("raw"));
    let rounds = match std::env::var_os("DISKLET_TEST_FULL") {
        Some(_) => 20,
        None => 1,
    };
    for (number, options) in VARIANTS.iter().enumerate() {
        for round in 0..rounds {
            let mut random = Random::new(500 + round * 100 + number as u64);
            make(&path, options, &mut random, 5);
            let image = Image::open(open(&path), Format::Qcow2, &NoImplicitFiles).unwrap();
            if !convert(&path, &raw) {
                // QEMU now and then spoils an image: it puts data where a
                // packed cluster is. What it cannot read is not read here.
                let mut bytes = vec![0; usize::try_from(image.size().unwrap()).unwrap()];
                image.read_at(&mut bytes, 0).unwrap_err();
                continue;
            }
            let expected = fs::read(&raw).unwrap();
            assert_eq!(image.size().unwrap(), expected.len() as u64);
            reads_the_same(&image, &expected, options);
            reads_pieces(&image, &expected, &mut random, options);
        }
    }
}

fn convert(path: &Path, raw: &Path) -> bool {
    let arguments = [
        "convert",
        "-f",
        "qcow2",
        "-O",
        "raw",
        &shown(path),
        &shown(raw),
    ];
    attempt("qemu-img", &arguments).status.success()
}

fn reads_the_same(image: &Image, expected: &[u8], what: &str) {
    let mut bytes = vec![0xaa; expected.len()];
    image.read_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected, "{what}");
    let mut at = 0;
    while at < expected.len() {
        let extent = image.extent_at(at as u64).unwrap();
        let end = at + usize::try_from(extent.length).unwrap();
        let zero = expected[at..end].iter().all(|byte| *byte == 0);
        assert!(!extent.zero || zero, "{what} at {at}");
        at = end;
    }
}

fn reads_pieces(image: &Image, expected: &[u8], random: &mut Random, what: &str) {
    for _ in 0..200 {
        let start = random.index(expected.len());
        let length = random.index(70_000).min(expected.len() - start);
        let mut piece = vec![0xaa; length];
        image.read_at(&mut piece, start as u64).unwrap();
        assert!(piece == expected[start..start + length], "{what} {start}");
    }
}
