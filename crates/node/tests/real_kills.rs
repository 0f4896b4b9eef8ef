//! `disklet-node` killed at every boundary between two steps, for each kind of
//! disk.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::collections::BTreeSet;

use disklet_core::plan::StepKind;
use support::Machine;
use support::fixtures::{Fixture, Kind};

/// How often a command of a kind is killed at most: a guard against a program
/// that never gets to its end.
const MOST: u32 = 60;

/// Kills `command` at each boundary, one after the other; what is to be done
/// before each, and after. Which boundaries there were.
fn at_every_boundary(
    machine: &Machine,
    command: &[&str],
    mut before: impl FnMut(),
    mut after: impl FnMut(u32),
) -> BTreeSet<String> {
    let mut cuts = BTreeSet::new();
    for boundary in 1..MOST {
        before();
        let Some(cut) = machine.killed(command, boundary) else {
            return cuts;
        };
        cuts.insert(cut);
        after(boundary);
    }
    panic!("still killed at boundary {MOST}");
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
        |boundary| {
            machine.done(&up);
            machine.done(&down);
            assert_eq!(machine.things(), before, "{kind:?}, boundary {boundary}");
        },
    );
    machine.done(&down);
    assert_eq!(machine.things(), before, "{kind:?}");
    cuts
}

fn interrupted_up_is_undone(kind: Kind, command: &[&str]) -> BTreeSet<String> {
    let name = name_of(command[0], kind);
    let machine = Machine::new(&name);
    let fixture = Fixture::new(&machine, &name, kind);
    let before = machine.things();
    let up = ["up", "-f", &fixture.manifest];
    let command: Vec<_> = command
        .iter()
        .map(|word| if *word == "NAME" { &name } else { *word })
        .collect();
    let cuts = at_every_boundary(
        &machine,
        &up,
        || fixture.reset(),
        |boundary| {
            machine.done(&command);
            // gc leaves VMs alone that were complete.
            machine.node(&["down", &name, "--grace", "0"]);
            assert_eq!(machine.things(), before, "{kind:?}, boundary {boundary}");
        },
    );
    machine.node(&["down", &name, "--grace", "0"]);
    cuts
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
        interrupted_up_is_undone(kind, &["down", "NAME", "--grace", "0"]);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_is_undone_by_gc() {
    for kind in [Kind::NewVolume, Kind::PersistentRoot] {
        interrupted_up_is_undone(kind, &["gc"]);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_interrupted_up_with_a_key_leaves_no_secret() {
    let cuts = interrupted_up_is_undone(Kind::Ceph, &["down", "NAME", "--grace", "0"]);
    assert!(cuts.contains("before DefineSecret"), "{cuts:?}");
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
            |boundary| {
                machine.done(&down);
                assert_eq!(machine.things(), before, "{kind:?}, boundary {boundary}");
            },
        );
        assert_eq!(machine.things(), before, "{kind:?}");
    }
}
