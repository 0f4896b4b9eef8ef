//! Sizes changed while the power fails, at every moment.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;
use std::sync::Arc;

use disklet_block::device::{Extents, Fault, MemoryDevice, ReadAt, Request, Size};
use disklet_block::qcow2::{Beyond, Qcow2, ResizeOptions, Verdict, check, resize};
use support::models::{plain_image, raw_by_qemu};
use support::{Random, Scratch, qemu_img, shown};

const LOSE: ResizeOptions = ResizeOptions {
    beyond: Beyond::Lose,
    backing_size: None,
};
const KEEP: ResizeOptions = ResizeOptions {
    beyond: Beyond::Keep,
    backing_size: None,
};

fn assembled(device: MemoryDevice) -> Qcow2 {
    let header = Qcow2::read_header(&device, "image").unwrap();
    Qcow2::assemble(header, "image", Arc::new(device), None, None).unwrap()
}

fn contents(device: MemoryDevice) -> Vec<u8> {
    let image = assembled(device);
    let mut bytes = vec![0xaa; usize::try_from(image.size().unwrap()).unwrap()];
    image.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// An image, and the size that it shall get.
struct Change {
    bytes: Vec<u8>,
    before: Vec<u8>,
    size: u64,
}

impl Change {
    /// Fails from the change with this number on, the first in its own way.
    fn cut_at(&self, cut: usize, fault: Fault) -> (MemoryDevice, bool) {
        let device = MemoryDevice::new(self.bytes.clone());
        let mut changes = 0;
        device.set_rule(move |_, request| {
            if matches!(request, Request::Read(..)) {
                return None;
            }
            changes += 1;
            match changes - 1 {
                number if number < cut => None,
                number if number == cut && matches!(request, Request::Write(..)) => Some(fault),
                _ => Some(Fault::Fail),
            }
        });
        let outcome = resize(&device, "image", self.size, &LOSE);
        device.set_rule(|_, _| None);
        (device, outcome.is_ok())
    }

    /// Either size, the data of both, and nothing worse than leaks.
    fn is_sound(&self, device: MemoryDevice, what: &str) {
        let report = check(&device, "image").unwrap();
        let problems = &report.problems;
        assert_ne!(report.verdict(), Verdict::Corrupt, "{what}: {problems:?}");
        let image = assembled(device);
        let old = self.before.len() as u64;
        let size = image.size().unwrap();
        assert!(size == old || size == self.size, "{what}: {size}");
        let mut found = vec![0; usize::try_from(old.min(self.size)).unwrap()];
        image.read_at(&mut found, 0).unwrap();
        assert!(found == self.before[..found.len()], "{what}");
        // Its last cluster may be there, but the rest is not.
        let mut at = found.len() as u64;
        while at < size && size > old {
            let extent = image.extent_at(at).unwrap();
            let mut piece =
                vec![0; usize::try_from(extent.length).unwrap() * usize::from(!extent.zero)];
            image.read_at(&mut piece, at).unwrap();
            assert!(piece.iter().all(|byte| *byte == 0), "{what} at {at}");
            at += extent.length;
        }
    }

    /// Everything that a power cut could leave of what is not flushed, or a
    /// choice of it if that is too much.
    fn survives(&self, device: &MemoryDevice, random: &mut Random, what: &str) {
        let pending = device.unflushed();
        let all: Vec<u64> = if pending <= 5 {
            (0..1 << pending).collect()
        } else {
            let mut some = vec![0, u64::MAX];
            some.extend((0..8).map(|_| random.next()));
            some.extend((0..pending.min(12)).map(|one| 1 << one));
            some
        };
        for choice in all {
            let left = device.after_power_cut(|index| choice >> (index % 64) & 1 == 1);
            self.is_sound(left, &format!("{what}, of {pending} {choice:#b}"));
        }
    }

    /// How many changes there are to cut.
    fn changes(&self) -> usize {
        let finished = |cut: &usize| self.cut_at(*cut, Fault::Fail).1;
        let above = (0..).map(|bit| 1 << bit).find(finished).unwrap();
        let (mut low, mut high) = (above / 2, above);
        while high - low > 1 {
            let middle = low.midpoint(high);
            let half = if finished(&middle) {
                &mut high
            } else {
                &mut low
            };
            *half = middle;
        }
        high
    }

    /// Cuts everywhere; of very many changes, which are discards one after
    /// the other, a choice in the middle.
    fn survives_everywhere(&self, seed: u64) -> usize {
        let mut random = Random::new(seed);
        let changes = self.changes();
        let full = std::env::var_os("DISKLET_TEST_FULL").is_some();
        let chosen =
            |cut: &usize| full || *cut < 24 || cut + 24 > changes || cut.is_multiple_of(97);
        for cut in (0..=changes).filter(chosen) {
            for fault in [Fault::Fail, Fault::Tear(512)] {
                let (device, _) = self.cut_at(cut, fault);
                self.survives(&device, &mut random, &format!("to {} cut {cut}", self.size));
            }
        }
        changes
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_one_size_or_the_other() {
    let scratch = Scratch::new("resize-cuts");
    let path = scratch.file("x.qcow2");
    let cases = [
        // In place; the L1 table moves; the refcount table moves as well.
        ("cluster_size=64k", 4 << 20),
        ("cluster_size=512", 12 << 20),
        ("cluster_size=512,refcount_bits=64", 1 << 30),
        ("cluster_size=512,refcount_bits=1", 12 << 20),
        ("cluster_size=1k,compat=0.10", 1 << 30),
        ("cluster_size=512", 1 << 20),
        ("cluster_size=4k", (1 << 20) + 512),
        ("cluster_size=16k,extended_l2=on", 100 << 10),
        ("cluster_size=1k,refcount_bits=4", 0),
    ];
    for (number, (options, size)) in cases.into_iter().enumerate() {
        let mut random = Random::new(90 + number as u64);
        plain_image(&path, options, &mut random);
        let bytes = fs::read(&path).unwrap();
        let before = raw_by_qemu(&path, &scratch);
        let change = Change {
            bytes,
            before,
            size,
        };
        let cuts = change.survives_everywhere(number as u64);
        assert!(cuts >= 2, "{options} {size}: {cuts}");
    }
}

/// Where a refcount block is about to end, new blocks and tables straddle it.
#[test]
fn a_power_cut_finds_new_clusters_counted_wherever_they_lie() {
    let scratch = Scratch::new("resize-straddle");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    let options = "cluster_size=512,refcount_bits=64";
    for kilobytes in (1_775..1_800).step_by(2) {
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, &target, "2M"]);
        let write = format!("write -P 5 0 {kilobytes}k");
        support::run("qemu-io", &["-f", "qcow2", "-c", &write, &target]);
        let change = Change {
            bytes: fs::read(&path).unwrap(),
            before: raw_by_qemu(&path, &scratch),
            size: 12 << 20,
        };
        change.survives_everywhere(kilobytes);
    }
}

/// Old bytes in the last cluster and behind the L1 table are cleared before
/// they can be seen.
#[test]
fn a_power_cut_shows_no_old_bytes() {
    let scratch = Scratch::new("resize-old");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    qemu_img(&["create", "-q", "-f", "qcow2", &target, "1M"]);
    support::run(
        "qemu-io",
        &["-f", "qcow2", "-c", "write -P 5 0 1M", &target],
    );
    qemu_img(&["resize", "-q", "--shrink", "-f", "qcow2", &target, "66048"]);
    let mut bytes = fs::read(&path).unwrap();
    let l1 = u64::from_be_bytes(bytes[40..48].try_into().unwrap());
    let l1 = usize::try_from(l1).unwrap();
    bytes[l1 + 8..l1 + 64].fill(0x5a);
    for size in [1 << 20, 2 << 30] {
        let change = Change {
            bytes: bytes.clone(),
            before: raw_by_qemu(&path, &scratch),
            size,
        };
        assert!(change.survives_everywhere(1) > 3);
    }
}

/// The last cluster is written anew where it cannot be written in place.
#[test]
fn a_power_cut_shows_no_old_bytes_of_packed_or_shared_clusters() {
    let scratch = Scratch::new("resize-old-shared");
    let (path, full) = (scratch.file("x.qcow2"), scratch.file("full"));
    let target = shown(&path);
    fs::write(&full, vec![5; 1 << 20]).unwrap();
    for (packed, shared) in [(true, false), (true, true), (false, true)] {
        let source = shown(&full);
        let mut arguments = vec!["convert", "-O", "qcow2", "-o", "cluster_size=4k"];
        arguments.extend(packed.then_some("-c"));
        arguments.extend(["-f", "raw", &source, &target]);
        qemu_img(&arguments);
        qemu_img(&["resize", "-q", "--shrink", "-f", "qcow2", &target, "66048"]);
        if shared {
            qemu_img(&["snapshot", "-c", "before", &target]);
        }
        let change = Change {
            bytes: fs::read(&path).unwrap(),
            before: raw_by_qemu(&path, &scratch),
            size: 1 << 20,
        };
        assert!(change.survives_everywhere(1) > 8, "{packed} {shared}");
    }
}

/// A shrink that was cut short, then a growth: what was beyond stays hidden.
#[test]
fn a_growth_after_half_a_shrink_shows_zeroes() {
    let scratch = Scratch::new("resize-half");
    let path = scratch.file("x.qcow2");
    let target = shown(&path);
    qemu_img(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-o",
        "cluster_size=4k",
        &target,
        "4M",
    ]);
    support::run(
        "qemu-io",
        &["-f", "qcow2", "-c", "write -P 5 0 4M", &target],
    );
    let change = Change {
        bytes: fs::read(&path).unwrap(),
        before: vec![5; 4 << 20],
        size: (1 << 20) + 512,
    };
    for cut in 2..6 {
        let (device, finished) = change.cut_at(cut, Fault::Fail);
        assert!(!finished);
        let size = contents(device.clone()).len() as u64;
        resize(&device, "image", 8 << 20, &KEEP).unwrap();
        let expected = {
            let mut bytes = vec![5; usize::try_from(size).unwrap()];
            bytes.resize(8 << 20, 0);
            bytes
        };
        assert!(contents(device.clone()) == expected, "{cut}");
        assert_ne!(check(&device, "image").unwrap().verdict(), Verdict::Corrupt);
    }
}
