//! `disklet images` on a filesystem that is really full, and beside users who
//! are not its owner. Needs root for it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "images/scratch.rs"]
mod scratch;
#[path = "images/server.rs"]
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use scratch::{Outcome, Scratch, digest, noise};
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

/// What a program prints that nobody runs.
fn as_nobody(scratch: &Scratch, script: &str) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
        .args(["sh", "-c", script])
        .current_dir(scratch.path("."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs root"]
fn what_a_user_may_not_is_told_with_what_to_do() {
    let scratch = Scratch::for_all("real-denied");
    fs::copy(env!("CARGO_BIN_EXE_disklet"), scratch.path("disklet")).unwrap();
    scratch.write("disk.raw", noise(1, 1 << 20));
    let secret = scratch.write("secret.raw", noise(1, 1 << 20));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let pull = |from: &str| {
        let line = format!("./disklet images pull one --from {from} --config config.yaml 2>&1; :");
        as_nobody(&scratch, &line)
    };
    let told = pull("secret.raw");
    assert!(
        told.contains("image one: secret.raw: cannot be opened: Permission denied"),
        "{told}"
    );
    assert!(
        told.contains("help: run this as root, or have its owner let you read it"),
        "{told}"
    );
    let told = pull("disk.raw");
    let data = scratch.path("data").display().to_string();
    assert!(told.starts_with(&format!("error: {data}")), "{told}");
    assert!(
        told.contains("help: run this as root, or have directories of your own: dataDir"),
        "{told}"
    );
}

/// Whoever can open a lock can hold it, and root would wait.
#[test]
#[ignore = "needs root"]
fn others_read_roots_images_and_hold_nobody_up() {
    let scratch = Scratch::for_all("real-rights");
    let bytes = noise(1, 1 << 20);
    scratch.write("disk.raw", &bytes);
    let pull = |name: &str| {
        let args = ["pull", name, "--from", "disk.raw"];
        let mut command = scratch.after("umask 077", &args);
        assert_eq!(Outcome::of(command.output().unwrap()).code, Some(0));
    };
    pull("one");
    // Interrupted as it began.
    scratch.write(&format!("data/images/locks/{}", digest(b"two")), "");
    let listed = as_nobody(
        &scratch,
        "find data -type f -readable 2>/dev/null | sort; :",
    );
    let readable = [
        format!("data/images/names/{}.json", digest(b"one")),
        format!("data/images/sha256/{}", digest(&bytes)),
    ];
    assert_eq!(listed.lines().collect::<Vec<_>>(), readable);
    assert_eq!(
        as_nobody(&scratch, "find data -writable 2>/dev/null; :"),
        ""
    );

    let mut holder = Command::new("setpriv")
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
        .args(["flock", &readable[0], "flock", &readable[1]])
        .args(["sh", "-c", "echo held; read -r _"])
        .current_dir(scratch.path("."))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
    for args in [
        &["pull", "two", "--from", "disk.raw"][..],
        &["rm", "two"],
        &["gc"],
        &["rm", "one"],
    ] {
        let outcome = scratch.in_time(args);
        assert_eq!(outcome.code, Some(0), "{args:?}: {outcome:?}");
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_block_device_is_read_through_standard_input_only() {
    let scratch = Scratch::new("real-device");
    let bytes = noise(1, 1 << 20);
    let file = scratch.write("disk.raw", &bytes);
    let attached = Command::new("losetup")
        .args(["--find", "--show", "--read-only"])
        .arg(file)
        .output()
        .unwrap();
    let device = String::from_utf8(attached.stdout)
        .unwrap()
        .trim()
        .to_owned();
    let refused = scratch.in_time(&["pull", "one", "--from", &device]);
    let mut through = scratch.command(&["pull", "one", "--from", "-"]);
    let through = through.stdin(fs::File::open(&device).unwrap()).output();
    let detached = Command::new("losetup").args(["-d", &device]).status();
    assert!(detached.unwrap().success());
    let told = refused.refused();
    let wanted = format!("{device} is a block device, not a file\n  help: read it through");
    assert!(told.contains(&wanted), "{told}");
    assert_eq!(through.unwrap().status.code(), Some(0));
    assert!(scratch.disk("one") == bytes);
}
