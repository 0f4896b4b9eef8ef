//! Clones where blocks cannot be shared, and new raw disks.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use disklet_block::convert::Unwatched;
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image};
use disklet_block::ops::{Way, clone, create_raw};
use disklet_block::qcow2::Preallocation;
use support::{Scratch, open, open_writable};

/// Data at both ends and a long hole between.
fn sparse_disk(path: &std::path::Path) {
    let file = File::create_new(path).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&[7; 100_000], 4096).unwrap();
    file.write_all_at(&[9; 4096], (64 << 20) - 4096).unwrap();
}

#[test]
fn a_clone_on_any_filesystem_has_the_same_bytes_and_holes() {
    let scratch = Scratch::new("clone");
    let (source, target) = (scratch.file("disk"), scratch.file("clone"));
    sparse_disk(&source);
    File::create_new(&target).unwrap();
    let image = Image::open(open(&source), Format::Raw, &NoImplicitFiles).unwrap();
    let cloned = clone(&image, &open_writable(&target), 2, &Unwatched).unwrap();
    assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap());
    let on_disk = fs::metadata(&target).unwrap().blocks() * 512;
    assert!(on_disk < 1 << 20, "{on_disk} bytes are taken");
    // Where the tests run may share blocks or not; what is said must fit.
    let shares = cloned.report.shared > 0;
    assert_eq!(shares, cloned.way != Way::Copied);
    assert!(shares || cloned.report.written >= 100_000 + 4096);
}

#[test]
fn a_shorter_disk_leaves_nothing_of_what_was_there() {
    let scratch = Scratch::new("clone-over");
    let (source, target) = (scratch.file("disk"), scratch.file("clone"));
    fs::write(&source, [0; 8192]).unwrap();
    fs::write(&target, [0xee; 100_000]).unwrap();
    let image = Image::open(open(&source), Format::Raw, &NoImplicitFiles).unwrap();
    clone(&image, &open_writable(&target), 1, &Unwatched).unwrap();
    assert_eq!(fs::read(&target).unwrap(), [0; 8192]);
}

#[test]
fn raw_disks_take_the_space_they_are_told_to() {
    let scratch = Scratch::new("raw");
    for (mode, takes) in [
        (Preallocation::Off, false),
        (Preallocation::Falloc, true),
        (Preallocation::Full, true),
    ] {
        for size in [0, 512, (3 << 20) + 512] {
            let path = scratch.file(&format!("{}-{size}", mode.name()));
            File::create_new(&path).unwrap();
            create_raw(&open_writable(&path), size, mode).unwrap();
            let meta = fs::metadata(&path).unwrap();
            assert_eq!(meta.len(), size, "{mode:?}");
            assert_eq!(meta.blocks() * 512 >= size, takes || size == 0, "{mode:?}");
            let bytes = fs::read(&path).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "{mode:?}");
        }
    }
    let path = scratch.file("metadata");
    File::create_new(&path).unwrap();
    create_raw(&open_writable(&path), 512, Preallocation::Metadata).unwrap_err();
}
