//! `kubectl disklet` as a user has it: a program in PATH that kubectl finds.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use super::Tenant;

/// The plugin for one tenant.
pub(crate) struct Plugin {
    directory: PathBuf,
    namespace: String,
}

/// What a command has said, and its exit code.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

fn cluster_directory() -> PathBuf {
    let directory = std::env::var_os("DISKLET_KUBE_DIR");
    directory
        .expect("script/lib/kube/installed.sh runs this")
        .into()
}

impl Plugin {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        let directory = std::env::temp_dir().join(format!("disklet-plugin-{}", tenant.name));
        fs::create_dir_all(&directory).expect("a directory");
        let disklet = cluster_directory().join("shared/disklet");
        for name in ["kubectl-disklet", "kubectl_complete-disklet"] {
            symlink(&disklet, directory.join(name)).expect("a link");
        }
        Self {
            directory,
            namespace: tenant.name.clone(),
        }
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments);
        command.env("PATH", format!("{}:{path}", self.directory.display()));
        command
    }

    /// `kubectl disklet …`, in the tenant's namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Command {
        let all = [&["disklet"], arguments, &["-n", &self.namespace]].concat();
        self.command(Path::new("kubectl"), &all)
    }

    pub(crate) fn said(&self, arguments: &[&str], input: &str) -> Said {
        said(self.kubectl(arguments), input)
    }

    /// What it says; it must succeed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let said = self.said(arguments, "");
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
        said.out
    }

    /// As kubectl asks when somebody presses Tab.
    pub(crate) fn completed(&self, words: &[&str]) -> String {
        let program = self.directory.join("kubectl_complete-disklet");
        said(self.command(&program, words), "").out
    }

    /// The same on a terminal.
    pub(crate) fn on_a_terminal(&self, arguments: &[&str]) -> Terminal {
        Terminal::run(&self.directory, &self.kubectl(arguments))
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn said(mut command: Command, input: &str) -> Said {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("it ends");
    Said {
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// A terminal with a command on it. What it is set to is written down before and
/// after the command.
pub(crate) struct Terminal {
    script: Child,
    out: ChildStdout,
    before: PathBuf,
    after: PathBuf,
}

impl Terminal {
    fn run(directory: &Path, command: &Command) -> Self {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_str().expect("text")).collect();
        let (before, after) = (directory.join("before"), directory.join("after"));
        let inside = format!(
            "stty rows 33 cols 99; stty -a >{}; {}; echo left with $?; stty -a >{}",
            before.display(),
            words.join(" "),
            after.display()
        );
        let environment = command.get_envs();
        let mut script = Command::new("script")
            .args(["-qec", &inside, "/dev/null"])
            .envs(environment.filter_map(|(key, value)| Some((key, value?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script starts");
        let out = script.stdout.take().expect("a pipe");
        Self {
            script,
            out,
            before,
            after,
        }
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        let stdin = self.script.stdin.as_mut().expect("a pipe");
        stdin.write_all(keys).expect("it reads");
    }

    /// Reads until a text has come; all that has.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(text.as_bytes()) {
            let so_far = String::from_utf8_lossy(&seen);
            assert_eq!(
                self.out.read(&mut byte).expect("it says something"),
                1,
                "{so_far}"
            );
            seen.push(byte[0]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    }

    /// Waits for the end; what the command left with, and all it said till then.
    /// The terminal has to be what it was.
    pub(crate) fn end(mut self) -> (u8, String) {
        let said = self.read_until("left with ");
        let code = self.read_until("\n");
        drop(self.script.stdin.take());
        self.script.wait().expect("it ends");
        let read = |path: &Path| fs::read_to_string(path).expect("stty wrote it");
        assert_eq!(read(&self.before), read(&self.after));
        (code.trim().parse().expect("a code"), said)
    }
}
