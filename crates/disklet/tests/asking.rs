//! Whoever has a cluster behind them begins with the VM alone and fetches what
//! its plan looks for. What comes of that must be the plan of all objects: every
//! fixture whose claims name their volumes is planned both ways.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::resolve::{Reference, Resolution, resolve_asking};
use disklet_core::text::Reveal;

/// One object of a manifest.
struct Chunk {
    text: String,
    answers: BTreeSet<Reference>,
    is_vm: bool,
}

fn read(texts: &[&str]) -> Objects {
    let mut objects = Objects::default();
    let namespace = Namespace::parse("default").unwrap();
    let mut diags = Diagnostics::default();
    for text in texts {
        let input = Input {
            name: "x".into(),
            text: (*text).to_owned(),
        };
        objects.read(&input, &namespace, &mut diags);
    }
    objects
}

fn resolved(objects: &Objects) -> Resolution {
    resolve_asking(
        objects,
        &Config::default(),
        &Facts::default(),
        &mut Diagnostics::default(),
    )
}

fn chunk(text: &str) -> Chunk {
    let objects = read(&[text]);
    let mut answers = BTreeSet::new();
    answers.extend(objects.claims.keys().cloned().map(Reference::Claim));
    answers.extend(objects.volumes.keys().cloned().map(Reference::Volume));
    answers.extend(
        objects
            .config_maps
            .keys()
            .cloned()
            .map(Reference::ConfigMap),
    );
    answers.extend(objects.secrets.keys().cloned().map(Reference::Secret));
    answers.extend(objects.endpoints.keys().cloned().map(Reference::Endpoints));
    answers.extend(
        objects
            .accounts
            .keys()
            .cloned()
            .map(Reference::ServiceAccount),
    );
    Chunk {
        text: text.to_owned(),
        answers,
        is_vm: !objects.vms.is_empty(),
    }
}

/// Places differ, as the objects do not stand in one file.
fn shown(resolution: &Resolution) -> Vec<String> {
    let plans = resolution.plans.iter();
    plans
        .map(|plan| serde_json::to_string(&plan.view(Reveal::Show)).unwrap())
        .collect()
}

fn manifests(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            manifests(&path, found);
        } else if path.ends_with("manifest.yaml") {
            found.push(path);
        }
    }
}

#[test]
fn what_is_asked_for_is_all_that_a_plan_needs() {
    let mut found = Vec::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    manifests(&golden, &mut found);
    let mut compared = 0;
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        let all = read(&[&text]);
        let claims_are_bound = all.claims.values().all(|claim| claim.volume.is_some());
        if all.vms.is_empty() || !claims_are_bound {
            continue;
        }
        let chunks: Vec<_> = text.split("\n---").map(chunk).collect();
        let mut known: Vec<&str> = chunks
            .iter()
            .filter(|chunk| chunk.is_vm)
            .map(|chunk| chunk.text.as_str())
            .collect();
        let mut asked = BTreeSet::new();
        let last = loop {
            let resolution = resolved(&read(&known));
            let new: BTreeSet<_> = resolution.missing.difference(&asked).cloned().collect();
            if new.is_empty() {
                break resolution;
            }
            let answers = chunks
                .iter()
                .filter(|chunk| !chunk.answers.is_disjoint(&new));
            known.extend(answers.map(|chunk| chunk.text.as_str()));
            asked.extend(new);
        };
        let expected = resolved(&all);
        assert_eq!(shown(&last), shown(&expected), "{}", path.display());
        compared += usize::from(!asked.is_empty() && !expected.plans.is_empty());
    }
    assert!(compared >= 3, "only {compared} fixtures ask for anything");
}
