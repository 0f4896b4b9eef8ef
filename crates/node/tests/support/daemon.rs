//! A libvirtd of a test's own, for tests that others must not feel.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Machine;

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the calling test again, beside a daemon of its own with these settings;
/// whether this is that run.
pub(crate) fn is_beside_own(test: &str, settings: &[(&str, &str)]) -> bool {
    const MARK: &str = "DISKLET_TEST_BESIDE_OWN";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let status = Command::new("bash")
        .arg(repository().join("script/lib/libvirtd.sh"))
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", test])
        .env(MARK, "yes")
        .envs(settings.iter().copied())
        .status()
        .unwrap();
    assert!(status.success(), "beside a daemon of its own: {status}");
    false
}

/// A second libvirtd, which shares nothing with the first; it ends with this.
pub(crate) struct SecondDaemon {
    process: Child,
    pub(crate) uri: String,
}

impl SecondDaemon {
    pub(crate) fn start() -> Self {
        let mut process = Command::new("bash")
            .arg(repository().join("script/lib/libvirtd.sh"))
            .args(["sh", "-c", "echo \"$DISKLET_TEST_LIBVIRT_URI\"; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut uri).unwrap();
        Self {
            process,
            uri: uri.trim().to_owned(),
        }
    }
}

impl Drop for SecondDaemon {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Kills the daemon; it comes again by itself.
pub(crate) fn kill_libvirtd() {
    send("KILL", &libvirtd());
}

/// A daemon that stands still until this is dropped.
pub(crate) struct StoppedDaemon(String);

impl StoppedDaemon {
    pub(crate) fn stop() -> Self {
        let process = libvirtd();
        send("STOP", &process);
        Self(process)
    }
}

impl Drop for StoppedDaemon {
    fn drop(&mut self) {
        send("CONT", &self.0);
    }
}

fn libvirtd() -> String {
    let ancestor = std::env::var("LIBVIRTD_PID").unwrap();
    descendant(&ancestor, "libvirtd").expect("a running libvirtd")
}

fn send(signal: &str, process: &str) {
    let status = Command::new("kill").args(["-s", signal, process]).status();
    assert!(status.unwrap().success());
}

/// Waits for the daemon to come again.
pub(crate) fn until_it_answers(machine: &Machine) {
    let begun = Instant::now();
    while !machine.node(&["ps"]).status.success() {
        assert!(
            begun.elapsed().as_secs() < 90,
            "the daemon does not come again"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn descendant(of: &str, named: &str) -> Option<String> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{of}/{file}")).ok();
    if read("comm")?.trim() == named {
        return Some(of.to_owned());
    }
    let children = read(&format!("task/{of}/children"))?;
    children
        .split_whitespace()
        .find_map(|child| descendant(child, named))
}
