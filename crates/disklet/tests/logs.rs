//! What a program of a cluster logs, as the program itself writes it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

use std::process::Command;

use serde_json::Value;

/// What the controller logs that finds no cluster.
fn logged(options: &[&str]) -> String {
    let mut disklet = Command::new(env!("CARGO_BIN_EXE_disklet"));
    disklet.args(["controller", "--launcher-image=example.com/disklet"]);
    disklet.args(options);
    let nowhere = std::env::temp_dir().join("no-such-kubeconfig");
    disklet.env("KUBECONFIG", nowhere).env_remove("DISKLET_LOG");
    disklet.env_remove("KUBERNETES_SERVICE_HOST");
    let output = disklet.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_log_is_of_json_unless_it_shall_not_be() {
    let log = logged(&[]);
    let (lines, told): (Vec<_>, Vec<_>) = log.lines().partition(|line| line.starts_with('{'));
    assert!(!lines.is_empty(), "{log}");
    for line in lines {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["timestamp"].is_string(), "{line}");
        assert_eq!(line["level"], "ERROR", "{line}");
        let message = line["message"].as_str().unwrap();
        assert!(message.contains("cannot reach a cluster"), "{line}");
    }
    // For whoever has started it by hand.
    assert!(told.iter().all(|line| line.starts_with("error: ")), "{log}");

    let log = logged(&["--log-format", "text"]);
    assert!(!log.contains('{') && log.contains(" ERROR "), "{log}");
}
