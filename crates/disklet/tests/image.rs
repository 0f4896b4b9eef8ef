//! `disklet image`, judged by qemu-img.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("image-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn disklet(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
        command.arg("image").args(args).current_dir(&self.0);
        command
    }

    fn succeeds(&self, args: &[&str]) -> String {
        let output = self.disklet(args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {told}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.disklet(args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        told
    }

    fn qemu(&self, args: &[&str]) -> String {
        let mut command = Command::new("qemu-img");
        let output = command.args(args).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "qemu-img {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A disk with data, text and holes.
    fn disk(&self, name: &str, mebibytes: usize) {
        let mut bytes = vec![0; mebibytes << 20];
        for (index, block) in bytes.chunks_mut(65536).enumerate() {
            match index % 4 {
                0 => block.fill(u8::try_from(index % 200 + 1).unwrap()),
                1 => block.iter_mut().enumerate().for_each(|(at, byte)| {
                    *byte = u8::try_from((at * 31 + index * 7) % 251).unwrap();
                }),
                _ => {}
            }
        }
        fs::write(self.0.join(name), bytes).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn disks_go_there_and_back_unchanged() {
    let scratch = Scratch::new("convert");
    scratch.disk("disk.raw", 9);
    for (number, options) in [
        &[][..],
        &["-c", "zlib"],
        &["-c", "zstd"],
        &["--cluster-size", "4K"],
    ]
    .into_iter()
    .enumerate()
    {
        let image = format!("{number}.qcow2");
        let mut args = vec!["convert", "-f", "raw", "-O", "qcow2"];
        args.extend_from_slice(options);
        args.extend(["disk.raw", &image]);
        scratch.succeeds(&args);
        scratch.qemu(&["check", "-q", &image]);
        scratch.qemu(&[
            "compare", "-q", "-f", "raw", "-F", "qcow2", "disk.raw", &image,
        ]);
        scratch.succeeds(&["convert", "-f", "qcow2", "-O", "raw", &image, "back.raw"]);
        scratch.qemu(&[
            "compare", "-q", "-f", "raw", "-F", "raw", "disk.raw", "back.raw",
        ]);
        scratch.succeeds(&["compare", "-f", "qcow2", "-F", "raw", &image, "back.raw"]);
    }
}

#[test]
fn what_is_told_agrees_with_qemu_img() {
    let scratch = Scratch::new("told");
    scratch.disk("disk.raw", 5);
    scratch.qemu(&[
        "convert",
        "-f",
        "raw",
        "-O",
        "qcow2",
        "-c",
        "disk.raw",
        "disk.qcow2",
    ]);
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let ours = json(&scratch.succeeds(&["info", "-f", "qcow2", "-o", "json", "disk.qcow2"]));
    let theirs = json(&scratch.qemu(&["info", "-f", "qcow2", "--output=json", "disk.qcow2"]));
    for field in [
        "virtual-size",
        "actual-size",
        "cluster-size",
        "format",
        "dirty-flag",
    ] {
        assert_eq!(ours[field], theirs[field], "{field}");
    }
    for field in [
        "compat",
        "compression-type",
        "refcount-bits",
        "corrupt",
        "extended-l2",
    ] {
        let data = |info: &Value| info["format-specific"]["data"][field].clone();
        assert_eq!(data(&ours), data(&theirs), "{field}");
    }
    let ours = json(&scratch.succeeds(&[
        "measure", "-f", "raw", "-O", "qcow2", "-o", "json", "disk.raw",
    ]));
    let theirs = json(&scratch.qemu(&[
        "measure",
        "-f",
        "raw",
        "-O",
        "qcow2",
        "--output=json",
        "disk.raw",
    ]));
    assert_eq!(ours["fully-allocated"], theirs["fully-allocated"]);
    let extents = json(&scratch.succeeds(&["map", "-f", "qcow2", "-o", "json", "disk.qcow2"]));
    let covered: u64 = extents
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["length"].as_u64().unwrap())
        .sum();
    assert_eq!(covered, 5 << 20);
}

#[test]
fn overlays_are_made_and_opened_through_the_gate_only() {
    let scratch = Scratch::new("overlay");
    scratch.disk("base.raw", 2);
    let base = scratch.0.join("base.raw").display().to_string();
    scratch.succeeds(&[
        "create",
        "-f",
        "qcow2",
        "-b",
        &base,
        "-F",
        "raw",
        "top.qcow2",
    ]);
    scratch.qemu(&["check", "-q", "top.qcow2"]);
    scratch.qemu(&[
        "compare",
        "-q",
        "-f",
        "raw",
        "-F",
        "qcow2",
        "base.raw",
        "top.qcow2",
    ]);
    let told = scratch.fails(
        1,
        &["convert", "-f", "qcow2", "-O", "raw", "top.qcow2", "x.raw"],
    );
    assert!(
        told.contains("may not name other files") && told.contains("--allow-below"),
        "{told}"
    );
    let args = [
        "compare",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "--allow-below",
        ".",
        "top.qcow2",
        "base.raw",
    ];
    scratch.succeeds(&args);
    assert_eq!(scratch.names(), ["base.raw", "top.qcow2"]);
}

#[test]
fn refusals_leave_nothing_behind() {
    let scratch = Scratch::new("refusals");
    scratch.disk("disk.raw", 1);
    scratch.fails(1, &["convert", "-f", "qcow2", "-O", "raw", "disk.raw", "x"]);
    scratch.fails(1, &["convert", "-f", "raw", "-O", "raw", "missing", "x"]);
    scratch.fails(
        1,
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "raw",
            "disk.raw",
            "no/such/place",
        ],
    );
    scratch.fails(1, &["create", "-f", "raw", "disk.raw", "1M"]);
    scratch.fails(
        2,
        &["create", "-f", "qcow2", "x", "--cluster-size", "100", "1M"],
    );
    scratch.fails(2, &["create", "-f", "qcow2", "x"]);
    scratch.fails(2, &["create", "-f", "qcow2", "x", "12XB"]);
    scratch.fails(2, &["info", "disk.raw"]);
    scratch.fails(3, &["compare", "-f", "raw", "disk.raw", "missing"]);
    assert_eq!(scratch.names(), ["disk.raw"]);
}

#[test]
fn disks_that_differ_are_told_where() {
    let scratch = Scratch::new("differ");
    scratch.disk("one.raw", 1);
    let mut bytes = fs::read(scratch.0.join("one.raw")).unwrap();
    bytes[700_001] ^= 1;
    fs::write(scratch.0.join("other.raw"), bytes).unwrap();
    let output = scratch.disklet(&["compare", "-f", "raw", "one.raw", "other.raw"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"The disks differ at offset 700001.\n");
}

/// Until the program has the file open that has no name yet: it is at work.
fn wait_for_nameless_file(pid: u32) {
    let open = || {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let mut links = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok());
        links.any(|link| link.to_string_lossy().ends_with("(deleted)"))
    };
    let start = Instant::now();
    while !open() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "no new file was opened"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_conversion_leaves_the_old_file_and_no_other() {
    let scratch = Scratch::new("killed");
    scratch.disk("disk.raw", 128);
    fs::write(scratch.0.join("target.qcow2"), b"old").unwrap();
    // Not INT: who started the tests may have it ignored, and that is inherited.
    for signal in ["KILL", "TERM"] {
        let args = [
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            "-c",
            "zlib",
            "-t",
            "1",
            "disk.raw",
            "target.qcow2",
        ];
        let mut child = scratch
            .command(&args)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_nameless_file(child.id());
        let pid = child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", signal, &pid])
            .status()
            .unwrap();
        let status = child.wait().unwrap();
        assert!(
            sent.success() && !status.success(),
            "it was over before the signal"
        );
        assert_eq!(scratch.names(), ["disk.raw", "target.qcow2"]);
        assert_eq!(fs::read(scratch.0.join("target.qcow2")).unwrap(), b"old");
    }
}
