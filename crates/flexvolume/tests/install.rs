//! The driver installs itself where the kubelet looks for it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const DRIVER: &str = env!("CARGO_BIN_EXE_disklet-flexvolume");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const PLUGINS: [&str; 2] = [
    "virtlet~flexvolume_driver",
    "kubernetes.io~flexvolume_driver",
];

struct Plugins(PathBuf);

impl Plugins {
    fn new(test: &str) -> Self {
        let name = format!("disklet-flexvolume-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    fn directory(&self) -> PathBuf {
        self.0.join("exec")
    }

    fn run(&self, program: impl AsRef<Path>, command: &str) -> Output {
        let mut driver = Command::new(program.as_ref());
        driver.arg(command).arg(self.directory()).output().unwrap()
    }

    fn done(&self, command: &str) -> String {
        let output = self.run(DRIVER, command);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn executable(&self, plugin: &str) -> PathBuf {
        self.directory().join(plugin).join("flexvolume_driver")
    }

    /// Every path below, so that nothing hidden is missed.
    fn all(&self) -> Vec<String> {
        let output = Command::new("find").arg(".").current_dir(&self.0).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let mut all: Vec<_> = text.lines().map(str::to_owned).collect();
        all.sort();
        all
    }

    fn put(&self, plugin: &str, content: &[u8]) {
        let path = self.executable(plugin);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const INSTALLED: [&str; 6] = [
    ".",
    "./exec",
    "./exec/kubernetes.io~flexvolume_driver",
    "./exec/kubernetes.io~flexvolume_driver/flexvolume_driver",
    "./exec/virtlet~flexvolume_driver",
    "./exec/virtlet~flexvolume_driver/flexvolume_driver",
];

#[test]
fn it_is_installed_once_under_both_names() {
    let plugins = Plugins::new("once");
    let told: String = PLUGINS
        .map(|plugin| format!("{plugin}: installed version {VERSION}\n"))
        .concat();
    assert_eq!(plugins.done("install"), told);
    assert_eq!(plugins.all(), INSTALLED);
    let identity = |plugin| {
        let found = fs::metadata(plugins.executable(plugin)).unwrap();
        assert_eq!(found.mode() & 0o7777, 0o755);
        (found.ino(), found.mtime_nsec(), found.ctime_nsec())
    };
    let first = PLUGINS.map(identity);
    for plugin in PLUGINS {
        let path = plugins.executable(plugin);
        assert_eq!(fs::read(&path).unwrap(), fs::read(DRIVER).unwrap());
        let answer = Command::new(path).arg("init").output().unwrap();
        assert!(answer.stdout.starts_with(b"{\"status\":\"Success\""));
    }
    let again: String = PLUGINS
        .map(|plugin| format!("{plugin}: version {VERSION} is there already\n"))
        .concat();
    assert_eq!(plugins.done("install"), again);
    assert_eq!(PLUGINS.map(identity), first);
    assert_eq!(plugins.all(), INSTALLED);
}

#[test]
fn another_version_or_driver_is_replaced_in_place() {
    let plugins = Plugins::new("replaced");
    let mut older = b"\x7fELF\0disklet-flexvolume version \xff".to_vec();
    older.extend(b"\0disklet-flexvolume version 0.0.7-rc1\nrest");
    plugins.put(PLUGINS[0], &older);
    plugins.put(PLUGINS[1], b"#!/bin/sh\n");
    // Somebody runs the old one: its file must not change under them.
    let running = File::open(plugins.executable(PLUGINS[0])).unwrap();
    let told = plugins.done("install");
    assert_eq!(
        told,
        format!(
            "{}: replaced version 0.0.7-rc1 by {VERSION}\n\
             {}: replaced another driver by version {VERSION}\n",
            PLUGINS[0], PLUGINS[1]
        )
    );
    assert_eq!(running.metadata().unwrap().nlink(), 0);
    assert_eq!(running.metadata().unwrap().len(), older.len() as u64);
    assert_eq!(plugins.all(), INSTALLED);
}

#[test]
fn a_lost_mode_is_mended() {
    let plugins = Plugins::new("mode");
    plugins.done("install");
    let path = plugins.executable(PLUGINS[0]);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert!(plugins.done("install").contains("replaced"));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn what_an_interrupted_installation_left_is_in_nobodys_way() {
    let plugins = Plugins::new("interrupted");
    let exec = plugins.directory();
    fs::create_dir_all(exec.join(".virtlet~flexvolume_driver.new")).unwrap();
    fs::write(
        exec.join(".virtlet~flexvolume_driver.new/flexvolume_driver"),
        "half",
    )
    .unwrap();
    plugins.put(PLUGINS[1], b"old");
    let half = plugins
        .directory()
        .join(PLUGINS[1])
        .join(".flexvolume_driver.new");
    fs::write(half, "half").unwrap();
    plugins.done("install");
    assert_eq!(plugins.all(), INSTALLED);
}

#[test]
fn two_at_once_do_not_meet() {
    let plugins = Plugins::new("two");
    let spawn = |_| {
        let mut driver = Command::new(DRIVER);
        driver.stdout(Stdio::null());
        driver
            .arg("install")
            .arg(plugins.directory())
            .spawn()
            .unwrap()
    };
    for mut child in (0..6).map(spawn).collect::<Vec<_>>() {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(plugins.all(), INSTALLED);
}

#[test]
fn it_is_uninstalled_and_others_are_left() {
    let plugins = Plugins::new("uninstalled");
    assert!(plugins.done("uninstall").contains("is not there"));
    plugins.done("install");
    fs::write(plugins.directory().join(PLUGINS[0]).join("notes"), "").unwrap();
    let told = PLUGINS
        .map(|plugin| format!("{plugin}: removed\n"))
        .concat();
    assert_eq!(plugins.done("uninstall"), told);
    let rest = ["./exec", "./exec/virtlet~flexvolume_driver"];
    assert_eq!(plugins.all()[1..3], rest);
    assert_eq!(plugins.all().len(), 4);
    plugins.put(PLUGINS[1], b"another's");
    let told = plugins.done("uninstall");
    assert!(
        told.contains("another driver is there, and stays"),
        "{told}"
    );
    assert_eq!(
        fs::read(plugins.executable(PLUGINS[1])).unwrap(),
        b"another's"
    );
}
