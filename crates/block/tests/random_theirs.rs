//! Random images by QEMU's tools, read here. What their disks must be is kept
//! by the test itself.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;

use disklet_block::convert::{Before, Options, Unwatched, to_raw};
use disklet_block::device::{Extents, MemoryDevice, ReadAt, Size};
use disklet_block::image::{Format, Image};
use disklet_block::qcow2::check;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use support::ours::{self, opened};
use support::steps::{Fill, Patterns, Step, Unmap, Written};
use support::{QemuCheck, Random, Scratch, open, qemu_img, shown};

/// What an image is like.
#[derive(Debug, Clone)]
struct Shape {
    cluster: usize,
    options: String,
    version: u32,
    /// Narrow counts do not reach for snapshots.
    snapshots: bool,
    size: u64,
    below: Option<Below>,
}

#[derive(Debug, Clone, Copy)]
struct Below {
    format: Format,
    size: u64,
}

/// A run of `qemu-io`, and what `qemu-img` does after it.
#[derive(Debug, Clone)]
struct Round {
    steps: Vec<Step>,
    then: Then,
}

#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    Snapshot,
    /// Goes back to the last snapshot, if there is one.
    Revert,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let features = (9u32..=21, 0u32..=6, any::<bool>(), any::<bool>(), 0u32..5);
    let below = prop_oneof![
        1 => Just(None),
        1 => Just(Some(Format::Raw)),
        1 => Just(Some(Format::Qcow2)),
    ];
    (features, below, 0u64..128, 0u64..8 << 10).prop_map(|(features, below, odd, below_size)| {
        let (bits, order, extended, zstd, version) = features;
        let version = if version == 0 { 2 } else { 3 };
        let mut options = format!("cluster_size={}", 1 << bits);
        if version == 2 {
            options += ",compat=0.10";
        } else {
            options += &format!(",refcount_bits={}", 1 << order);
            options += if extended && bits >= 14 {
                ",extended_l2=on"
            } else {
                ""
            };
            options += if zstd { ",compression_type=zstd" } else { "" };
        }
        Shape {
            cluster: 1 << bits,
            options,
            version,
            snapshots: version == 2 || order >= 3,
            // The last cluster is a whole one, or not.
            size: (3 << 20) - odd * 512,
            below: below.map(|format| Below {
                format,
                size: below_size * 512,
            }),
        }
    })
}

fn fills() -> impl Strategy<Value = Fill> {
    prop_oneof![
        any::<u8>().prop_map(Fill::Byte),
        Just(Fill::Text),
        Just(Fill::Noise),
    ]
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let place = any::<(u32, u32)>().prop_map(|(at, length)| (u64::from(at), u64::from(length)));
    let unmap = prop_oneof![Just(Unmap::No), Just(Unmap::Yes)];
    let step = prop_oneof![
        3 => (fills(), place.clone()).prop_map(|(fill, (at, length))| Step::Write(fill, at, length)),
        1 => (unmap, place.clone()).prop_map(|(unmap, (at, length))| Step::Zero(unmap, at, length)),
        1 => place.prop_map(|(first, count)| Step::Discard(first, count)),
    ];
    let then = prop_oneof![
        Just(Then::Nothing),
        Just(Then::Snapshot),
        Just(Then::Revert),
    ];
    let steps = prop::collection::vec(step, 1..14);
    let round = (steps, then).prop_map(|(steps, then)| Round { steps, then });
    prop::collection::vec(round, 1..4)
}

/// Makes the image below, and an empty one over it.
fn create<'p>(scratch: &Scratch, patterns: &'p Patterns, shape: &Shape) -> Written<'p> {
    let image = scratch.file("image");
    let (target, size) = (shown(&image), shape.size.to_string());
    let mut arguments = vec!["create", "-q", "-f", "qcow2", "-o", &shape.options];
    let mut bytes = Vec::new();
    if let Some(below) = shape.below {
        let raw = scratch.file("below.raw");
        bytes = ours::disk(below.size, &mut Random::new(below.size + 1));
        fs::write(&raw, &bytes).unwrap();
        let name = match below.format {
            Format::Raw => "below.raw",
            Format::Qcow2 => {
                let qcow2 = shown(&scratch.file("below.qcow2"));
                qemu_img(&[
                    "convert",
                    "-c",
                    "-f",
                    "raw",
                    "-O",
                    "qcow2",
                    &shown(&raw),
                    &qcow2,
                ]);
                "below.qcow2"
            }
        };
        arguments.extend(["-b", name, "-F", below.format.name()]);
    }
    qemu_img(&[&arguments[..], &[&target, &size]].concat());
    bytes.resize(usize::try_from(shape.size).unwrap(), 0);
    Written {
        image,
        bytes,
        cluster: shape.cluster,
        discards: shape.version > 2 || shape.below.is_none(),
        patterns,
    }
}

fn write(written: &mut Written<'_>, packed: &[(Fill, usize)], rounds: &[Round], snapshots: bool) {
    written.pack(packed);
    let image = shown(&written.image);
    let mut kept = None;
    for (number, round) in rounds.iter().enumerate() {
        written.apply(&round.steps);
        match (round.then, &kept) {
            (Then::Snapshot, _) if snapshots => {
                let name = format!("s{number}");
                qemu_img(&["snapshot", "-c", &name, &image]);
                kept = Some((name, written.bytes.clone()));
            }
            (Then::Revert, Some((name, bytes))) => {
                qemu_img(&["snapshot", "-a", name, &image]);
                written.bytes.clone_from(bytes);
            }
            _ => {}
        }
    }
}

#[test]
fn disks_that_qemu_wrote_are_what_was_written() {
    let default = ProptestConfig::default();
    // Each case runs QEMU's tools half a dozen times.
    let cases = (default.cases / 25).max(20);
    let packed = prop::collection::vec((fills(), 0usize..6), 0..10);
    let scratch = Scratch::new("random-theirs");
    let patterns = Patterns::new(&scratch);
    TestRunner::new(ProptestConfig { cases, ..default })
        .run(&(shapes(), packed, rounds()), |(shape, packed, rounds)| {
            let mut written = create(&scratch, &patterns, &shape);
            write(&mut written, &packed, &rounds, shape.snapshots);
            let image = opened(&written.image, Format::Qcow2);
            reads_as(&image, &written.bytes);
            copies_as(&image, &written.bytes);
            let report = check(&open(&written.image), "image").unwrap();
            assert_eq!(QemuCheck::from(&report), QemuCheck::of(&written.image));
            Ok(())
        })
        .unwrap();
}

/// In one piece, in pieces, and by what is known without reading.
fn reads_as(image: &Image, expected: &[u8]) {
    assert_eq!(image.size().unwrap(), expected.len() as u64);
    let mut bytes = vec![0xaa; expected.len()];
    image.read_at(&mut bytes, 0).unwrap();
    let differs = bytes
        .iter()
        .zip(expected)
        .position(|(one, other)| one != other);
    assert_eq!(differs, None, "the first byte that differs");
    let mut random = Random::new(1);
    for _ in 0..50 {
        let start = random.index(expected.len());
        let length = random.index(70_000).min(expected.len() - start);
        let mut piece = vec![0xaa; length];
        image.read_at(&mut piece, start as u64).unwrap();
        assert!(piece == expected[start..start + length], "{start} {length}");
    }
    let mut at = 0;
    while at < expected.len() {
        let extent = image.extent_at(at as u64).unwrap();
        let end = at + usize::try_from(extent.length).unwrap();
        let zero = expected[at..end].iter().all(|byte| *byte == 0);
        assert!(!extent.zero || zero, "no zeroes at {at}");
        at = end;
    }
}

fn copies_as(image: &Image, expected: &[u8]) {
    let target = MemoryDevice::zeroed(expected.len());
    let options = Options {
        threads: 2,
        target: Before::Zeroes,
        share: true,
    };
    to_raw(image, &target, &options, &Unwatched).unwrap();
    assert!(target.contents() == expected, "the copy differs");
}
