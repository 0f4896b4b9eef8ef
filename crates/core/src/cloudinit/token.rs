//! The token in a user's script that gives way to the mounting of disks.
//!
//! What takes its place is shell code of many lines, so the token must be a
//! command of its own in a shell's script: amid a line or in another language
//! the result would not even parse.

use super::UserDataSpec;

/// Where the mount script goes in a user's script.
pub const MOUNT_SCRIPT_TOKEN: &str = "@virtlet-mount-script@";

/// The interpreters that understand the mount script.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "ksh", "mksh", "yash", "zsh"];

/// Why the token cannot stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenProblem {
    /// There is something else on its line; lines count from 1.
    AmidLine(usize),
    /// The script is not a shell's; this is its first line.
    NoShell(String),
}

/// What is wrong with the tokens of a script.
#[must_use]
pub fn token_problem(script: &str) -> Option<TokenProblem> {
    if !script.contains(MOUNT_SCRIPT_TOKEN) {
        return None;
    }
    if let Some(index) = script.lines().position(amid) {
        return Some(TokenProblem::AmidLine(index + 1));
    }
    let first = script.lines().next().unwrap_or_default();
    (!is_for_a_shell(script)).then(|| TokenProblem::NoShell(first.to_owned()))
}

fn amid(line: &str) -> bool {
    line.contains(MOUNT_SCRIPT_TOKEN) && line.trim() != MOUNT_SCRIPT_TOKEN
}

/// Lines that cloud-init takes away before the script is run.
fn is_cloud_inits(line: &str) -> bool {
    line.starts_with("#cloud-boothook") || is_template_header(line)
}

/// The line that makes cloud-init render a document before it is read.
pub(crate) fn is_template_header(line: &str) -> bool {
    line.strip_prefix("##").is_some_and(|rest| {
        let word = rest.trim_start().get(..9);
        word.is_some_and(|word| word.eq_ignore_ascii_case("template:"))
    })
}

fn is_for_a_shell(script: &str) -> bool {
    let first = script.lines().find(|line| !is_cloud_inits(line));
    let Some(command) = first.and_then(|line| line.strip_prefix("#!")) else {
        return false;
    };
    let mut words = command.split_whitespace();
    let mut program = words.next().map(name_of);
    if program == Some("env") {
        program = words
            .find(|word| !word.starts_with('-') && !word.contains('='))
            .map(name_of);
    }
    if program == Some("busybox") {
        program = words.next();
    }
    program.is_some_and(|program| SHELLS.contains(&program))
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl UserDataSpec {
    /// Whether the guest links and mounts its disks: a script does so only
    /// where it has the token.
    #[must_use]
    pub fn mounts_disks(&self) -> bool {
        match self {
            Self::Config(_) => true,
            Self::Script(script) => script
                .known()
                .is_some_and(|script| script.contains(MOUNT_SCRIPT_TOKEN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_a_line_of_a_shells_script() {
        for first in [
            "#!/bin/sh",
            "#! /bin/bash -e",
            "#!/usr/bin/env sh",
            "#!/usr/bin/env -S LANG=C dash -e",
            "#!/bin/busybox ash",
            "#cloud-boothook\n#!/bin/sh",
            "## template: jinja\n#!/bin/sh",
        ] {
            let script = format!("{first}\n  {MOUNT_SCRIPT_TOKEN}\t\r\necho\n");
            assert_eq!(token_problem(&script), None, "{first}");
        }
        for first in [
            "#!/usr/bin/python3",
            "#!/usr/bin/env python3",
            "#!/usr/bin/env",
            "#!/bin/busybox",
            "#!",
            "#cloud-config",
            "",
        ] {
            let script = format!("{first}\n{MOUNT_SCRIPT_TOKEN}\n");
            let problem = TokenProblem::NoShell(first.to_owned());
            assert_eq!(token_problem(&script), Some(problem), "{first}");
        }
    }

    #[test]
    fn amid_a_line_the_token_would_break_the_script() {
        for line in ["# see ", "echo ", "true; "] {
            let script = format!("#!/bin/sh\n{MOUNT_SCRIPT_TOKEN}\n{line}{MOUNT_SCRIPT_TOKEN}\n");
            assert_eq!(token_problem(&script), Some(TokenProblem::AmidLine(3)));
        }
        assert_eq!(token_problem("#!/usr/bin/python3\nprint()\n"), None);
    }
}
