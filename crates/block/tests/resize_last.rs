//! The last cluster of a disk that ends within it: what it holds beyond the
//! end never comes to light, whoever else uses the cluster.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;
use std::path::Path;

use disklet_block::qcow2::{Beyond, ResizeOptions, Verdict, resize};
use support::{QemuCheck, Scratch, attempt, open_writable, qemu_img, shown};

const LOSE: ResizeOptions = ResizeOptions {
    beyond: Beyond::Lose,
    backing_size: None,
};
/// Ends within a cluster, whatever the size of clusters.
const SHORT: u64 = (512 << 10) + 512;
const FULL: u64 = 1 << 20;
const GROWN: u64 = 3 << 20;

const VARIANTS: &[&str] = &[
    "cluster_size=64k",
    "compat=0.10",
    "cluster_size=4k",
    "cluster_size=16k,extended_l2=on",
    "cluster_size=2M,compression_type=zstd",
    "cluster_size=32k,refcount_bits=64,compression_type=zstd",
];

/// A disk of 1 MiB without a zero, and the same as a raw file.
fn full_image(scratch: &Scratch, options: &str, packed: bool) {
    let (raw, image) = (scratch.file("raw"), scratch.file("x.qcow2"));
    let bytes: Vec<u8> = (0..FULL)
        .map(|n| u8::try_from(n / 3 % 250 + 1).unwrap())
        .collect();
    fs::write(&raw, bytes).unwrap();
    let (raw, image) = (shown(&raw), shown(&image));
    let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2", "-o", options];
    arguments.extend(packed.then_some("-c"));
    arguments.extend([raw.as_str(), image.as_str()]);
    qemu_img(&arguments);
}

fn resize_both(scratch: &Scratch, size: u64) {
    let image = open_writable(&scratch.file("x.qcow2"));
    resize(&image, "image", size, &LOSE).unwrap();
    let raw = fs::OpenOptions::new().write(true).open(scratch.file("raw"));
    raw.unwrap().set_len(size).unwrap();
}

fn write_both(scratch: &Scratch) {
    for (format, file) in [("qcow2", "x.qcow2"), ("raw", "raw")] {
        let path = shown(&scratch.file(file));
        support::run("qemu-io", &["-f", format, "-c", "write -P 1 0 512", &path]);
    }
}

fn is_the_same(image: &Path, raw: &Path, what: &str) {
    let judged = QemuCheck::of(image);
    assert_eq!(judged.verdict, Verdict::Clean, "{what}: {judged:?}");
    let (image, raw) = (shown(image), shown(raw));
    let arguments = ["compare", "-f", "qcow2", "-F", "raw", &image, &raw];
    let output = attempt("qemu-img", &arguments);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {told}");
    assert!(!told.contains("size"), "{what}: {told}");
}

#[test]
fn old_bytes_of_a_packed_cluster_stay_hidden() {
    let scratch = Scratch::new("last-packed");
    let (image, raw) = (scratch.file("x.qcow2"), scratch.file("raw"));
    for options in VARIANTS {
        for packed in [true, false] {
            full_image(&scratch, options, packed);
            let what = format!("{options}, packed {packed}");
            // Compared after each, so that a growth finds what the one before
            // has left.
            for size in [SHORT, GROWN, SHORT - 1024, FULL] {
                resize_both(&scratch, size);
                is_the_same(&image, &raw, &format!("{what} to {size}"));
            }
        }
    }
}

#[test]
fn old_bytes_of_a_cluster_that_a_snapshot_shares_stay_hidden() {
    let scratch = Scratch::new("last-shared");
    let (image, raw) = (scratch.file("x.qcow2"), scratch.file("raw"));
    let target = shown(&image);
    for options in VARIANTS
        .iter()
        .filter(|options| !options.contains("compat"))
    {
        for packed in [true, false] {
            // The table is the snapshot's too, or it has become the disk's own
            // by a write elsewhere.
            for own_table in [true, false] {
                let what = format!("{options}, packed {packed}, own table {own_table}");
                full_image(&scratch, options, packed);
                resize_both(&scratch, SHORT);
                qemu_img(&["snapshot", "-c", "before", &target]);
                let before = scratch.file("before");
                fs::copy(&raw, &before).unwrap();
                if own_table {
                    write_both(&scratch);
                }
                resize_both(&scratch, GROWN);
                is_the_same(&image, &raw, &what);
                qemu_img(&["snapshot", "-a", "before", &target]);
                is_the_same(&image, &before, &format!("{what}, the snapshot"));
            }
        }
    }
}
