//! Every kind of bad input, and what the program says about it.
//!
//! `refusals/NN-name.yaml` must be refused, and `NN-name.stderr` beside it is
//! all that is said. Comments at the top of a case steer it:
//!
//! ```text
//!   # args: …        more arguments; {} stands for the case itself, which is
//!                    given with -f if it is not there
//!   # with WORD: …   once for each such line, with WORD replaced by the rest
//!   # code: 2        the exit code, if it is not 1
//! ```
//!
//! `DISKLET_UPDATE_GOLDEN=1 cargo test --test refusals` writes the expected
//! texts anew. A case that is accepted fails either way.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "refusals/bombs.rs"]
mod bombs;
#[path = "refusals/bytes.rs"]
mod bytes;
#[path = "refusals/devices.rs"]
mod devices;
#[path = "refusals/inputs.rs"]
mod inputs;
#[path = "refusals/program.rs"]
mod program;

use std::fs;
use std::path::{Path, PathBuf};

use program::{Outcome, directory, plan};

/// What a case asks for.
struct Case {
    name: String,
    text: String,
    args: Vec<String>,
    variants: Vec<(String, String)>,
    code: i32,
}

impl Case {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut args = Vec::new();
        let mut variants = Vec::new();
        let mut code = 1;
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            if let Some(more) = line.strip_prefix("# args: ") {
                args.extend(more.split_whitespace().map(str::to_owned));
            }
            if let Some(number) = line.strip_prefix("# code: ") {
                code = number.parse().unwrap();
            }
            if let Some((word, value)) = line
                .strip_prefix("# with ")
                .and_then(|rest| rest.split_once(": "))
            {
                variants.push((word.to_owned(), value.to_owned()));
            }
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        Self {
            name,
            text,
            args,
            variants,
            code,
        }
    }

    /// All that is said, and what is wrong with how it is said.
    fn run(&self) -> (String, Vec<String>) {
        let mut faults = Vec::new();
        if self.variants.is_empty() {
            let outcome = self.plan(&self.name, "", str::to_owned);
            faults.extend(
                outcome
                    .faults_with(self.code)
                    .map(|fault| format!("{}: {fault}", self.name)),
            );
            return (outcome.stderr, faults);
        }
        let mut said = String::new();
        for (word, value) in &self.variants {
            // From standard input, so that messages name no temporary file.
            // The comments stay: lines are those of the case.
            let fill = |text: &str| text.replace(word.as_str(), value);
            let outcome = self.plan("-", &fill(&self.text), fill);
            let told = |fault| format!("{} with {word}: {value}: {fault}", self.name);
            faults.extend(outcome.faults_with(self.code).map(told));
            said += &format!("### {word}: {value}\n{}", outcome.stderr);
        }
        (said, faults)
    }

    fn plan(&self, file: &str, stdin: &str, fill: impl Fn(&str) -> String) -> Outcome {
        let mut args: Vec<String> = self.args.iter().map(|arg| fill(arg)).collect();
        match args.iter_mut().find(|arg| *arg == "{}") {
            // Options other than -f know no "-".
            Some(arg) if file == "-" => *arg = "/dev/stdin".to_owned(),
            Some(arg) => *arg = file.to_owned(),
            None => args.extend(["-f".to_owned(), file.to_owned()]),
        }
        plan(&args, stdin.as_bytes())
    }

    /// Compares with what is expected, or writes it down.
    fn check(&self) -> Vec<String> {
        let (said, mut faults) = self.run();
        let golden = directory().join(&self.name).with_extension("stderr");
        if !faults.is_empty() {
            return faults;
        }
        if std::env::var_os("DISKLET_UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &said).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if said != expected {
            faults.push(format!(
                "{}: said\n{said}\ninstead of\n{expected}",
                self.name
            ));
        }
        faults
    }
}

/// The cases whose number begins with `tens`, in order.
fn cases(tens: char) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(tens) && name.ends_with(".yaml")
        })
        .collect();
    paths.sort();
    paths
}

fn check(tens: char) {
    let paths = cases(tens);
    assert!(!paths.is_empty(), "no cases begin with {tens}");
    let faults: Vec<_> = paths
        .iter()
        .flat_map(|path| Case::read(path).check())
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

macro_rules! groups {
    ($($name:ident: $tens:literal;)*) => {$(
        #[test]
        fn $name() {
            check($tens);
        }
    )*};
}

groups! {
    claims: '0';
    devices_and_disks: '1';
    flexvolume_options: '2';
    names_that_leave_their_directory: '3';
    what_is_missing_and_directories: '4';
    yaml: '5';
    wrong_types: '6';
    annotations: '7';
    several_problems_and_settings: '8';
    slips_that_must_not_pass: '9';
    vm_objects: 'a';
}

#[test]
fn every_expected_text_has_its_case() {
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "stderr") {
            assert!(path.with_extension("yaml").exists(), "{}", path.display());
        }
    }
}
