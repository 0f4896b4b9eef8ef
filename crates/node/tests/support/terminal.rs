//! A terminal of a test's own, with a command of ours on it.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::Machine;

/// A terminal. What it is set to is written down before and after the command.
pub(crate) struct Terminal {
    script: Child,
    out: ChildStdout,
    before: PathBuf,
    after: PathBuf,
}

impl Terminal {
    pub(crate) fn run(machine: &Machine, arguments: &[&str]) -> Self {
        let command = machine.command(arguments);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
        let (before, after) = (machine.path("before"), machine.path("after"));
        let inside = format!(
            "stty -a >{}; {}; echo left with $?; stty -a >{}",
            before.display(),
            words.join(" "),
            after.display()
        );
        let environment = command.get_envs();
        let mut script = Command::new("script")
            .args(["-qec", &inside, "/dev/null"])
            // One that can show bars, wherever the tests run.
            .env("TERM", "xterm")
            .envs(environment.filter_map(|(key, value)| Some((key, value?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = script.stdout.take().unwrap();
        Self {
            script,
            out,
            before,
            after,
        }
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys).unwrap();
    }

    /// Reads until a text has come; all that has.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        read_until(&mut self.out, text)
    }

    /// Waits for the end; what the command left with, and all it said till then.
    /// The terminal has to be what it was.
    pub(crate) fn end(mut self) -> (u8, String) {
        let said = self.read_until("left with ");
        let code = self.read_until("\n");
        drop(self.script.stdin.take());
        self.script.wait().unwrap();
        let read = |path| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(self.before), read(self.after));
        (code.trim().parse().unwrap(), said)
    }
}

impl Terminal {
    /// The same, which must not take longer. Else what is on the terminal is
    /// ended, so that the test fails rather than waits.
    pub(crate) fn end_within(self, patience: Duration) -> (u8, String) {
        let pid = self.script.id().to_string();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let guard = std::thread::spawn(move || {
            let late = is_done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if late {
                let _ = Command::new("kill").args(["-KILL", &pid]).status();
            }
        });
        let ended = self.end();
        drop(done);
        guard.join().unwrap();
        ended
    }
}

/// Reads until a text has come; all that has.
pub(crate) fn read_until(from: &mut impl Read, text: &str) -> String {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(text.as_bytes()) {
        let seen_so_far = String::from_utf8_lossy(&seen);
        assert_eq!(from.read(&mut byte).unwrap(), 1, "{seen_so_far}");
        seen.push(byte[0]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}
