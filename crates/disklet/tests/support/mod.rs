//! What the tests over fixtures and examples share.
//!
//! A fixture is a directory with manifests, what steers the program, and what
//! must come out:
//!
//! ```text
//!   in    manifest.yaml or manifest.json    given with -f
//!         facts.yaml                        given with --facts; without it: --offline
//!         config.yaml                       for an argument to name
//!         agent-pod.yaml                    where a cluster has the same pools from
//!         args                              more arguments, one a line
//!         env                               variables, NAME=value a line
//!   out   everything else, see golden.rs
//! ```

#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod base64;
pub(crate) mod diff;
pub(crate) mod documents;
pub(crate) mod secrets;
pub(crate) mod tools;
pub(crate) mod xml;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of a fixture that go in. Everything else came out.
const INPUTS: [&str; 7] = [
    "manifest.yaml",
    "manifest.json",
    "facts.yaml",
    "config.yaml",
    "agent-pod.yaml",
    "args",
    "env",
];

/// A directory whose manifests can be planned.
#[derive(Debug)]
pub(crate) struct Fixture {
    /// Where it is.
    pub(crate) dir: PathBuf,
    /// What tests call it, such as `seed000/02-ephemeral-volumes`.
    pub(crate) name: String,
}

/// What the program did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The directory of the repository.
pub(crate) fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// All fixtures with golden files.
pub(crate) fn fixtures() -> Vec<Fixture> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let found: Vec<_> = directories(&golden)
        .iter()
        .flat_map(|group| directories(group))
        .map(Fixture::at)
        .collect();
    assert!(!found.is_empty(), "no fixtures below {}", golden.display());
    found
}

/// The examples that newcomers read.
pub(crate) fn examples() -> Vec<Fixture> {
    let found: Vec<_> = directories(&repository().join("examples"))
        .into_iter()
        .map(Fixture::at)
        .collect();
    assert!(!found.is_empty(), "no examples");
    found
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(parent)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// Files of a fixture that are not given with -f, though they are named as manifests are.
const NO_MANIFESTS: [&str; 4] = ["facts.yaml", "config.yaml", "agent-pod.yaml", "plan.json"];

impl Fixture {
    fn at(dir: PathBuf) -> Self {
        let mut parts: Vec<_> = dir.iter().rev().take(2).collect();
        parts.reverse();
        let name = parts.iter().collect::<PathBuf>().display().to_string();
        Self { dir, name }
    }

    /// The text of one of its files, if there is such a file.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(file)).ok()
    }

    /// The files in it that are no input.
    pub(crate) fn outputs(&self) -> Vec<String> {
        self.files()
            .into_iter()
            .filter(|name| !INPUTS.contains(&name.as_str()))
            .collect()
    }

    /// The files in it that are manifests. An example may have several.
    pub(crate) fn manifests(&self) -> Vec<String> {
        self.files()
            .into_iter()
            .filter(|name| name.ends_with(".yaml") || name.ends_with(".json"))
            .filter(|name| !NO_MANIFESTS.contains(&name.as_str()))
            .collect()
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Plans it with the real program; a refusal fails the test.
    pub(crate) fn plan(&self, output: &str, more: &[&str]) -> Outcome {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
        command.current_dir(&self.dir).args(["plan", "-o", output]);
        for manifest in self.manifests() {
            command.args(["-f", &manifest]);
        }
        // Nothing of the machine that runs the tests may show in a plan.
        command.args(match self.read("facts.yaml") {
            Some(_) => ["--facts", "facts.yaml"].as_slice(),
            None => &["--offline"],
        });
        command.args(self.read("args").unwrap_or_default().lines());
        command.args(more);
        for name in [
            "DISKLET_CONFIG",
            "VIRTLET_RAW_DEVICES",
            "NO_COLOR",
            "CLICOLOR_FORCE",
        ] {
            command.env_remove(name);
        }
        let variables = self.read("env").unwrap_or_default();
        command.envs(variables.lines().filter_map(|line| line.split_once('=')));
        let done = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(done.stdout), text(done.stderr));
        assert!(
            done.status.success(),
            "{}: {}\n{stderr}",
            self.name,
            done.status
        );
        Outcome { stdout, stderr }
    }

    /// The plans of its VMs.
    pub(crate) fn plans(&self, more: &[&str]) -> Vec<serde_json::Value> {
        let text = self.plan("json", more).stdout;
        let plans: Vec<_> = serde_json::from_str(&text).unwrap();
        assert!(!plans.is_empty(), "{}: no VM", self.name);
        plans
    }
}
