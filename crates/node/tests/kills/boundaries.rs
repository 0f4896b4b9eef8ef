//! A command that is killed at each boundary between two steps.

use std::collections::BTreeSet;

use crate::support::Machine;

/// How often a command of a kind is killed at most: a guard against a program
/// that never gets to its end.
const MOST: u32 = 60;

/// Kills `command` at each boundary, one after the other; what is to be done
/// before each, and after. Which boundaries there were.
pub(crate) fn at_every_boundary(
    machine: &Machine,
    command: &[&str],
    mut before: impl FnMut(),
    mut after: impl FnMut(u32, &str),
) -> BTreeSet<String> {
    let mut cuts = BTreeSet::new();
    for boundary in 1..MOST {
        before();
        let Some(cut) = machine.killed(command, boundary) else {
            return cuts;
        };
        after(boundary, &cut);
        cuts.insert(cut);
    }
    panic!("still killed at boundary {MOST}");
}
