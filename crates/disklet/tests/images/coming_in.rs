//! What comes into the store, and what does not.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use crate::scratch::{Outcome, Scratch, digest, noise};

#[test]
fn what_came_in_is_the_disk_as_it_was() {
    let scratch = Scratch::new("in");
    let bytes = noise(3, 3 << 20);
    scratch.write("disk.raw", &bytes);
    let told = scratch.succeeds(&["pull", "virtlet.cloud/one", "--from", "disk.raw"]);
    let digest = digest(&bytes);
    assert!(
        told.starts_with(&format!("one@sha256:{digest} (")),
        "{told}"
    );
    assert!(scratch.disk("one") == bytes);
    scratch.succeeds(&[
        "pull",
        &format!("two@sha256:{digest}"),
        "--from",
        "disk.raw",
    ]);
    assert!(scratch.disk("two") == bytes);
}

#[test]
fn a_pipe_is_an_origin_as_well() {
    let scratch = Scratch::new("in-pipe");
    let bytes = noise(3, 3 << 20);
    let file = scratch.write("disk.raw", &bytes);
    let pull = |stdin: Stdio| {
        let mut command = scratch.command(&["pull", "one", "--from", "-"]);
        Outcome::of(command.stdin(stdin).output().unwrap())
    };
    let told = pull(Stdio::null()).refused();
    assert!(
        told.contains("standard input is a character device, not an image\n  help: give it"),
        "{told}"
    );
    let mut cat = Command::new("cat");
    let mut cat = cat.arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let outcome = pull(cat.stdout.take().unwrap().into());
    cat.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stderr, "one: fetching standard input\n");
    assert!(scratch.disk("one") == bytes);
}

#[test]
fn another_digest_is_refused_and_nothing_stays() {
    let scratch = Scratch::new("in-digest");
    scratch.write("disk.raw", noise(3, 1 << 20));
    let wanted = "a".repeat(64);
    let told = scratch.fails(&[
        "pull",
        &format!("one@sha256:{wanted}"),
        "--from",
        "disk.raw",
    ]);
    assert!(
        told.contains(&format!("not sha256:{wanted} as demanded")),
        "{told}"
    );
    assert_eq!(scratch.files(), [] as [&str; 0]);
}

/// What is no disk would otherwise become one, and no VM would start from it.
#[test]
fn what_is_no_image_is_refused_by_what_it_looks_like() {
    let scratch = Scratch::new("in-no-image");
    let page = format!("{:x<1024}", "<!DOCTYPE html>\n<title>Log in</title>");
    assert_eq!(page.len() % 512, 0);
    let mut odd = noise(3, 1 << 20);
    odd.push(1);
    let foreign = |at: usize, magic: &[u8]| {
        let mut file = vec![0; 1 << 16];
        file[at..at + magic.len()].copy_from_slice(magic);
        file
    };
    for (bytes, wanted) in [
        (
            b"abc".to_vec(),
            "image one cannot be taken in: 3 bytes are no disk (no multiple of 512), nor is it qcow2; it begins with text\n  help: see whether",
        ),
        (
            odd,
            "1048577 bytes are no disk (no multiple of 512), nor is it qcow2\n  help: ",
        ),
        (
            page.into_bytes(),
            "begins as an HTML page does, which is not supported\n  help: give the image itself",
        ),
        (
            foreign(0, b"KDMV"),
            "begins as VMDK does, which is not supported\n  help: convert it first: qemu-img convert -O qcow2 FILE NEW\n",
        ),
        (foreign(0, b"vhdxfile"), "begins as VHDX does"),
        (foreign(64, &[0x7f, 0x10, 0xda, 0xbe]), "begins as VDI does"),
    ] {
        scratch.write("file", bytes);
        let told = scratch.fails(&["pull", "one", "--from", "file"]);
        assert!(told.contains(wanted), "{told}");
        assert_eq!(scratch.files(), [] as [&str; 0]);
    }
}

/// Where no file may be longer than a MiB, there is no room for an image.
#[test]
fn without_room_there_is_one_message_and_nothing_stays() {
    let scratch = Scratch::new("in-full");
    scratch.write("disk.raw", noise(3, 8 << 20));
    let limited = "trap '' XFSZ; ulimit -f 2048";
    let mut command = scratch.after(limited, &["pull", "one", "--from", "disk.raw"]);
    let told = Outcome::of(command.output().unwrap()).refused();
    assert!(told.contains("image one cannot be taken in"), "{told}");
    assert!(told.contains("ulimit -f shows"), "{told}");
    let directory = scratch.path("data/images/sha256").display().to_string();
    assert_eq!(told.matches(&directory).count(), 1, "{told}");
    assert_eq!(scratch.files(), [] as [&str; 0]);
}

/// Endless, or waiting for somebody, or nothing to read at all.
#[test]
fn what_is_no_file_is_refused_at_once_and_nothing_is_made() {
    let scratch = Scratch::new("in-no-file");
    let made = Command::new("mkfifo").arg(scratch.path("pipe")).status();
    assert!(made.unwrap().success());
    let _socket = UnixListener::bind(scratch.path("s")).unwrap();
    symlink("/dev/zero", scratch.path("link")).unwrap();
    for (from, wanted) in [
        ("/dev/zero", "/dev/zero is a character device, not a file"),
        ("link", "link is a character device, not a file"),
        ("/", "image one: / is a directory, not a file"),
        (
            "pipe",
            "pipe is a pipe, not a file\n  help: read it through standard input: --from - < pipe",
        ),
        ("s", "s is a socket, not a file"),
        (
            "config.yaml/x",
            "config.yaml/x: cannot be opened: Not a directory",
        ),
    ] {
        let told = scratch.in_time(&["pull", "one", "--from", from]).refused();
        assert!(told.contains(wanted), "{told}");
        assert!(!scratch.path("data").exists(), "{from}");
    }
    for (input, wanted) in [
        (
            "/dev/zero",
            "standard input is a character device, not an image",
        ),
        ("/", "standard input is a directory, not an image"),
    ] {
        let mut command = scratch.command(&["pull", "one", "--from", "-"]);
        command.stdin(File::open(input).unwrap());
        let told = Outcome::of(command.output().unwrap()).refused();
        assert!(told.contains(wanted), "{told}");
        assert!(!scratch.path("data").exists(), "{input}");
    }
}

#[test]
fn a_file_where_the_data_should_be_is_named() {
    let scratch = Scratch::new("in-the-way");
    let data = scratch.write("data", b"a file");
    scratch.write("disk.raw", noise(3, 1 << 20));
    for args in [
        &["ls"][..],
        &["pull", "one", "--from", "disk.raw"],
        &["rm", "one"],
        &["gc"],
    ] {
        let told = scratch.fails(args);
        let wanted = format!(
            "error: {}: is not a directory\n  help: dataDir",
            data.display()
        );
        assert!(told.contains(&wanted), "{args:?}: {told}");
    }
    assert_eq!(fs::read(data).unwrap(), b"a file");
}

#[test]
fn a_bomb_is_refused_with_a_word_on_how_large_disks_may_be() {
    let scratch = Scratch::new("in-bomb");
    let disk = scratch.write("disk.raw", vec![0; 8 << 20]);
    let packed = Command::new("gzip").arg(disk).status().unwrap();
    assert!(packed.success());
    let pull = ["pull", "one", "--from", "disk.raw.gz", "--max-size"];
    let told = scratch.fails(&[&pull[..], &["1Mi"]].concat());
    assert!(
        told.contains("the disk is larger than 1048576 bytes"),
        "{told}"
    );
    assert!(
        told.contains("help: allow larger disks with --max-size"),
        "{told}"
    );
    scratch.succeeds(&[&pull[..], &["8Mi"]].concat());
}

#[test]
fn an_image_that_is_marked_as_corrupt_comes_in_with_a_notice() {
    let scratch = Scratch::new("in-corrupt");
    let image = scratch.path("disk.qcow2");
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .arg(&image)
        .arg("1M")
        .status()
        .unwrap();
    assert!(made.success());
    let pull = ["pull", "one", "--from", "disk.qcow2"];
    let sound = scratch.images(&pull);
    assert_eq!(sound.code, Some(0), "{sound:?}");
    assert!(!sound.stderr.contains("corrupt"), "{sound:?}");
    let mut bytes = fs::read(&image).unwrap();
    // The incompatible features are 64 bits, big-endian, from byte 72 on.
    bytes[79] |= 1 << 1;
    fs::write(&image, bytes).unwrap();
    let marked = scratch.images(&pull);
    assert_eq!(marked.code, Some(0), "{marked:?}");
    let notice = "image one: its file is marked as corrupt";
    assert!(marked.stderr.contains(notice), "{marked:?}");
}
