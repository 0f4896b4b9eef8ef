//! Re-imaging of persistent roots, and its revert, killed at every point: what
//! is on the device then, and what the next start makes of it, is what
//! docs/formats/root-device.md says.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::collections::BTreeSet;

use disklet_core::names::Sha256;
use support::fixtures::Fixture;
use support::{Machine, guest};

const DATA: usize = 1 << 20;
const DEVICE: usize = 12 << 20;
/// How often a command is killed at most.
const MOST: u32 = 60;

/// A disk with data all over, so that it is copied in several parts.
fn disk(byte: u8, size: usize) -> Vec<u8> {
    let mut disk = vec![byte; size];
    let code = guest::waiting_disk();
    disk[..1024].copy_from_slice(&code[..1024]);
    disk
}

/// What is on the device, as the document's table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing has begun.
    Before,
    Filling,
    Complete,
}

struct Root {
    machine: Machine,
    fixture: Fixture,
    name: &'static str,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Root {
    fn new(name: &'static str) -> Self {
        let machine = Machine::new(name);
        // The new one is smaller: what is behind it is looked at as well.
        let (old, new) = (disk(0xaa, 9 << 20), disk(0xbb, 5 << 20));
        let fixture = Fixture::sized(&machine, name, &old, DEVICE as u64);
        Self {
            machine,
            fixture,
            name,
            old,
            new,
        }
    }

    /// The manifest, which may say that what is on the device may be lost.
    fn manifest(&self, allowed: bool) -> String {
        if !allowed {
            return self.fixture.manifest.clone();
        }
        let text = std::fs::read_to_string(&self.fixture.manifest).unwrap();
        let text = text.replace(
            "  annotations:\n",
            "  annotations:\n    disklet.io/recreate-root: \"true\"\n",
        );
        let file = self.machine.write("allowed.yaml", text);
        file.display().to_string()
    }

    fn want(&self, image: &[u8]) -> Sha256 {
        self.machine.add_image("tiny", image)
    }

    fn down(&self) {
        self.machine.node(&["down", self.name, "--grace", "0"]);
    }

    fn on_device(&self) -> Vec<u8> {
        self.fixture.read(0, DEVICE)
    }

    /// A root that was filled and used.
    fn is_used(&self, image: &[u8]) -> Vec<u8> {
        self.want(image);
        self.machine.done(&["up", "-f", &self.manifest(true)]);
        self.down();
        self.fixture.write((DATA + 5000) as u64, b"precious");
        self.on_device()
    }

    /// How far it has come; what is there must be whole.
    fn stage(&self, before: &[u8], image: &[u8], digest: &Sha256) -> Stage {
        let there = self.on_device();
        if there == before {
            return Stage::Before;
        }
        assert_eq!(&there[10..42], digest.bytes());
        match &there[48..56] {
            b"filling\0" => Stage::Filling,
            word => {
                assert_eq!(word, b"complete");
                assert!(there[DATA..].starts_with(image), "complete, but not all");
                Stage::Complete
            }
        }
    }

    /// Only one image is on the device, and nothing of the other.
    fn assert_filled(&self, image: &[u8], digest: &Sha256, none_of: u8) {
        let there = self.on_device();
        assert_eq!(&there[48..56], b"complete");
        assert_eq!(&there[10..42], digest.bytes());
        assert!(there[DATA..].starts_with(image), "not all of the image");
        let behind = &there[DATA + image.len()..];
        assert!(!behind.contains(&none_of), "the other image is behind it");
    }
}

/// Kills `up` at every boundary, from what `prepare` has made; what it did is
/// looked at. Which stages there were.
fn at_every_point(
    root: &Root,
    image: &[u8],
    mut prepare: impl FnMut() -> Vec<u8>,
    mut look: impl FnMut(Stage, &[u8], &Sha256),
) {
    let (mut stages, mut cuts) = (BTreeSet::new(), BTreeSet::new());
    for boundary in 1..MOST {
        let before = prepare();
        let digest = root.want(image);
        let up = ["up", "-f", &root.manifest(true)];
        let Some(cut) = root.machine.killed(&up, boundary) else {
            root.down();
            let all = [Stage::Before, Stage::Filling, Stage::Complete];
            assert_eq!(stages, BTreeSet::from(all), "cut at {cuts:?}");
            return;
        };
        root.down();
        let stage = root.stage(&before, image, &digest);
        if cut == "Within" {
            assert_eq!(stage, Stage::Filling);
        }
        stages.insert(stage);
        cuts.insert(cut);
        look(stage, &before, &digest);
    }
    panic!("still killed at boundary {MOST}");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_re_image_cut_at_every_point_is_gone_on_with_or_reverted() {
    let root = Root::new("reimage-cut");
    let things = root.machine.things();
    let prepare = || root.is_used(&root.old);
    at_every_point(&root, &root.new, prepare, |stage, before, new| {
        let left = root.on_device();
        // Without the permission, which was for the start that was cut.
        let up = ["up", "-f", &root.manifest(false)];
        match stage {
            Stage::Before => {
                let refused = root.machine.refused(&up);
                assert!(refused.contains("another image"), "{refused}");
                assert!(root.on_device() == before, "refused, and changed");
            }
            Stage::Filling | Stage::Complete => {
                root.machine.done(&up);
                root.assert_filled(&root.new, new, 0xaa);
            }
        }
        root.down();
        root.fixture.write(0, &left);
        let old = root.want(&root.old);
        match stage {
            Stage::Before => {
                root.machine.done(&up);
                assert!(root.on_device() == before, "the old disk, as it was");
            }
            Stage::Filling => {
                root.machine.done(&up);
                root.assert_filled(&root.old, &old, 0xbb);
            }
            Stage::Complete => {
                let refused = root.machine.refused(&up);
                assert!(refused.contains("another image"), "{refused}");
                assert!(root.on_device() == left, "refused, and changed");
            }
        }
        root.down();
        assert_eq!(root.machine.things(), things);
    });
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_revert_cut_at_every_point_is_gone_on_with() {
    let root = Root::new("reimage-revert");
    let things = root.machine.things();
    // A re-image that was cut in the midst of copying, and one that was not.
    let half = {
        root.is_used(&root.old);
        root.want(&root.new);
        let up = ["up", "-f", &root.manifest(true)];
        let mut cuts = (1..MOST).map(|boundary| root.machine.killed(&up, boundary));
        assert!(cuts.any(|cut| cut.as_deref() == Some("Within")));
        root.down();
        root.on_device()
    };
    let whole = root.is_used(&root.new);
    for (kind, begin) in [("half", half), ("whole", whole)] {
        let prepare = || {
            root.fixture.write(0, &begin);
            begin.clone()
        };
        at_every_point(&root, &root.old, prepare, |stage, before, old| {
            let up = ["up", "-f", &root.manifest(false)];
            let is_refused = kind == "whole" && stage == Stage::Before;
            if is_refused {
                let refused = root.machine.refused(&up);
                assert!(refused.contains("another image"), "{refused}");
                assert!(root.on_device() == before, "refused, and changed");
            } else {
                root.machine.done(&up);
                root.assert_filled(&root.old, old, 0xbb);
            }
            root.down();
            assert_eq!(root.machine.things(), things);
        });
    }
}

/// A first fill, killed wherever it was, and then another image is wanted.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn nothing_of_a_fill_that_was_cut_off_is_left_behind_a_smaller_image() {
    let root = Root::new("reimage-smaller");
    let up = ["up", "-f", &root.manifest(false)];
    let mut left_behind = 0;
    for boundary in 1..MOST {
        root.fixture.write(0, &vec![0; DEVICE]);
        root.want(&root.old);
        let cut = root.machine.killed(&up, boundary);
        root.down();
        match cut.as_deref() {
            Some("Within") => {}
            Some(_) if left_behind == 0 => continue,
            _ => break,
        }
        let behind = &root.on_device()[DATA + root.new.len()..];
        left_behind += u32::from(behind.contains(&0xaa));
        let new = root.want(&root.new);
        root.machine.done(&up);
        root.down();
        root.assert_filled(&root.new, &new, 0xaa);
    }
    assert!(left_behind > 0, "never cut behind the smaller image's end");
}
