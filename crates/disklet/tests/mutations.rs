//! Manifests changed at random: nothing panics, nothing takes long, every
//! problem has its place, and every plan that comes out keeps what plans
//! promise.
//!
//! `PROPTEST_CASES=100000 cargo test --test mutations` looks longer.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "refusals/invariants.rs"]
mod invariants;
#[path = "refusals/mutate.rs"]
mod mutate;
#[path = "refusals/secrets.rs"]
mod secrets;
#[path = "refusals/xml.rs"]
mod xml;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proptest::prelude::*;

use invariants::{Node, check_plans, check_problems, read};
use mutate::{Mutation, mutation};

const RICH: &str = include_str!("refusals/rich.yaml");

/// The manifests to start from, the richest of them more often than others.
fn seeds() -> &'static [String] {
    static SEEDS: OnceLock<Vec<String>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let mut seeds = vec![RICH.to_owned(); 8];
        let mut paths = Vec::new();
        collect(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"),
            &mut paths,
        );
        paths.sort();
        seeds.extend(paths.iter().map(|path| fs::read_to_string(path).unwrap()));
        seeds
    })
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.ends_with("manifest.yaml") {
            found.push(path);
        }
    }
}

/// So many cases unless the environment says how many.
fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config
}

fn mutated() -> impl Strategy<Value = (usize, Vec<Mutation>)> {
    (any::<usize>(), prop::collection::vec(mutation(), 1..4))
}

/// Long enough to be long for everything that is read, short enough to leave
/// time for others.
const LONGEST: usize = 1 << 18;

fn apply((seed, mutations): &(usize, Vec<Mutation>)) -> String {
    let mut text = seeds()[seed % seeds().len()].clone();
    for mutation in mutations {
        let changed = mutation.apply(&text);
        if changed.len() <= LONGEST {
            text = changed;
        }
    }
    text
}

#[test]
fn the_seeds_are_planned() {
    assert_eq!(read(RICH, Node::Unseen).errors, 0);
    for seed in seeds() {
        for node in [Node::Unseen, Node::Seen] {
            check_problems(seed, &read(seed, node));
            check_plans(seed, &read(seed, node));
        }
    }
}

proptest! {
    #![proptest_config(config(8000))]

    #[test]
    fn what_is_planned_keeps_its_promises(case in mutated(), seen: bool) {
        let text = apply(&case);
        let node = if seen { Node::Seen } else { Node::Unseen };
        let outcome = read(&text, node);
        check_problems(&text, &outcome);
        check_plans(&text, &outcome);
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn the_same_input_gives_the_same_output(case in mutated()) {
        let text = apply(&case);
        let (one, two) = (read(&text, Node::Seen), read(&text, Node::Seen));
        prop_assert_eq!(one.problems, two.problems);
        prop_assert_eq!(one.rendered, two.rendered);
    }

    #[test]
    fn no_text_upsets_the_reader(text in "\\PC{0,200}|[\\[\\]{}:,&*!|>'\"%@`#\\-? \n\ta-c0-9]{0,200}") {
        let outcome = read(&text, Node::Unseen);
        check_problems(&text, &outcome);
    }
}
