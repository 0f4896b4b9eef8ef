//! `disklet images` on a filesystem that is really full. Needs root for it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "images/scratch.rs"]
mod scratch;
#[path = "images/server.rs"]
mod server;

use std::fs;
use std::process::Command;

use scratch::{Outcome, Scratch, noise};
use server::{Reply, Server};

const IMAGE: usize = 12 << 20;

/// Runs `pull` on a filesystem of so many MiB; what came of it, and which
/// files it has left there.
fn pull(scratch: &Scratch, mebibytes: u32, from: &str) -> (Outcome, Vec<String>) {
    fs::create_dir_all(scratch.path("data")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={mebibytes}m none data || exit 9; \"$@\"; code=$?; \
         find data -type f >left; exit $code"
    );
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", &script, "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_disklet"));
    let mut command = scratch.through(shell, &["pull", "one", "--from", from]);
    let outcome = Outcome::of(command.output().unwrap());
    let left = fs::read_to_string(scratch.path("left")).unwrap();
    (outcome, left.lines().map(str::to_owned).collect())
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_gives_one_message_and_leaves_nothing() {
    let scratch = Scratch::new("real-full");
    let server = Server::start(|request| Reply::file(request, &noise(1, IMAGE), "\"1\""));
    let file = scratch.write("disk.raw", noise(1, IMAGE));
    for from in [server.url("/x"), file.display().to_string()] {
        for mebibytes in [1, 4, 11] {
            let (outcome, left) = pull(&scratch, mebibytes, &from);
            let told = outcome.refused();
            assert!(told.contains("No space left on device"), "{told}");
            assert!(told.contains("help: make room"), "{told}");
            assert_eq!(left, [] as [&str; 0], "{mebibytes}");
        }
    }
}

/// What is only kept for a later pull must not be what fills the disk.
#[test]
#[ignore = "needs root"]
fn an_image_that_fits_alone_comes_in() {
    let scratch = Scratch::new("real-nearly-full");
    let server = Server::start(|request| Reply::file(request, &noise(1, IMAGE), "\"1\""));
    for mebibytes in [13, 14, 18, 23, 26] {
        let (outcome, left) = pull(&scratch, mebibytes, &server.url("/x"));
        assert_eq!(outcome.code, Some(0), "{mebibytes}: {outcome:?}");
        assert_eq!(left.len(), 3, "{mebibytes}: {left:?}");
    }
}
