//! What bears the name of a copy already.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

use crate::scratch::{Scratch, end_by, send, wait_for_nameless_file};

#[test]
fn what_is_no_file_is_not_replaced() {
    let scratch = Scratch::new("target-kinds");
    scratch.disk("disk.raw", 1);
    fs::create_dir(scratch.path("directory")).unwrap();
    scratch.tool("mkfifo", "pipe");
    symlink("nowhere", scratch.path("dangling")).unwrap();
    for (target, why) in [
        ("directory", "is a directory"),
        ("pipe", "is not a file"),
        ("dangling", "is a link that leads nowhere"),
    ] {
        for format in ["raw", "qcow2"] {
            let told = scratch.fails(1, &format!("convert -f raw -O {format} disk.raw {target}"));
            assert!(told.contains(&format!("{target}: {why}")), "{told}");
        }
    }
    let pipe = fs::symlink_metadata(scratch.path("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
}

#[test]
fn links_are_followed_and_permissions_stay() {
    let scratch = Scratch::new("target-link");
    scratch.disk("disk.raw", 1);
    fs::write(scratch.path("real.raw"), "old").unwrap();
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(scratch.path("real.raw"), private).unwrap();
    symlink("real.raw", scratch.path("link.raw")).unwrap();
    scratch.succeeds("convert -f raw -O raw disk.raw link.raw");
    assert!(
        fs::symlink_metadata(scratch.path("link.raw"))
            .unwrap()
            .is_symlink()
    );
    assert!(scratch.read("real.raw") == scratch.read("disk.raw"));
    let mode = fs::metadata(scratch.path("real.raw"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_image_in_use_is_not_replaced() {
    let scratch = Scratch::new("target-used");
    scratch.disk("disk.raw", 1);
    scratch.qemu("create -q -f qcow2 used.qcow2 2M");
    let before = scratch.read("used.qcow2");
    let user = scratch.in_use("qcow2", "used.qcow2");
    let told = scratch.fails(1, "convert -f raw -O qcow2 disk.raw used.qcow2");
    assert!(told.contains("used.qcow2: another process"), "{told}");
    drop(user);
    assert!(scratch.read("used.qcow2") == before);
    scratch.succeeds("convert -f raw -O qcow2 disk.raw used.qcow2");
}

#[test]
fn disks_of_any_size_become_qcow2() {
    let scratch = Scratch::new("target-odd");
    scratch.disk("disk.raw", 1);
    for length in [1, 511, 1000, 70_001] {
        let bytes = scratch.read("disk.raw")[..length].to_vec();
        fs::write(scratch.path("odd.raw"), bytes).unwrap();
        for packing in ["", "-c zlib", "-c zstd"] {
            scratch.succeeds(&format!(
                "convert -f raw -O qcow2 {packing} odd.raw odd.qcow2"
            ));
            scratch.qemu("check -q odd.qcow2");
            scratch.qemu("compare -f raw -F qcow2 odd.raw odd.qcow2");
        }
    }
}

/// Its missing bytes must not pass for zeroes.
#[test]
fn a_source_that_becomes_shorter_fails_the_copy() {
    let scratch = Scratch::new("target-cut");
    scratch.disk("disk.raw", 128);
    scratch.qemu("convert -f raw -O qcow2 disk.raw source.qcow2");
    let mut command = scratch.command("convert -t 1 -f qcow2 -O qcow2 -c zlib source.qcow2 out");
    let mut child = command.spawn().unwrap();
    wait_for_nameless_file(child.id());
    send("STOP", &child);
    let source = fs::File::options()
        .write(true)
        .open(scratch.path("source.qcow2"))
        .unwrap();
    source.set_len(1 << 20).unwrap();
    send("CONT", &child);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(!scratch.names().contains(&"out".to_owned()));
}

/// As when the program before the pipe has failed.
#[test]
fn an_empty_stream_replaces_nothing() {
    let scratch = Scratch::new("target-empty");
    fs::write(scratch.path("empty"), "").unwrap();
    fs::write(scratch.path("out"), "old").unwrap();
    let output = scratch.piped("empty", "convert -f raw -O raw - out");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("standard input: the stream is empty"),
        "{told}"
    );
    assert_eq!(scratch.read("out"), b"old");
}

#[test]
fn a_kill_leaves_the_old_file() {
    let scratch = Scratch::new("target-killed");
    scratch.disk("disk.raw", 128);
    fs::write(scratch.path("out"), "old").unwrap();
    let mut command = scratch.command("convert -t 1 -f raw -O qcow2 -c zlib disk.raw out");
    let mut child = command.spawn().unwrap();
    wait_for_nameless_file(child.id());
    end_by("KILL", &mut child);
    assert_eq!(scratch.read("out"), b"old");
}

#[test]
fn threads_are_bounded() {
    let scratch = Scratch::new("target-threads");
    for threads in ["0", "65", "100000", "many"] {
        let told = scratch.fails(2, &format!("convert -t {threads} -f raw -O raw a b"));
        assert!(told.contains("1 to 64"), "{told}");
    }
}

/// A pipe is named - if it is read.
#[test]
fn a_pipe_as_a_source_is_told_how_to_be_read() {
    let scratch = Scratch::new("source-pipe");
    scratch.disk("disk.raw", 1);
    scratch.tool("mkfifo", "pipe");
    for source in ["pipe", "/dev/stdin"] {
        let line = format!("convert -f raw -O raw {source} out.raw");
        let output = scratch.piped("disk.raw", &line);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(&format!("{source}: is neither")), "{told}");
        assert!(told.contains("if it is named -"), "{told}");
    }
}

/// The first bytes are trusted, but not to be what they are not.
#[test]
fn foreign_formats_are_not_taken_for_raw_disks() {
    let scratch = Scratch::new("source-foreign");
    scratch.disk("disk.raw", 1);
    for format in ["vdi", "vmdk", "vhdx", "vpc", "qed"] {
        scratch.qemu(&format!(
            "convert -f raw -O {format} disk.raw disk.{format}"
        ));
        let name = format.replace("vpc", "vhd").to_uppercase();
        for line in ["convert --trust-magic -O raw", "info --trust-magic"] {
            let target = if line.starts_with("info") {
                ""
            } else {
                "out.raw"
            };
            let told = scratch.fails(1, &format!("{line} disk.{format} {target}"));
            assert!(told.contains(&format!("begins as {name} does")), "{told}");
        }
        let line = "convert --trust-magic -O raw - out.raw";
        let output = scratch.piped(&format!("disk.{format}"), line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(&format!("begins as {name} does")), "{told}");
        assert!(
            told.contains("help: convert it first: qemu-img convert -O qcow2")
                && told.contains("say so with -f raw"),
            "{told}"
        );
    }
    scratch.succeeds("convert -f raw -O raw disk.vdi out.raw");
}

/// What is below it cannot be allowed.
#[test]
fn a_stream_that_needs_another_file_is_told_to_become_one() {
    let scratch = Scratch::new("source-overlay");
    scratch.disk("base.raw", 1);
    scratch.qemu("create -q -f qcow2 -b base.raw -F raw top.qcow2");
    let output = scratch.piped("top.qcow2", "convert -f qcow2 -O raw - out.raw");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("keep the image in a file"), "{told}");
    assert!(!told.contains("allow its directory"), "{told}");
}
