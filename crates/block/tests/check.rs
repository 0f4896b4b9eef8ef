//! `check` against `qemu-img check`.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use disklet_block::device::{Extent, Extents, FileDevice, MemoryDevice, ReadAt, Shareable, Size};
use disklet_block::error::Result;
use disklet_block::qcow2::{Verdict, check, check_within};
use support::models::{VARIANTS, make};
use support::{QemuCheck, Random, Scratch, open, qemu_img, shown};

/// How much is tried; more with the long matrices.
fn rounds(usual: u64) -> u64 {
    match std::env::var_os("DISKLET_TEST_FULL") {
        Some(_) => 20 * usual,
        None => usual,
    }
}

fn agrees(path: &Path, what: &str) -> QemuCheck {
    let theirs = QemuCheck::of(path);
    let report = check(&open(path), "image").unwrap();
    assert_eq!(
        QemuCheck::from(&report),
        theirs,
        "{what}: {:?}",
        report.problems
    );
    theirs
}

#[test]
fn sound_images_have_the_same_numbers() {
    let scratch = Scratch::new("check-sound");
    for (number, options) in VARIANTS.iter().enumerate() {
        for seed in 0..rounds(2) {
            let mut random = Random::new(seed * 100 + number as u64);
            let path = scratch.file("x.qcow2");
            make(&path, options, &mut random, 4);
            let theirs = agrees(&path, options);
            // QEMU itself spoils images whose counts are too narrow.
            let narrow = options.contains("refcount_bits=2");
            assert!(narrow || theirs.verdict != Verdict::Corrupt, "{options}");
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn packed_images_have_the_same_numbers() {
    let scratch = Scratch::new("check-packed");
    let raw = scratch.file("raw");
    let text: Vec<u8> = (0..5_000_000u32)
        .map(|n| (n / 777).to_le_bytes()[0])
        .collect();
    fs::write(&raw, text).unwrap();
    for options in [
        "cluster_size=512",
        "cluster_size=64k",
        "cluster_size=2M,compression_type=zstd",
    ] {
        let path = scratch.file("x.qcow2");
        let (raw, target) = (shown(&raw), shown(&path));
        qemu_img(&["convert", "-c", "-O", "qcow2", "-o", options, &raw, &target]);
        assert!(agrees(&path, options).compressed > 0);
    }
}

/// Words in the tables are changed; both must come to the same verdict.
#[test]
fn broken_images_get_the_same_verdict() {
    let scratch = Scratch::new("check-broken");
    let mut seen = [0; 3];
    for (number, options) in VARIANTS.iter().enumerate() {
        let path = scratch.file("sound.qcow2");
        let mut random = Random::new(4000 + number as u64);
        make(&path, options, &mut random, 2);
        let sound = fs::read(&path).unwrap();
        let broken = scratch.file("broken.qcow2");
        for _ in 0..rounds(12) {
            let mut bytes = sound.clone();
            let change = break_a_table(&mut bytes, &mut random);
            fs::write(&broken, &bytes).unwrap();
            let theirs = QemuCheck::of(&broken).verdict;
            let ours = match check(&open(&broken), "image") {
                Ok(report) => report,
                Err(_) => {
                    assert_eq!(theirs, Verdict::Corrupt, "{options}: {change}");
                    continue;
                }
            };
            let what = format!("{options}: {change}: {:?}", ours.problems);
            assert_eq!(ours.verdict(), theirs, "{what}");
            seen[theirs as usize] += 1;
        }
        fs::remove_file(path).unwrap();
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// Changes a word of the L1 table, an L2 table, the refcount table or one of
/// its blocks.
fn break_a_table(bytes: &mut [u8], random: &mut Random) -> String {
    let word = |bytes: &[u8], at: usize| {
        let word: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
        u64::from_be_bytes(word)
    };
    let offset =
        |bytes: &[u8], at: usize| usize::try_from(word(bytes, at) & 0x00ff_ffff_ffff_fe00).unwrap();
    let cluster = 1usize << bytes[23];
    let (l1, refcounts) = (offset(bytes, 40), offset(bytes, 48));
    let (table, what) = match random.below(4) {
        1 if offset(bytes, l1) != 0 => (offset(bytes, l1), "L2"),
        0 | 1 => (l1, "L1"),
        2 => (refcounts, "refcount table"),
        _ => (offset(bytes, refcounts), "refcount block"),
    };
    let used: Vec<usize> = (table..table + cluster)
        .step_by(8)
        .filter(|at| word(bytes, *at) != 0)
        .collect();
    let at = match used.len() {
        0 => table,
        length if random.below(4) > 0 => used[random.index(length)],
        _ => table + random.index(cluster / 8) * 8,
    };
    let old = word(bytes, at);
    let new = match random.below(5) {
        0 => 0,
        1 => old ^ (1 << random.below(64)),
        2 => old.wrapping_add(cluster as u64),
        3 => random.next(),
        _ => old ^ (1 << 63),
    };
    bytes[at..at + 8].copy_from_slice(&new.to_be_bytes());
    format!("{what} at {at}: {old:#x} to {new:#x}")
}

/// Half for tables, half for a third of the counts that the image needs.
const LITTLE_MEMORY: usize = 290_000;

/// Looked at in parts, an image has the same problems, each of them once.
#[test]
fn little_memory_finds_the_same() {
    let scratch = Scratch::new("check-parts");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    for (number, options) in ["cluster_size=1k", "cluster_size=1k,refcount_bits=2"]
        .into_iter()
        .enumerate()
    {
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, &target, "96M"]);
        let write = |command: &str| {
            support::run("qemu-io", &["-f", "qcow2", "-c", command, &target]);
        };
        write("write -P 5 0 70M");
        qemu_img(&["snapshot", "-c", "before", &target]);
        write("write -P 6 20M 40M");
        let sound = fs::read(&path).unwrap();
        assert!(sound.len() / 1024 * 3 > LITTLE_MEMORY);
        let mut random = Random::new(70 + number as u64);
        for round in 0..rounds(10) {
            let mut bytes = sound.clone();
            for _ in 0..round.min(3) {
                break_a_table(&mut bytes, &mut random);
            }
            let file = MemoryDevice::new(bytes);
            let in_parts = check_within(&file, "image", LITTLE_MEMORY).map_err(|e| e.kind());
            let at_once = check(&file, "image").map_err(|e| e.kind());
            assert_eq!(in_parts, at_once, "{options} {round}");
        }
    }
}

/// Counts how often it is asked for an extent.
struct Asked(FileDevice, AtomicU64);

impl Size for Asked {
    fn size(&self) -> Result<u64> {
        self.0.size()
    }
}

impl ReadAt for Asked {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buffer, offset)
    }
}

impl Extents for Asked {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.extent_at(offset)
    }
}

impl Shareable for Asked {
    fn shareable_file(&self) -> Option<&fs::File> {
        None
    }
}

/// On a tmpfs each question takes as long as the data that follows.
#[test]
fn holes_are_not_looked_for_again_and_again() {
    let scratch = Scratch::new("check-holes");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    let options = "cluster_size=512";
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, &target, "32M"]);
    let write = ["-f", "qcow2", "-c", "write -P 5 0 32M", &target];
    support::run("qemu-io", &write);
    let file = open(&path);
    let (mut extents, mut at) = (0, 0);
    while at < file.size().unwrap() {
        at += file.extent_at(at).unwrap().length;
        extents += 1;
    }
    let asked = Asked(file, AtomicU64::new(0));
    assert_eq!(check(&asked, "image").unwrap().verdict(), Verdict::Clean);
    // There are a thousand tables.
    assert_eq!(asked.1.into_inner(), extents);
    assert!(extents < 500, "{extents}");
}

#[test]
fn memory_has_a_limit() {
    let scratch = Scratch::new("check-limit");
    let path = scratch.file("x.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &shown(&path), "1G"]);
    let error = check_within(&open(&path), "image", 1000).unwrap_err();
    assert_eq!(error.kind(), disklet_block::error::ErrorKind::Limit);
}
