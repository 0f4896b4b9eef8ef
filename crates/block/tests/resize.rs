//! Sizes changed here, judged by QEMU's tools.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disklet_block::device::{MemoryDevice, Request};
use disklet_block::error::ErrorKind;
use disklet_block::qcow2::{Beyond, ResizeOptions, Verdict, resize};
use support::models::{VARIANTS, plain_image, raw_by_qemu};
use support::{QemuCheck, Random, Scratch, open_writable, qemu_img, shown};

const LOSE: ResizeOptions = ResizeOptions {
    beyond: Beyond::Lose,
    backing_size: None,
};
const KEEP: ResizeOptions = ResizeOptions {
    beyond: Beyond::Keep,
    backing_size: None,
};

fn resized(mut bytes: Vec<u8>, size: u64) -> Vec<u8> {
    bytes.resize(usize::try_from(size).unwrap(), 0);
    bytes
}

#[test]
fn any_size_is_what_qemu_finds_sound() {
    let scratch = Scratch::new("resize-any");
    for (number, options) in VARIANTS.iter().enumerate() {
        let mut random = Random::new(7 + number as u64);
        let path = scratch.file("x.qcow2");
        plain_image(&path, options, &mut random);
        let mut expected = raw_by_qemu(&path, &scratch);
        let sizes = [
            3 << 20,
            20 << 20,
            (1 << 20) + 512,
            2 << 20,
            0,
            9 << 20,
            512,
            24 << 20,
        ];
        for size in sizes {
            let file = open_writable(&path);
            let before = resize(&file, "image", size, &LOSE).unwrap();
            assert_eq!(before, expected.len() as u64);
            expected = resized(expected, size);
            let judged = QemuCheck::of(&path);
            assert_eq!(
                judged.verdict,
                Verdict::Clean,
                "{options} {size}: {judged:?}"
            );
            assert!(raw_by_qemu(&path, &scratch) == expected, "{options} {size}");
        }
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_becomes_smaller_with_its_disk() {
    let scratch = Scratch::new("resize-smaller");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    qemu_img(&["create", "-q", "-f", "qcow2", &target, "16M"]);
    support::run(
        "qemu-io",
        &["-f", "qcow2", "-c", "write -P 5 0 16M", &target],
    );
    let refused = resize(&open_writable(&path), "image", 1 << 20, &KEEP).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("would be lost"), "{refused}");
    resize(&open_writable(&path), "image", 1 << 20, &LOSE).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 3 << 20);
    resize(&open_writable(&path), "image", 1 << 30, &KEEP).unwrap();
    resize(&open_writable(&path), "image", 2 << 20, &KEEP).unwrap();
    assert_eq!(QemuCheck::of(&path).verdict, Verdict::Clean);
}

/// Clusters that lie side by side are given back together.
#[test]
fn a_large_shrink_takes_few_discards() {
    let scratch = Scratch::new("resize-discards");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    let create = ["create", "-q", "-f", "qcow2", "-o", "cluster_size=4k"];
    qemu_img(&[&create[..], &[&target, "64M"]].concat());
    let write = ["-f", "qcow2", "-c", "write -P 5 0 64M", &target];
    support::run("qemu-io", &write);
    let device = MemoryDevice::new(fs::read(&path).unwrap());
    let discards = Arc::new(AtomicU64::new(0));
    let seen = discards.clone();
    device.set_rule(move |_, request| {
        if matches!(request, Request::Discard(..)) {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    resize(&device, "image", 1 << 20, &LOSE).unwrap();
    // Of 16 thousand clusters.
    let discards = discards.load(Ordering::Relaxed);
    assert!((1..200).contains(&discards), "{discards}");
    fs::write(&path, device.contents()).unwrap();
    assert_eq!(QemuCheck::of(&path).verdict, Verdict::Clean);
}

#[test]
fn what_cannot_be_resized_is_told_with_the_remedy() {
    let scratch = Scratch::new("resize-refused");
    let path = scratch.file("x.qcow2");
    let (target, data) = (shown(&path), shown(&scratch.file("data")));
    let refused = |what: &str, remedy: &str| {
        let error = resize(&open_writable(&path), "image", 2 << 20, &KEEP).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let told = error.to_string();
        assert!(told.contains(what) && told.contains(remedy), "{told}");
    };
    qemu_img(&["create", "-q", "-f", "qcow2", &target, "1M"]);
    qemu_img(&["bitmap", "--add", &target, "changes"]);
    refused("bitmaps", "qemu-img bitmap --remove");
    let option = format!("data_file={data}");
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", &option, &target, "1M"]);
    refused("data in another file", "qemu-img resize");
}

#[test]
fn disks_with_snapshots_grow_and_do_not_shrink() {
    let scratch = Scratch::new("resize-snapshots");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    for (options, grows) in [("cluster_size=512", true), ("compat=0.10", false)] {
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, &target, "1M"]);
        support::run(
            "qemu-io",
            &["-f", "qcow2", "-c", "write -P 5 0 1M", &target],
        );
        qemu_img(&["snapshot", "-c", "before", &target]);
        let grown = resize(&open_writable(&path), "image", 64 << 20, &KEEP);
        assert_eq!(grown.is_ok(), grows, "{options}");
        let shrunk = resize(&open_writable(&path), "image", 1 << 19, &LOSE).unwrap_err();
        assert_eq!(shrunk.kind(), ErrorKind::Unsupported);
        assert_eq!(QemuCheck::of(&path).verdict, Verdict::Clean);
    }
}

#[test]
fn feature_bits_are_treated_as_qemu_treats_them() {
    let scratch = Scratch::new("resize-bits");
    let path = scratch.file("x.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &shown(&path), "1M"]);
    let sound = fs::read(&path).unwrap();
    let with = |at: usize, bits: u8| {
        let mut bytes = sound.clone();
        bytes[at] |= bits;
        MemoryDevice::new(bytes)
    };
    let corrupt = with(79, 2);
    let refused = resize(&corrupt, "image", 2 << 20, &KEEP).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert_eq!(corrupt.unflushed(), 0);
    // Not closed, but its counts are right.
    let dirty = with(79, 1);
    resize(&dirty, "image", 2 << 20, &KEEP).unwrap();
    assert_eq!(dirty.contents()[79], 0);
    // A feature that a writer who does not know it must clear.
    let unknown = with(90, 0x40);
    resize(&unknown, "image", 2 << 20, &KEEP).unwrap();
    assert_eq!(unknown.contents()[88..96], [0; 8]);
}

#[test]
fn an_overlay_does_not_uncover_the_end_of_a_larger_disk() {
    let scratch = Scratch::new("resize-overlay");
    let (base, path) = (scratch.file("base"), scratch.file("x.qcow2"));
    fs::write(&base, vec![7; 2 << 20]).unwrap();
    let arguments = [
        "create",
        "-q",
        "-f",
        "qcow2",
        "-b",
        &shown(&base),
        "-F",
        "raw",
    ];
    qemu_img(&[&arguments[..], &[&shown(&path), "1M"]].concat());
    let grown = |backing_size| {
        let options = ResizeOptions {
            backing_size,
            ..KEEP
        };
        resize(&open_writable(&path), "image", 4 << 20, &options)
    };
    assert_eq!(grown(None).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        grown(Some(2 << 20)).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    grown(Some(1 << 20)).unwrap();
    assert_eq!(QemuCheck::of(&path).verdict, Verdict::Clean);
}
