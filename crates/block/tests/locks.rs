//! Locks, together with real QEMU processes.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use disklet_block::device::Access;
use disklet_block::error::ErrorKind;
use support::{Scratch, attempt, open, open_writable, qemu_img, shown};

/// A qemu-io that has an image open.
struct User(Child);

impl User {
    fn of(image: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new("qemu-io")
            .args(arguments)
            .arg(image)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It answers once the image is open.
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(b"read 0 512\n").unwrap();
        let mut line = String::new();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        while !line.contains("read 512/512") {
            line.clear();
            assert_ne!(answers.read_line(&mut line).unwrap(), 0, "it has ended");
        }
        Self(child)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn image(scratch: &Scratch) -> std::path::PathBuf {
    let path = scratch.file("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &shown(&path), "1M"]);
    path
}

#[test]
fn what_qemu_writes_is_neither_read_nor_changed() {
    let scratch = Scratch::new("locks-writer");
    let path = image(&scratch);
    let user = User::of(&path, &["-f", "qcow2"]);
    for access in [Access::Read, Access::Change] {
        let error = open_writable(&path).lock(access).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.to_string().contains("another process"), "{error}");
    }
    open(&path).lock(Access::ReadAnyway).unwrap();
    drop(user);
    open_writable(&path).lock(Access::Change).unwrap();
}

#[test]
fn what_qemu_reads_is_read_but_not_changed() {
    let scratch = Scratch::new("locks-reader");
    let path = image(&scratch);
    let _user = User::of(&path, &["-r", "-f", "qcow2"]);
    open(&path).lock(Access::Read).unwrap();
    let error = open_writable(&path).lock(Access::Change).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

#[test]
fn qemu_neither_writes_nor_reads_what_is_changed_here() {
    let scratch = Scratch::new("locks-ours");
    let path = image(&scratch);
    let name = shown(&path);
    let held = open_writable(&path);
    held.lock(Access::Change).unwrap();
    for arguments in [
        &["resize", "-q", "-f", "qcow2", &name, "2M"][..],
        &["check", "-q", "-f", "qcow2", &name],
    ] {
        let output = attempt("qemu-img", arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(told.contains("lock"), "{arguments:?}: {told}");
    }
    drop(held);
    qemu_img(&["resize", "-q", "-f", "qcow2", &name, "2M"]);
}

#[test]
fn qemu_reads_but_does_not_write_what_is_read_here() {
    let scratch = Scratch::new("locks-shared");
    let path = image(&scratch);
    let name = shown(&path);
    let held = open(&path);
    held.lock(Access::Read).unwrap();
    qemu_img(&["check", "-q", "-f", "qcow2", &name]);
    let output = attempt("qemu-img", &["resize", "-q", "-f", "qcow2", &name, "2M"]);
    assert!(!output.status.success());
}

/// The locks of one that was refused are gone, though its file is still open.
#[test]
fn who_is_refused_is_not_in_the_way() {
    let scratch = Scratch::new("locks-refused");
    let path = image(&scratch);
    let (first, second) = (open_writable(&path), open_writable(&path));
    first.lock(Access::Read).unwrap();
    second.lock(Access::Change).unwrap_err();
    let third = open(&path);
    third.lock(Access::Read).unwrap();
    drop((first, third));
    second.lock(Access::Change).unwrap();
}
