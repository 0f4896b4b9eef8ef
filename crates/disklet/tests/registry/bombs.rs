//! Layers that are small on their way, and large in what they hold.

use std::io::Write;
use std::process::{Command, Stdio};

use super::images::{Content, header, tar};
use super::scratch::Scratch;
use super::{command, serving};

fn gzip(bytes: Vec<u8>) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .args(["-9", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = gzip.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let packed = gzip.wait_with_output().unwrap().stdout;
    writer.join().unwrap();
    packed
}

/// More than an image may have, in 32 MiB; whoever refuses it has read 5 GiB of it and kept
/// nothing.
#[test]
fn ten_million_entries_are_refused_in_little_memory() {
    const A_MEMBER: usize = 20_000;
    let scratch = Scratch::new("registry-entries");
    let some = gzip(header("elsewhere/a", b'0', "", 0).repeat(A_MEMBER));
    let many = some.repeat(10_000_000 / A_MEMBER);
    let end = gzip(tar(&[("elsewhere/b", b""), ("disk/a.img", &[1; 1 << 20])]));
    let mut content = Content::default();
    content.image("latest", &[[many, end].concat()]);
    let server = serving(content);
    let disklet = command(&scratch, &server, "");
    let mut limited = Command::new("prlimit");
    limited
        .arg(format!("--data={}", 128 << 20))
        .arg(disklet.get_program())
        .args(disklet.get_args());
    let said = disklet.get_envs();
    limited.envs(said.filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(scratch.path(""));
    let output = limited.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("the archive has too many entries"), "{told}");
    assert!(!scratch.path("disk").exists());
}
