//! `kubectl disklet` and `disklet uninstall` before a cluster, and before servers that are
//! none: what they say, and what they must not say.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kubectl/names.rs"]
mod names;
#[path = "kubectl/server.rs"]
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use disklet_core::diag::is_unprintable;

/// What came of a run.
pub(crate) struct Told {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Told {
    /// Refused in so many lines of ours, with these words and none of a secret.
    pub(crate) fn assert_refused(&self, wanted: &str) {
        let said = &self.stderr;
        assert_eq!(self.code, Some(1), "{said}");
        assert!(said.starts_with("error: "), "{said}");
        assert!(said.contains(wanted), "{wanted:?}: {said}");
        let is_ours = |line: &str| line.starts_with("error: ") || line.starts_with("  help: ");
        assert!(said.lines().all(is_ours), "{said}");
        self.assert_harmless();
    }

    pub(crate) fn assert_harmless(&self) {
        let said = format!("{}{}", self.stdout, self.stderr);
        assert!(!said.contains("hunter2"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        let odd = |c: char| c != '\n' && is_unprintable(c);
        assert!(!said.chars().any(odd), "{said:?}");
    }
}

fn run(name: &str, args: &[&str], kubeconfig: &str) -> Told {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.arg0(name).args(args);
    for unwanted in ["HTTPS_PROXY", "https_proxy", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(unwanted);
    }
    command.env("HOME", "/nonexistent");
    command.env("KUBECONFIG", kubeconfig);
    let output = command.output().unwrap();
    Told {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs `disklet` itself.
pub(crate) fn disklet(args: &[&str], kubeconfig: &str) -> Told {
    run("disklet", args, kubeconfig)
}

/// Runs the plugin with a list of kubeconfigs.
pub(crate) fn plugin(args: &[&str], kubeconfig: &str) -> Told {
    run("kubectl-disklet", args, kubeconfig)
}

/// A directory that is gone after its test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("kubectl-{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file that may be run, too.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A kubeconfig of a server and what its user has.
pub(crate) fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: \"{server}\"}}}}]\n\
         users:\n- name: u\n  user: {{{user}}}\n"
    )
}

/// Where nobody listens.
pub(crate) const NOBODY: &str = "https://127.0.0.1:1";

/// Both programs, with a kubeconfig that is given, and that is found.
fn refuse_with(file: &str, wanted: &str) {
    plugin(&["describe", "x"], file).assert_refused(wanted);
    plugin(&["describe", "x", "--kubeconfig", file], "").assert_refused(wanted);
    disklet(&["uninstall", "--dry-run"], file).assert_refused(wanted);
    let given = ["uninstall", "--dry-run", "--kubeconfig", file];
    disklet(&given, "").assert_refused(wanted);
}

#[test]
fn what_an_exec_plugin_writes_is_not_shown() {
    let scratch = Scratch::new("exec");
    for (script, wanted) in [
        (
            "echo hunter2; exit 1",
            "the exec plugin has failed: exit status: 1",
        ),
        ("echo '{\"status\": hunter2: {'", "no ExecCredential"),
        (
            "echo '{\"status\": {\"expirationTimestamp\": \"hunter2\", \"token\": \"t\"}}'",
            "no ExecCredential",
        ),
    ] {
        let script = scratch.file("login", &format!("#!/bin/sh\n{script}\n"));
        let user = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{script}]}}"
        );
        let file = scratch.file("config", &kubeconfig(NOBODY, &user));
        refuse_with(&file, wanted);
    }
}

#[test]
fn the_lines_of_a_kubeconfig_are_not_shown() {
    let scratch = Scratch::new("slips");
    for (user, wanted) in [
        ("token: {a: hunter2}", "cannot be understood"),
        ("password: hunter2, token: [", "cannot be understood"),
        (
            "client-key: hunter2, client-certificate: hunter2",
            "client-certificate names cannot be read",
        ),
        (
            "client-key-data: hunter2!, client-certificate-data: hunter2!",
            "not in base64",
        ),
        ("auth-provider: {name: hunter2}", "cannot be used"),
        ("tokenFile: hunter2", "tokenFile names cannot be read"),
    ] {
        let file = scratch.file("config", &kubeconfig(NOBODY, user));
        refuse_with(&file, wanted);
    }
    let file = scratch.file("config", &kubeconfig(NOBODY, "token: {a: hunter2}"));
    let told = plugin(&["describe", "x"], &file);
    told.assert_refused(&file);
    told.assert_refused("line ");
    let nowhere = kubeconfig(NOBODY, "").replace("current-context: c", "current-context: hunter2");
    refuse_with(&scratch.file("config", &nowhere), "has no context");
}

#[test]
fn credentials_that_no_request_can_carry_are_refused() {
    let scratch = Scratch::new("credentials");
    let file = scratch.file("config", &kubeconfig(NOBODY, ""));
    for args in [
        &["describe", "x", "--token", "abc\ndef"][..],
        &["describe", "x", "--as", "a\nb"],
        &["describe", "x", "--as", "a", "--as-group", "a\nb"],
        &["describe", "x", "--as", "a", "--as-uid", "a\nb"],
    ] {
        plugin(args, &file).assert_refused("control character");
    }
    for user in [
        r#"token: "abc\ndef""#,
        r#"as: "a\nb""#,
        r#"as: a, as-groups: ["a\nb"]"#,
    ] {
        let file = scratch.file("config", &kubeconfig(NOBODY, user));
        refuse_with(&file, "control character");
    }
}

#[test]
fn the_end_of_a_tokens_line_does_not_belong_to_it() {
    let scratch = Scratch::new("token");
    let token = scratch.file("token", "abc\n");
    for user in [
        r#"token: "abc\n""#.to_owned(),
        format!("tokenFile: {token}"),
    ] {
        let file = scratch.file("config", &kubeconfig(NOBODY, &user));
        refuse_with(&file, "cannot be reached");
    }
    let file = scratch.file("config", &kubeconfig(NOBODY, ""));
    plugin(&["describe", "x", "--token", "abc\n"], &file).assert_refused("cannot be reached");
}

#[test]
fn a_kubeconfig_without_end_is_refused() {
    refuse_with("/dev/zero", "cannot be read: it has more than 32 MiB");
    let scratch = Scratch::new("endless");
    let file = scratch.file("config", "");
    let sparse = fs::File::options().write(true).open(&file).unwrap();
    sparse.set_len((32 << 20) + 1).unwrap();
    refuse_with(&file, "cannot be read: it has more than 32 MiB");
}

/// As from another program's output: it can be read once only.
#[test]
fn a_kubeconfig_may_be_a_pipe() {
    let scratch = Scratch::new("pipe");
    let pipe = format!("{}.pipe", scratch.file("config", ""));
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let written = pipe.clone();
    let writer = std::thread::spawn(move || fs::write(written, kubeconfig(NOBODY, "")));
    plugin(&["describe", "x", "--kubeconfig", &pipe], "").assert_refused("cannot be reached");
    writer.join().unwrap().unwrap();
}

#[test]
fn kubeconfigs_of_a_list_need_not_be_there() {
    let scratch = Scratch::new("list");
    let file = scratch.file("config", &kubeconfig(NOBODY, ""));
    plugin(&["describe", "x"], &format!("/nonexistent:{file}")).assert_refused("cannot be reached");
    plugin(&["describe", "x"], "/nonexistent:/neither").assert_refused("no kubeconfig");
    let server = ["describe", "x", "--server", NOBODY];
    plugin(&server, "/nonexistent")
        .assert_refused("VM default/x: the API server cannot be reached: Connection refused");
    plugin(&["describe", "x", "--server", "a b"], "").assert_refused("is no address");
    plugin(&["describe", "x", "--kubeconfig", "/nonexistent"], &file)
        .assert_refused("cannot be read");
}
