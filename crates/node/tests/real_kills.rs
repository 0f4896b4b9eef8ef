//! `disklet-node` killed at every boundary between two steps, for each kind of
//! disk.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kills/boundaries.rs"]
mod boundaries;
mod support;

use std::collections::BTreeSet;

use boundaries::at_every_boundary;

use disklet_core::plan::StepKind;
use support::Machine;
use support::fixtures::{Fixture, Kind};

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
    let within = |(kind, cuts): &&(Kind, BTreeSet<String>)| {
        *kind == Kind::PersistentRoot && cuts.contains("Within")
    };
    assert!(
        cuts.iter().any(|cuts| within(&cuts)),
        "never cut while copying"
    );
    for step in StepKind::ALL {
        let kind = Kind::showing(*step);
        if kind == Kind::Ceph {
            continue;
        }
        let cut = cuts
            .iter()
            .find(|(of, _)| *of == kind)
            .is_some_and(|(_, cuts)| cuts.contains(&format!("before {step:?}")));
        assert!(cut, "never cut before {step:?}");
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
    for step in [
        StepKind::CheckServers,
        StepKind::DefineSecret,
        StepKind::WriteCephConfig,
    ] {
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
