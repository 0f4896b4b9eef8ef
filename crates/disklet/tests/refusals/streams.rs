//! Pipes that close, disks that are full, and terminals.

use std::io::pipe;
use std::process::{Command, Stdio};

use super::disklet;
use super::program::{directory, program};

#[test]
fn a_reader_that_has_seen_enough_is_no_problem() {
    for args in [
        &["plan", "-f", "vm.yaml", "-o", "table"][..],
        &["plan", "-f", "vm.yaml", "-o", "tree"],
        &["plan", "-f", "vm.yaml", "-o", "json"],
        &["plan", "-f", "vm.yaml", "-o", "yaml"],
        &["plan", "-f", "vm.yaml", "-o", "xml"],
        &["plan", "--help"],
        &["--version"],
        &["completion", "bash"],
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = program().args(args).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            told.lines().all(|line| line.starts_with("notice: ")),
            "{args:?}: {told}"
        );
    }
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return;
    };
    for (args, what) in [
        (&["plan", "-f", "vm.yaml"][..], "the plan"),
        (&["plan", "-f", "vm.yaml", "-o", "json"], "the plan"),
        (&["completion", "bash"], "the script"),
        (&["images", "ls"], "the answer"),
        (&["--help"], "the help"),
        (&["plan", "--help"], "the help"),
        (&["--version"], "the help"),
    ] {
        let full = full.try_clone().unwrap();
        let output = program().args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let errors: Vec<_> = stderr
            .lines()
            .filter(|line| !line.starts_with("notice: "))
            .collect();
        let wanted = format!("error: {what} cannot be written: No space left on device");
        assert!(
            matches!(errors[..], [error] if error.starts_with(&wanted)),
            "{args:?}: {stderr}"
        );
    }
}

#[test]
fn a_refusal_does_not_need_standard_error() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = program();
    command.args(["plan", "-f", "absent.yaml"]).stderr(writer);
    assert_eq!(
        command.stdout(Stdio::null()).status().unwrap().code(),
        Some(1)
    );
}

/// What a terminal would get, by way of `script`, which not everybody has.
fn on_a_terminal(args: &str, variables: &[(&str, &str)]) -> Option<String> {
    let command = format!("{} {args}", env!("CARGO_BIN_EXE_disklet"));
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .current_dir(directory())
        .stdin(Stdio::null());
    Some(String::from_utf8(script.output().ok()?.stdout).unwrap())
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    for args in [
        "plan -f vm.yaml",
        "plan -f vm.yaml -o tree",
        "plan -f absent.yaml",
    ] {
        let Some(shown) = on_a_terminal(args, &[]) else {
            return;
        };
        assert!(shown.contains("\x1b["), "{args}: {shown:?}");
        for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let shown = on_a_terminal(args, &[variable]).unwrap();
            assert!(
                !shown.contains('\x1b'),
                "{args} with {variable:?}: {shown:?}"
            );
        }
        let words: Vec<_> = args.split(' ').collect();
        let piped = disklet(&words);
        assert!(!(piped.stdout + &piped.stderr).contains('\x1b'), "{args}");
    }
}
