//! What the tests of this crate share: scratch directories, QEMU's tools, and
//! numbers that look random and are not.

#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod confined;
pub(crate) mod forge;
pub(crate) mod guest;
pub(crate) mod models;
pub(crate) mod ours;
pub(crate) mod steps;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use disklet_block::device::{Caching, FileDevice};
use disklet_block::qcow2::{CheckReport, Verdict};

/// A directory that goes away.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("disklet-block-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// As an argument.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = attempt(program, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program that may fail.
pub(crate) fn attempt(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{program} is needed: {error}"))
}

pub(crate) fn qemu_img(arguments: &[&str]) -> String {
    run("qemu-img", arguments)
}

pub(crate) fn open(path: &Path) -> FileDevice {
    FileDevice::open(path, Caching::Buffered).unwrap()
}

pub(crate) fn open_writable(path: &Path) -> FileDevice {
    FileDevice::open_writable(path, Caching::Buffered).unwrap()
}

/// A small generator; the same seed gives the same numbers.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.byte());
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}

/// What `qemu-img check` says of an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QemuCheck {
    pub(crate) verdict: Verdict,
    pub(crate) corruptions: u64,
    pub(crate) leaks: u64,
    pub(crate) total: u64,
    pub(crate) allocated: u64,
    pub(crate) compressed: u64,
    pub(crate) fragmented: u64,
    pub(crate) end: u64,
}

impl QemuCheck {
    pub(crate) fn of(path: &Path) -> Self {
        let arguments = ["check", "--output=json", "-f", "qcow2", &shown(path)];
        let output = attempt("qemu-img", &arguments);
        let json = String::from_utf8_lossy(&output.stdout);
        let verdict = match output.status.code() {
            Some(0) => Verdict::Clean,
            Some(3) => Verdict::Leaks,
            _ => Verdict::Corrupt,
        };
        let field = |name: &str| field(&json, name);
        Self {
            verdict,
            corruptions: field("corruptions"),
            leaks: field("leaks"),
            total: field("total-clusters"),
            allocated: field("allocated-clusters"),
            compressed: field("compressed-clusters"),
            fragmented: field("fragmented-clusters"),
            end: field("image-end-offset"),
        }
    }
}

impl From<&CheckReport> for QemuCheck {
    fn from(report: &CheckReport) -> Self {
        Self {
            verdict: report.verdict(),
            corruptions: report.corruptions,
            leaks: report.leaks,
            total: report.total_clusters,
            allocated: report.allocated_clusters,
            compressed: report.compressed_clusters,
            fragmented: report.fragmented_clusters,
            end: report.image_end_offset,
        }
    }
}

/// A number in a flat JSON object; QEMU leaves zeroes out.
fn field(json: &str, name: &str) -> u64 {
    let rest = json.split(&format!("\"{name}\":")).nth(1);
    rest.map_or(0, |rest| {
        let digits: String = rest
            .trim_start()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().unwrap()
    })
}
