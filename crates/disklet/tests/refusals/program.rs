//! Running the program, and what holds for every refusal.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use disklet_core::diag::is_unprintable;

/// Where the cases are.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals")
}

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// What the cases use for secret values, plain and in base64.
const SECRETS: [&str; 2] = ["hunter2", "aHVudGVyM"];

/// How the lines of a refusal begin.
const LINES: [&str; 6] = [
    "error: ",
    "notice: ",
    "  found: ",
    "  allowed: ",
    "  help: ",
    "refused: ",
];

impl Outcome {
    /// What no refusal may do.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        self.faults_with(1)
    }

    /// The same, for a run that must end with another code.
    pub(crate) fn faults_with(&self, wanted: i32) -> impl Iterator<Item = String> + use<> {
        let shown = |what: &str| self.stderr.contains(what) || self.stdout.contains(what);
        let beginning: String = self.stderr.chars().take(2000).collect();
        let mut faults = Vec::new();
        if shown("panicked at") || shown("RUST_BACKTRACE") {
            faults.push(format!("panics: {beginning}"));
        } else if self.code != Some(wanted) {
            faults.push(match self.code {
                Some(0) => format!("is accepted: {beginning}"),
                code => format!("exits with {code:?}: {beginning}"),
            });
        }
        if self.code == Some(wanted) && !self.stdout.is_empty() {
            faults.push(format!("prints {:?}", self.stdout));
        }
        if SECRETS.iter().any(|secret| shown(secret)) {
            faults.push(format!("shows a secret: {beginning}"));
        }
        // The refusal is the last line, and at least one reason comes first.
        if self.code == Some(wanted) && !self.stderr.contains("error: ") {
            faults.push(format!("gives no reason: {beginning}"));
        }
        // Neither a terminal nor a reader may be misled by what was found.
        let odd = |c: char| is_unprintable(c) && c != '\n';
        if self.stderr.chars().any(odd) || self.stdout.chars().any(odd) {
            faults.push(format!(
                "writes control or invisible characters: {beginning:?}"
            ));
        }
        let ours = |line: &str| LINES.iter().any(|start| line.starts_with(start));
        if self.code == Some(wanted) && !self.stderr.lines().all(ours) {
            faults.push(format!("has lines of another kind: {beginning:?}"));
        }
        faults.into_iter()
    }

    pub(crate) fn assert_refused(&self) {
        let faults: Vec<_> = self.faults().collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    pub(crate) fn assert_says(&self, wanted: &str) {
        self.assert_refused();
        assert!(self.stderr.contains(wanted), "{:.2000}", self.stderr);
    }
}

/// The program, without what the environment of a test might tell it.
pub(crate) fn program() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_disklet")))
}

/// What a run may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) mebibytes: u32,
    pub(crate) cpu_seconds: u32,
}

/// The program with so many seconds: one that waits for ever ends with 124.
pub(crate) fn program_for_seconds(seconds: u32) -> Command {
    let mut command = clean(Command::new("timeout"));
    command
        .arg(seconds.to_string())
        .arg(env!("CARGO_BIN_EXE_disklet"));
    command
}

/// The program with so much address space and time, by way of a shell: a bomb
/// must not take the machine of the tests with it.
pub(crate) fn program_within(budget: Budget) -> Command {
    let mut command = clean(Command::new("sh"));
    let limits = format!(
        "ulimit -v {}; ulimit -t {}; exec \"$@\"",
        budget.mebibytes << 10,
        budget.cpu_seconds
    );
    command
        .args(["-c", &limits, "sh"])
        .arg(env!("CARGO_BIN_EXE_disklet"));
    command
}

fn clean(mut command: Command) -> Command {
    for variable in [
        "DISKLET_CONFIG",
        "VIRTLET_RAW_DEVICES",
        "RUST_BACKTRACE",
        "COLUMNS",
    ] {
        command.env_remove(variable);
    }
    command.current_dir(directory());
    command
}

/// Runs `disklet plan` with arguments and a standard input.
pub(crate) fn plan<S: AsRef<std::ffi::OsStr>>(args: &[S], stdin: &[u8]) -> Outcome {
    let mut command = program();
    command.arg("plan").args(args);
    run(command, stdin)
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command, stdin: &[u8]) -> Outcome {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program that has seen enough closes its end.
        scope.spawn(move || pipe.write_all(stdin).ok());
        child.wait_with_output().unwrap()
    });
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A directory that is gone after its test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("refusals-{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A VM pod whose container ends the text, so that more of it can follow.
pub(crate) const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: vm}
spec:
  runtimeClassName: disklet
  containers:
  - name: vm
    image: cirros
";
