//! Every fixture below `golden/` is planned by the real program, and each of
//! its outputs must be, to the byte, the file beside the manifest:
//!
//! ```text
//!   plan.json  plan.tree.txt  plan.table.txt  domain.xml
//!   user-data  meta-data  network-config      out of plan.json, as it is shown
//!   notices.txt                               standard error, if there is any
//! ```
//!
//! `script/golden` writes them anew. A golden file says what is right: it is
//! read line by line before it is committed.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::collections::BTreeSet;
use std::fs;

use support::secrets::{self, Needle};
use support::{Fixture, diff, documents, examples, fixtures};

#[test]
fn plans_are_as_the_golden_files_say() {
    let update = std::env::var_os("DISKLET_UPDATE_GOLDEN").is_some();
    let mut failures = Vec::new();
    for fixture in fixtures() {
        let expected = documents::of(&fixture);
        if update {
            write_anew(&fixture, &expected);
        } else {
            failures.extend(compare(&fixture, &expected));
        }
    }
    assert!(
        failures.is_empty(),
        "{} golden files are not right; script/golden writes them anew\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

fn write_anew(fixture: &Fixture, documents: &[(String, String)]) {
    for stale in fixture.outputs() {
        fs::remove_file(fixture.dir.join(stale)).unwrap();
    }
    for (file, text) in documents {
        fs::write(fixture.dir.join(file), text).unwrap();
    }
}

fn compare(fixture: &Fixture, documents: &[(String, String)]) -> Vec<String> {
    let mut failures = Vec::new();
    let told = |file: &str, what: &str| format!("{}/{file}: {what}", fixture.name);
    for (file, text) in documents {
        match fixture.read(file) {
            None => failures.push(told(file, "is missing")),
            Some(golden) => failures.extend(
                diff::first_difference(&golden, text).map(|difference| told(file, &difference)),
            ),
        }
    }
    let known: BTreeSet<_> = documents.iter().map(|(file, _)| file.clone()).collect();
    failures.extend(
        fixture
            .outputs()
            .iter()
            .filter(|file| !known.contains(*file))
            .map(|file| told(file, "belongs to no output")),
    );
    failures
}

#[test]
fn every_example_has_a_title_and_a_plan() {
    for example in examples() {
        let title = example.read("TITLE").unwrap_or_default();
        assert_eq!(title.lines().count(), 1, "{}: TITLE", example.name);
        for plan in example.plans(&[]) {
            let first = &plan["disks"][0];
            assert_eq!(first["name"], "root", "{}", example.name);
            let boots = ["sda", "vda"].map(|name| first["target"] == name);
            assert!(boots.contains(&true), "{}: {first}", example.name);
        }
        for output in ["table", "tree", "yaml", "xml"] {
            let text = example.plan(output, &[]).stdout;
            assert!(!text.trim().is_empty(), "{} -o {output}", example.name);
        }
    }
}

const FORMATS: [&str; 5] = ["table", "tree", "json", "yaml", "xml"];

#[test]
fn no_secret_shows_unless_asked_for() {
    let mut failures = Vec::new();
    let mut searched = 0;
    for fixture in fixtures().iter().chain(&examples()) {
        let needles = secrets::of(fixture);
        if needles.is_empty() {
            continue;
        }
        for format in FORMATS {
            let outcome = fixture.plan(format, &[]);
            for needle in &needles {
                searched += 1;
                for (place, text) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
                    if needle.shows_in(text) {
                        failures.push(format!(
                            "{}: {needle} shows in -o {format}, {place}",
                            fixture.name
                        ));
                    }
                }
            }
        }
    }
    assert!(
        searched > 100,
        "only {searched} searches: nothing is tested"
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Otherwise the test before would pass for a program that loses secrets. A key
/// for libvirt is the exception: it goes into a libvirt secret, and no document
/// has it whatever is asked for.
#[test]
fn secrets_show_when_asked_for_except_keys_for_libvirt() {
    let mut failures = Vec::new();
    for fixture in fixtures().iter().chain(&examples()) {
        for format in FORMATS {
            let outcome = fixture.plan(format, &["--show-secrets"]);
            let all = format!("{}{}", outcome.stdout, outcome.stderr);
            for needle in secrets::of(fixture) {
                let wanted = needle.shows_on_request() && format == "json";
                let forbidden = !needle.shows_on_request();
                let shows = needle.shows_in(&all);
                if (wanted && !shows) || (forbidden && shows) {
                    failures.push(describe(fixture, format, &needle, shows));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn describe(fixture: &Fixture, format: &str, needle: &Needle, shows: bool) -> String {
    let does = if shows { "shows" } else { "does not show" };
    format!(
        "{}: {needle} {does} in -o {format} --show-secrets",
        fixture.name
    )
}
