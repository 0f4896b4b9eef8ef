//! Images made here, as the disks of a guest: it reads what was put into them
//! and writes more, and afterwards everything is where it belongs.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "real_guest_writes/disk.rs"]
mod disk;
mod support;

use std::fs;
use std::path::Path;

use disk::{Disk, SECTOR};
use disklet_block::convert::Packing;
use disklet_block::image::Format;
use disklet_block::qcow2::{
    Backing, Beyond, ClusterSize, Compression, NewImage, Preallocation, ResizeOptions, Verdict,
    check, create, resize,
};
use support::guest::Guest;
use support::ours::{contents, converted, new_file};
use support::{QemuCheck, Random, Scratch, open, open_writable, qemu_img, shown};

/// The last cluster is not a whole one.
const SIZE: u64 = (6 << 20) + 3 * 512;

fn spec(bits: u32, compression: Compression) -> NewImage {
    NewImage {
        cluster: ClusterSize::from_bits(bits).unwrap(),
        compression,
        ..NewImage::of_size(SIZE)
    }
}

/// Where images are made.
struct Maker<'s> {
    scratch: &'s Scratch,
    random: Random,
}

impl Maker<'_> {
    fn disk(&self, name: &'static str, spec: &NewImage, bytes: Vec<u8>) -> Disk {
        Disk {
            name,
            image: self.scratch.file(name),
            cluster: spec.cluster.buffer_len() / SECTOR,
            bytes,
        }
    }

    fn created(&self, name: &'static str, spec: &NewImage, mode: Preallocation) -> Disk {
        create(&new_file(&self.scratch.file(name)), spec, mode).unwrap();
        self.disk(name, spec, vec![0; usize::try_from(spec.size).unwrap()])
    }

    fn converted(&mut self, name: &'static str, spec: &NewImage, packing: Packing) -> Disk {
        let bytes = support::ours::disk(spec.size, &mut self.random);
        converted(&self.scratch.file(name), &bytes, spec, packing);
        self.disk(name, spec, bytes)
    }

    /// Nothing of its own yet; somewhat larger than the disk below.
    fn overlay(&self, name: &'static str, base: &Disk) -> Disk {
        let spec = NewImage {
            size: SIZE + (1 << 20),
            backing: Some(Backing {
                file: base.name.to_owned(),
                format: Format::Qcow2,
            }),
            ..NewImage::of_size(0)
        };
        let mut disk = self.created(name, &spec, Preallocation::Off);
        disk.bytes[..base.bytes.len()].copy_from_slice(&base.bytes);
        disk
    }

    /// Smaller, then larger than ever; with clusters so small that the tables
    /// have to move.
    fn resized(&mut self, name: &'static str) -> Disk {
        let mut disk = self.converted(name, &spec(9, Compression::Zlib), Packing::Plain);
        for size in [SIZE / 2 / 512 * 512, 2 * SIZE] {
            let options = ResizeOptions {
                beyond: Beyond::Lose,
                backing_size: None,
            };
            resize(&open_writable(&disk.image), name, size, &options).unwrap();
            disk.bytes.resize(usize::try_from(size).unwrap(), 0);
        }
        disk
    }

    fn all(&mut self, bases: &[Disk]) -> Vec<Disk> {
        let usual = NewImage::of_size(SIZE);
        let zstd = spec(16, Compression::Zstd);
        vec![
            self.created("new", &usual, Preallocation::Off),
            self.created("reserved", &usual, Preallocation::Metadata),
            self.converted("plain", &usual, Packing::Plain),
            self.converted("small", &spec(12, Compression::Zlib), Packing::Plain),
            self.converted("zlib", &usual, Packing::Packed),
            self.converted("zstd", &zstd, Packing::Packed),
            self.overlay("over-zlib", &bases[0]),
            self.overlay("over-zstd", &bases[1]),
            self.resized("resized"),
        ]
    }

    fn bases(&mut self) -> Vec<Disk> {
        let each = [
            ("base-zlib", Compression::Zlib),
            ("base-zstd", Compression::Zstd),
        ];
        each.map(|(name, compression)| {
            self.converted(name, &spec(16, compression), Packing::Packed)
        })
        .into()
    }
}

#[test]
#[ignore = "needs QEMU and a kernel: script/test"]
fn a_guest_reads_and_writes_images_made_here() {
    let scratch = Scratch::new("guest-writes");
    let mut maker = Maker {
        scratch: &scratch,
        random: Random::new(11),
    };
    let bases = maker.bases();
    let before: Vec<Vec<u8>> = bases.iter().map(|base| read(&base.image)).collect();
    let mut disks = maker.all(&bases);

    let (guest, expected) = guest(&mut disks, &mut maker.random);
    let console = guest.console(scratch.path());
    assert!(!console.contains("FAILED"), "{console}");
    for line in expected {
        assert!(
            console.lines().any(|told| told == line),
            "{line}\n{console}"
        );
    }
    for disk in &disks {
        is_sound(disk, &scratch);
    }
    for (base, before) in bases.iter().zip(before) {
        assert!(read(&base.image) == before, "{} has changed", base.name);
    }
}

/// A guest with these disks, and the lines that it must print. What it writes
/// is written to the disks' models.
fn guest(disks: &mut [Disk], random: &mut Random) -> (Guest, Vec<String>) {
    let mut pattern = vec![0; 1 << 20];
    random.fill(&mut pattern);
    let mut script = include_str!("real_guest_writes/functions.sh").to_owned();
    let mut expected = Vec::new();
    let mut devices = Vec::new();
    script.push_str("wait_for vda vdb vdc vdd vde vdf vdg vdh vdi\n");
    for disk in &mut *disks {
        let (name, image) = (disk.name, disk.image.display());
        devices.extend([
            "-drive".to_owned(),
            // A cluster that becomes zeroes is given back.
            format!(
                "if=none,id={name},format=qcow2,file={image},discard=unmap,detect-zeroes=unmap"
            ),
            "-device".to_owned(),
            format!("virtio-blk-pci,drive={name},serial={name}"),
        ]);
        expected.extend(disk.tell("before", &mut script));
    }
    for disk in &mut *disks {
        disk.put(&pattern, random, &mut script);
    }
    script.push_str("sync\necho 3 >/proc/sys/vm/drop_caches\n");
    for disk in &*disks {
        expected.extend(disk.tell("after", &mut script));
    }
    let files = vec![("pattern".to_owned(), pattern)];
    let guest = Guest {
        script,
        files,
        devices,
    };
    (guest, expected)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

/// To our reader, to our check, and to QEMU's tools.
fn is_sound(disk: &Disk, scratch: &Scratch) {
    let name = disk.name;
    assert!(contents(&disk.image, Format::Qcow2) == disk.bytes, "{name}");
    let report = check(&open(&disk.image), name).unwrap();
    assert_eq!(report.verdict(), Verdict::Clean, "{name}: {report:?}");
    assert_eq!(QemuCheck::of(&disk.image).verdict, Verdict::Clean, "{name}");
    let raw = scratch.file("model.raw");
    fs::write(&raw, &disk.bytes).unwrap();
    let compare = ["compare", "-q", "-f", "raw", "-F", "qcow2"];
    qemu_img(&[&compare[..], &[&shown(&raw), &shown(&disk.image)]].concat());
}
