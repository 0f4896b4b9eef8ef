//! Running other programs.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a program with a text on its standard input; what it printed, or how it
/// failed in its own words. A program that is not there fails the test: a check
/// that is left out silently proves nothing.
pub(crate) fn run(program: &str, args: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(args)
        // Messages are compared and read in one language.
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    // Whoever does not read its input says why by itself.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let done = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (stdout, stderr) = (text(&done.stdout), text(&done.stderr));
    if done.status.success() {
        Ok(stdout)
    } else {
        Err(format!("{program} {}\n{stdout}\n{stderr}", args.join(" ")))
    }
}

/// Python with Debian's own modules: that of a user's choice has no cloud-init.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
