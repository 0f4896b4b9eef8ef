//! A data directory of its own, and the program on it.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::Digest;

/// A directory that goes away, with a data directory and a configuration.
pub(crate) struct Scratch(PathBuf);

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        Self::below(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    /// Where other users can get to.
    pub(crate) fn for_all(name: &str) -> Self {
        let scratch = Self::below(&std::env::temp_dir(), name);
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&scratch.0, everybody).unwrap();
        scratch
    }

    fn below(directory: &Path, name: &str) -> Self {
        let directory = directory.join(format!("images-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let scratch = Self(directory);
        scratch.configure("");
        scratch
    }

    /// Writes the configuration, with more lines in it. Nothing of the machine
    /// that runs the tests may matter, not even its images.
    pub(crate) fn configure(&self, more: &str) {
        let data = self.path("data").display().to_string();
        let none = match more.contains("systemDataDir") {
            true => String::new(),
            false => format!("systemDataDir: {data}\n"),
        };
        let text = format!("dataDir: {data}\n{none}{more}");
        fs::write(self.path("config.yaml"), text).unwrap();
    }

    /// Configures a mapping of images.
    pub(crate) fn map(&self, mapping: &str) {
        let path = self.write("mapping.yaml", mapping);
        self.configure(&format!("imageTranslations: {}\n", path.display()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// `disklet images`, ready to be run.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.through(Command::new(env!("CARGO_BIN_EXE_disklet")), args)
    }

    /// The same by way of a shell that has said something before.
    pub(crate) fn after(&self, said: &str, args: &[&str]) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{said}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_disklet"));
        self.through(shell, args)
    }

    /// The same by way of another program.
    pub(crate) fn through(&self, mut command: Command, args: &[&str]) -> Command {
        command.current_dir(&self.0).arg("images").args(args);
        command.args(["--config", "config.yaml"]);
        // Nothing of the machine that runs the tests may matter.
        for variable in ["http", "https", "all", "no"] {
            command.env_remove(format!("{variable}_proxy"));
            command.env_remove(format!("{variable}_proxy").to_uppercase());
        }
        command
    }

    pub(crate) fn images(&self, args: &[&str]) -> Outcome {
        Outcome::of(self.command(args).output().unwrap())
    }

    /// The same, which must not take long.
    pub(crate) fn in_time(&self, args: &[&str]) -> Outcome {
        let mut timeout = Command::new("timeout");
        timeout.args(["20", env!("CARGO_BIN_EXE_disklet")]);
        let outcome = Outcome::of(self.through(timeout, args).output().unwrap());
        assert_ne!(
            outcome.code,
            Some(124),
            "{args:?} does not end: {outcome:?}"
        );
        outcome
    }

    pub(crate) fn succeeds(&self, args: &[&str]) -> String {
        let outcome = self.images(args);
        assert_eq!(outcome.code, Some(0), "{args:?}: {}", outcome.stderr);
        outcome.stdout
    }

    /// Fails with one message, which it gives back.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        self.images(args).refused()
    }

    /// What `ls` tells programs.
    pub(crate) fn listed(&self) -> Vec<Value> {
        serde_json::from_str(&self.succeeds(&["ls", "-o", "json"])).unwrap()
    }

    /// The disk of an image.
    pub(crate) fn disk(&self, name: &str) -> Vec<u8> {
        let listed = self.listed();
        let image = listed.iter().find(|image| image["name"] == name).unwrap();
        let digest = image["digest"].as_str().unwrap();
        fs::read(self.stored(digest)).unwrap()
    }

    pub(crate) fn stored(&self, digest: &str) -> PathBuf {
        let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
        self.path("data/images/sha256").join(digest)
    }

    /// The files of the store, but for the lock that always stays.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.path("data/images"), &mut found);
        let root = self.path("data/images");
        let mut names: Vec<_> = found
            .iter()
            .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
            .filter(|name| name != "locks/store")
            .collect();
        names.sort();
        names
    }

    /// The record of a VM.
    pub(crate) fn vm(&self, name: &str, images: &[&str]) {
        let record = serde_json::json!({
            "version": 1, "namespace": "default", "name": name, "uuid": name,
            "created": 0, "images": images, "made": [],
        });
        self.write(&format!("data/vms/{name}/record.json"), record.to_string());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The one message of a run that failed.
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let errors = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{self:?}");
        self.stderr
    }
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            collect(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

/// Bytes that no other number gives, and that nothing packs.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = sha2::Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
