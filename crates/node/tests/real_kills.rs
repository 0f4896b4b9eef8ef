//! `disklet-node` killed at every boundary between two steps, for each kind of
//! disk.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kills/boundaries.rs"]
mod boundaries;
#[path = "kills/shown.rs"]
mod shown;
mod support;

use std::collections::BTreeSet;

use boundaries::at_every_boundary;

use disklet_core::plan::StepKind;
use shown::Shown;
use support::Machine;
use support::fixtures::{Fixture, Kind};

/// The VM that shows a step's cut, if one without servers and launchers does.
fn local(shown: Shown) -> Option<Kind> {
    match shown {
        Shown::NewVolume => Some(Kind::NewVolume),
        Shown::RawDevice => Some(Kind::RawDevice),
        Shown::DiskImage => Some(Kind::DiskImage),
        Shown::PersistentRoot => Some(Kind::PersistentRoot),
        Shown::Object => Some(Kind::Object),
        Shown::Uefi => Some(Kind::Uefi),
        Shown::Ceph | Shown::Launchers | Shown::WhileItRuns | Shown::Refused => None,
    }
}

fn name_of(test: &str, kind: Kind) -> String {
    format!("{test}-{kind:?}").to_lowercase()
}

fn interrupted_up_is_finished_by_the_next(kind: Kind) -> BTreeSet<String> {
    let name = name_of("finish", kind);
    let machine = Machine::new(&name);
    let fixture = Fixture::new(&machine, &name, kind);
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    let down = ["down", name.as_str(), "--grace", "0"];
    let cuts = at_every_boundary(
        &machine,
        &up,
        || fixture.reset(),
        |boundary, _| {
            machine.done(&up);
            machine.done(&down);
            assert_eq!(machine.things(), before, "{kind:?}, boundary {boundary}");
        },
    );
    machine.done(&down);
    assert_eq!(machine.things(), before, "{kind:?}");
    cuts
}

fn interrupted_up_is_undone_by_down(kind: Kind) -> BTreeSet<String> {
    let name = name_of("down", kind);
    let machine = Machine::new(&name);
    let fixture = Fixture::new(&machine, &name, kind);
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    let down = ["down", name.as_str(), "--grace", "0"];
    let cuts = at_every_boundary(
        &machine,
        &up,
        || fixture.reset(),
        |boundary, _| {
            machine.done(&down);
            assert_eq!(machine.things(), before, "{kind:?}, boundary {boundary}");
        },
    );
    machine.node(&down);
    cuts
}

/// gc removes what was never complete, and leaves what was.
fn interrupted_up_is_undone_by_gc(kind: Kind) {
    let name = name_of("gc", kind);
    let machine = Machine::new(&name);
    let fixture = Fixture::new(&machine, &name, kind);
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    let down = ["down", name.as_str(), "--grace", "0"];
    let mut whole = 0;
    at_every_boundary(
        &machine,
        &up,
        || fixture.reset(),
        |boundary, cut| {
            let said = machine.done(&["gc"]);
            whole += u32::from(whole > 0 || cut == "before StartDomain");
            if whole > 0 {
                assert_eq!(said, "", "{kind:?}, boundary {boundary}");
                machine.done(&down);
            }
            assert_eq!(machine.things(), before, "{kind:?}, boundary {boundary}");
        },
    );
    assert_eq!(whole, 2, "before the start, and after it");
    machine.done(&down);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_is_finished_by_the_next() {
    let cuts: Vec<_> = Kind::LOCAL
        .into_iter()
        .chain([Kind::Uefi])
        .map(|kind| (kind, interrupted_up_is_finished_by_the_next(kind)))
        .collect();
    let was_cut = |kind: Kind, cut: &str| {
        let mut of_kind = cuts.iter().filter(|(of, _)| *of == kind);
        of_kind.any(|(_, cuts)| cuts.contains(cut))
    };
    assert!(
        was_cut(Kind::PersistentRoot, "Within"),
        "never cut while copying"
    );
    assert!(
        was_cut(Kind::NewVolume, "Formatting"),
        "never cut while mke2fs works"
    );
    for step in StepKind::ALL {
        if let Some(kind) = local(Shown::of(*step)) {
            let cut = format!("before {step:?}");
            assert!(was_cut(kind, &cut), "never cut {cut}");
        }
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_is_undone_by_down() {
    for kind in Kind::LOCAL {
        interrupted_up_is_undone_by_down(kind);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_is_undone_by_gc() {
    for kind in [Kind::NewVolume, Kind::PersistentRoot] {
        interrupted_up_is_undone_by_gc(kind);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_with_a_key_leaves_no_secret() {
    let cuts = interrupted_up_is_undone_by_down(Kind::Ceph);
    for step in Shown::Ceph.steps() {
        let cut = format!("before {step:?}");
        assert!(cuts.contains(&cut), "never cut {cut}: {cuts:?}");
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_down_is_finished_by_the_next() {
    for kind in Kind::LOCAL {
        let name = name_of("twice", kind);
        let machine = Machine::new(&name);
        let fixture = Fixture::new(&machine, &name, kind);
        let before = machine.things();
        let up = ["up", "-f", &fixture.manifest];
        let down = ["down", name.as_str(), "--grace", "0"];
        at_every_boundary(
            &machine,
            &down,
            || {
                machine.done(&up);
            },
            |boundary, _| {
                machine.done(&down);
                assert_eq!(machine.things(), before, "{kind:?}, boundary {boundary}");
            },
        );
        assert_eq!(machine.things(), before, "{kind:?}");
    }
}

/// A VM that was being removed, and then half made again, is one that was never
/// complete.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_up_after_an_interrupted_down_is_undone_by_gc() {
    let machine = Machine::new("revived");
    let fixture = Fixture::new(&machine, "revived", Kind::NewVolume);
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    at_every_boundary(
        &machine,
        &["down", "revived", "--grace", "0"],
        || machine.run_to_end(&fixture.manifest),
        |boundary, _| {
            let steps = ["before CreateOverlay", "before DefineDomain"];
            let cut = steps[usize::from(boundary % 2 == 0)];
            assert_eq!(machine.killed_at(&up, cut).as_deref(), Some(cut));
            let said = machine.done(&["gc"]);
            assert!(said.starts_with("default/revived was half"), "{said}");
            assert_eq!(machine.things(), before, "boundary {boundary}, {cut}");
        },
    );
    assert_eq!(machine.things(), before);
}
