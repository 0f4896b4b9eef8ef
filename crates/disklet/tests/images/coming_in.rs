//! What comes into the store, and what does not.

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
        told.contains("image one cannot be taken in: the stream is empty"),
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

/// Where no file may be longer than a MiB, there is no room for an image.
#[test]
fn without_room_there_is_one_message_and_nothing_stays() {
    let scratch = Scratch::new("in-full");
    scratch.write("disk.raw", noise(3, 8 << 20));
    let limited = "trap '' XFSZ; ulimit -f 2048";
    let mut command = scratch.after(limited, &["pull", "one", "--from", "disk.raw"]);
    let told = Outcome::of(command.output().unwrap()).refused();
    assert!(told.contains("image one cannot be taken in"), "{told}");
    assert!(told.contains("help: make room"), "{told}");
    assert_eq!(scratch.files(), [] as [&str; 0]);
}
