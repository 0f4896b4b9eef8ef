//! Images that QEMU's tools make by random steps.

use std::fs;
use std::path::Path;

use super::{Random, Scratch, attempt, qemu_img, shown};

/// The sorts of images that QEMU makes.
pub(crate) const VARIANTS: &[&str] = &[
    "cluster_size=64k",
    "compat=0.10",
    "cluster_size=512",
    "cluster_size=4k,refcount_bits=1",
    "cluster_size=4k,refcount_bits=2",
    "cluster_size=1k,refcount_bits=4",
    "cluster_size=16k,refcount_bits=8",
    "cluster_size=8k,refcount_bits=32",
    "cluster_size=2M,refcount_bits=64",
    "cluster_size=16k,extended_l2=on",
    "cluster_size=128k,extended_l2=on,compression_type=zstd",
    "cluster_size=32k,compression_type=zstd",
    "cluster_size=4k,lazy_refcounts=on",
    "cluster_size=4k,preallocation=metadata",
];

/// The size of the disks.
pub(crate) const SIZE: u64 = 3 << 20;

/// Makes an image by writes, zeroes, discards, packed writes, snapshots and
/// bitmaps, at random.
pub(crate) fn make(path: &Path, options: &str, random: &mut Random, steps: usize) {
    let path = shown(path);
    let size = SIZE.to_string();
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, &path, &size]);
    let snapshots = !options.contains("refcount_bits=1");
    for step in 0..steps {
        let mut arguments = vec!["-f".into(), "qcow2".into(), "-d".into(), "unmap".into()];
        for _ in 0..=random.below(12) {
            arguments.extend(["-c".into(), command(options, random)]);
        }
        arguments.push(path.clone());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // A packed write to a cluster that is there is refused, and the rest
        // goes on.
        attempt("qemu-io", &arguments);
        if snapshots && random.below(3) == 0 {
            // Narrow counts do not reach for many.
            attempt("qemu-img", &["snapshot", "-c", &format!("s{step}"), &path]);
        }
    }
    if snapshots && random.below(3) == 0 {
        attempt("qemu-img", &["snapshot", "-d", "s0", &path]);
    }
    if !options.contains("compat=0.10") && random.below(2) == 0 {
        qemu_img(&["bitmap", "--add", "-g", "64k", &path, "changes"]);
    }
}

fn command(options: &str, random: &mut Random) -> String {
    let cluster = cluster_size(options);
    let longest = (4 * cluster).clamp(16 << 10, 1 << 20);
    let offset = random.below(SIZE / 512) * 512;
    let length = (random.below(longest / 512) + 1) * 512;
    let length = length.min(SIZE - offset);
    let fill = random.byte();
    let whole = offset / cluster * cluster;
    match random.below(10) {
        0 => format!("write -z {offset} {length}"),
        1 => format!("write -z -u {offset} {length}"),
        2 | 3 => format!("discard {offset} {length}"),
        4 | 5 if whole + cluster <= SIZE => format!("write -c -P {fill} {whole} {cluster}"),
        _ => format!("write -P {fill} {offset} {length}"),
    }
}

pub(crate) fn cluster_size(options: &str) -> u64 {
    let text = options
        .split(',')
        .find_map(|option| option.strip_prefix("cluster_size="));
    match text {
        None => 64 << 10,
        Some(text) if text.ends_with('k') => {
            text.trim_end_matches('k').parse::<u64>().unwrap() << 10
        }
        Some(text) if text.ends_with('M') => {
            text.trim_end_matches('M').parse::<u64>().unwrap() << 20
        }
        Some(text) => text.parse().unwrap(),
    }
}

pub(crate) fn raw_by_qemu(path: &Path, scratch: &Scratch) -> Vec<u8> {
    let raw = scratch.file("raw");
    qemu_img(&[
        "convert",
        "-f",
        "qcow2",
        "-O",
        "raw",
        &shown(path),
        &shown(&raw),
    ]);
    let bytes = fs::read(&raw).unwrap();
    fs::remove_file(raw).unwrap();
    bytes
}

/// Without snapshots and bitmaps, which forbid it.
pub(crate) fn plain_image(path: &Path, options: &str, random: &mut Random) {
    make(path, options, random, 3);
    for snapshot in ["s0", "s1", "s2"] {
        attempt("qemu-img", &["snapshot", "-d", snapshot, &shown(path)]);
    }
    attempt("qemu-img", &["bitmap", "--remove", &shown(path), "changes"]);
    attempt("qemu-img", &["check", "-q", "-r", "all", &shown(path)]);
}
