//! Against images that QEMU's own tools make.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::convert::{Packing, Unwatched, to_qcow2};
use crate::device::{Caching, Extents, FileDevice, ReadAt, Size};
use crate::gate::NoImplicitFiles;
use crate::image::{Format, Image};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("disklet-qcow2-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program)
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

fn sample(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 5 << 20];
    let mut state = 1u32;
    for (index, chunk) in bytes.chunks_mut(4096).enumerate() {
        // Holes, text and noise by turns.
        match index % 7 {
            0..=2 => {}
            3..=4 => chunk.fill(u8::try_from(index % 251).unwrap()),
            _ => chunk.iter_mut().for_each(|byte| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = state.to_be_bytes()[0];
            }),
        }
    }
    bytes.extend_from_slice(&[7; 512]);
    std::fs::write(path, &bytes).unwrap();
    bytes
}

fn open(path: &Path) -> Qcow2 {
    let file = FileDevice::open(path, Caching::Buffered).unwrap();
    let header = Qcow2::read_header(&file, "image").unwrap();
    Qcow2::assemble(header, "image", Arc::new(file), None, None).unwrap()
}

fn contents(image: &Qcow2) -> Vec<u8> {
    let mut bytes = vec![0xaa; usize::try_from(image.size().unwrap()).unwrap()];
    image.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn images_of_qemu_read_back_as_what_went_in() {
    let scratch = Scratch::new("read");
    let raw = scratch.file("raw");
    let bytes = sample(&raw);
    let raw = raw.display().to_string();
    let variants: [&[&str]; 8] = [
        &[],
        &["-o", "compat=0.10"],
        &["-o", "cluster_size=512"],
        &["-o", "cluster_size=2M,refcount_bits=64"],
        &["-o", "extended_l2=on,cluster_size=128k"],
        &["-c"],
        &["-c", "-o", "compression_type=zstd"],
        &["-c", "-o", "cluster_size=4k,refcount_bits=1"],
    ];
    for (number, options) in variants.iter().enumerate() {
        let path = scratch.file(&format!("{number}.qcow2"));
        let target = path.display().to_string();
        let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2"];
        arguments.extend_from_slice(options);
        arguments.extend([raw.as_str(), target.as_str()]);
        run("qemu-img", &arguments);
        let image = open(&path);
        assert!(contents(&image) == bytes, "{options:?}");
        let mut at = 0;
        while at < bytes.len() as u64 {
            let extent = image.extent_at(at).unwrap();
            let end = usize::try_from(at + extent.length).unwrap();
            let piece = &bytes[usize::try_from(at).unwrap()..end];
            assert!(
                !extent.zero || piece.iter().all(|byte| *byte == 0),
                "{options:?} at {at}"
            );
            at += extent.length;
        }
    }
}

#[test]
fn small_reads_at_odd_offsets_agree() {
    let scratch = Scratch::new("odd");
    let raw = scratch.file("raw");
    let bytes = sample(&raw);
    let path = scratch.file("x.qcow2");
    let (raw, target) = (raw.display().to_string(), path.display().to_string());
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", "-c", &raw, &target],
    );
    let image = open(&path);
    for start in (0..bytes.len() - 9000).step_by(77_777) {
        let mut buffer = [0; 9000];
        image.read_at(&mut buffer, start as u64).unwrap();
        assert!(buffer == bytes[start..start + 9000], "at {start}");
    }
}

#[test]
fn snapshots_are_listed() {
    let scratch = Scratch::new("snapshots");
    let path = scratch.file("x.qcow2");
    let target = path.display().to_string();
    run("qemu-img", &["create", "-q", "-f", "qcow2", &target, "1M"]);
    run("qemu-img", &["snapshot", "-c", "before", &target]);
    run("qemu-img", &["bitmap", "--add", &target, "changes"]);
    let image = open(&path);
    let snapshots = image.snapshots().unwrap();
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0].name, "before");
    assert_eq!(snapshots[0].disk_size, 1 << 20);
    let bitmaps = image.bitmaps().unwrap();
    assert_eq!(bitmaps[0].name, "changes");
    assert_eq!(bitmaps[0].granularity, 65536);
}

fn qemu_agrees(path: &Path) {
    let path = path.display().to_string();
    run("qemu-img", &["check", "-q", "-f", "qcow2", &path]);
}

fn new_file(path: &Path) -> FileDevice {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap();
    FileDevice::new(file, "new", Caching::Direct).unwrap()
}

#[test]
fn empty_images_of_many_sizes_please_qemu() {
    let scratch = Scratch::new("empty");
    let sizes = [0, 512, 1 << 20, (5 << 30) + 512, 1 << 40, 2 << 50];
    for (number, size) in sizes.into_iter().enumerate() {
        for bits in [9, 12, 16, 21] {
            let path = scratch.file(&format!("{number}-{bits}.qcow2"));
            let spec = NewImage {
                cluster: ClusterSize::from_bits(bits).unwrap(),
                ..NewImage::of_size(size)
            };
            match Writer::new(&new_file(&path), &spec) {
                Ok(writer) => writer.finish().unwrap(),
                Err(error) => {
                    assert!(size > 1 << 36 && bits < 16, "{error}");
                    continue;
                }
            };
            qemu_agrees(&path);
            assert_eq!(open(&path).size().unwrap(), size);
        }
    }
}

#[test]
fn written_clusters_read_back_here_and_by_qemu() {
    let scratch = Scratch::new("written");
    let raw = scratch.file("raw");
    let bytes = sample(&raw);
    for bits in [9, 16, 20] {
        let path = scratch.file(&format!("{bits}.qcow2"));
        let spec = NewImage {
            cluster: ClusterSize::from_bits(bits).unwrap(),
            ..NewImage::of_size(bytes.len() as u64)
        };
        let file = new_file(&path);
        let mut writer = Writer::new(&file, &spec).unwrap();
        for (index, cluster) in bytes.chunks(spec.cluster.buffer_len()).enumerate() {
            let guest = GuestOffset(index as u64 * spec.cluster.bytes());
            if cluster.iter().any(|byte| *byte != 0) {
                writer.put_data(guest, cluster).unwrap();
            } else if index % 2 == 0 {
                writer.put_zero(guest).unwrap();
            }
        }
        writer.finish().unwrap();
        qemu_agrees(&path);
        assert!(contents(&open(&path)) == bytes, "{bits}");
        let (raw, path) = (raw.display().to_string(), path.display().to_string());
        run(
            "qemu-img",
            &["compare", "-q", "-f", "raw", "-F", "qcow2", &raw, &path],
        );
    }
}

#[test]
fn disks_are_packed_into_images_that_qemu_reads() {
    let scratch = Scratch::new("packed");
    let raw = scratch.file("raw");
    let bytes = sample(&raw);
    let source = || {
        let file = FileDevice::open(&raw, Caching::Buffered).unwrap();
        Image::open(file, Format::Raw, &NoImplicitFiles).unwrap()
    };
    let mut number = 0;
    for compression in [Compression::Zlib, Compression::Zstd] {
        for packing in [Packing::Plain, Packing::Packed] {
            for bits in [9, 12, 16, 21] {
                number += 1;
                let path = scratch.file(&format!("{number}.qcow2"));
                let spec = NewImage {
                    cluster: ClusterSize::from_bits(bits).unwrap(),
                    compression,
                    ..NewImage::of_size(bytes.len() as u64)
                };
                let report =
                    to_qcow2(&source(), &new_file(&path), &spec, packing, 3, &Unwatched).unwrap();
                assert_eq!(report.written + report.zero, bytes.len() as u64);
                qemu_agrees(&path);
                assert!(contents(&open(&path)) == bytes, "{spec:?}");
                let (raw, path) = (raw.display().to_string(), path.display().to_string());
                run(
                    "qemu-img",
                    &["compare", "-q", "-f", "raw", "-F", "qcow2", &raw, &path],
                );
            }
        }
    }
}
