//! Streams inside gzip, xz and zstd, wrapped by the tools of those names.

use std::io::Write;
use std::process::Stdio;

use super::*;

/// What a program makes of its input.
pub(super) fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{program} {arguments:?}");
    output.stdout
}

/// Several streams with padding between them are one disk; a frame that is
/// skipped says that zstd follows.
#[test]
fn streams_one_after_the_other_are_one_disk() {
    let disk = sample(1 << 20);
    let (one, other) = disk.split_at(300_000);
    for (tool, _) in TOOLS {
        let mut wrapped = piped(tool, &["-c"], one);
        if tool == "xz" {
            wrapped.extend([0; 8]);
        }
        wrapped.extend(piped(tool, &["-c"], other));
        if tool == "zstd" {
            let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 7, 7, 7];
            wrapped.splice(0..0, skipped);
        }
        let found = stream_raw(&wrapped, Unwrap::ByMagic, disk.len());
        assert!(found.unwrap() == disk, "{tool}");
    }
}

pub(super) const TOOLS: [(&str, Wrapping); 3] = [
    ("gzip", Wrapping::Gzip),
    ("xz", Wrapping::Xz),
    ("zstd", Wrapping::Zstd),
];

fn stream_raw(file: &[u8], unwrap: Unwrap, size: usize) -> Result<Vec<u8>> {
    let (disk, report) = stream(file, &options(Format::Raw, unwrap), size)?;
    let length = usize::try_from(report.size).unwrap();
    Ok(disk[..length].to_vec())
}

#[test]
fn wrapped_disks_and_images_stream() {
    let folder = Folder::new("wrapped");
    let disk = sample((3 << 20) + 512);
    let raw = folder.file("raw");
    std::fs::write(&raw, &disk).unwrap();
    let image = folder.file("image");
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", "-c", &raw, &image],
    );
    let image = std::fs::read(image).unwrap();
    for (tool, wrapping) in TOOLS {
        for unwrap in [Unwrap::As(wrapping), Unwrap::ByMagic] {
            let wrapped = piped(tool, &["-c"], &disk);
            assert!(
                stream_raw(&wrapped, unwrap, disk.len()).unwrap() == disk,
                "{tool}"
            );
            let wrapped = piped(tool, &["-c"], &image);
            let options = options(Format::Qcow2, unwrap);
            assert!(
                stream(&wrapped, &options, disk.len()).unwrap().0 == disk,
                "{tool}"
            );
        }
    }
    assert!(stream_raw(&disk, Unwrap::ByMagic, disk.len()).unwrap() == disk);
}

#[test]
fn several_members_are_one_stream() {
    let disk = sample(1 << 20);
    for (tool, wrapping) in TOOLS {
        let (first, second) = disk.split_at(400_000);
        let mut wrapped = piped(tool, &["-c"], first);
        wrapped.extend(piped(tool, &["-c"], second));
        let unwrap = Unwrap::As(wrapping);
        assert!(
            stream_raw(&wrapped, unwrap, disk.len()).unwrap() == disk,
            "{tool}"
        );
    }
}

#[test]
fn damaged_wrappings_are_refused() {
    let disk = sample(1 << 20);
    for (tool, wrapping) in TOOLS {
        let wrapped = piped(tool, &["-c"], &disk);
        let refused = |bytes: &[u8]| {
            let error = stream_raw(bytes, Unwrap::As(wrapping), disk.len())
                .map(drop)
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{tool}: {error}");
            error.to_string()
        };
        for cut in [
            0,
            1,
            5,
            wrapped.len() / 2,
            wrapped.len() - 5,
            wrapped.len() - 1,
        ] {
            let message = refused(&wrapped[..cut]);
            assert!(message.contains("truncated"), "{tool} {cut}: {message}");
        }
        for garbage in [&b"garbage behind the end"[..], &[0; 5], &[1]] {
            let mut more = wrapped.clone();
            more.extend_from_slice(garbage);
            let message = refused(&more);
            let is_told = message.contains("follows") && !message.contains("truncated");
            assert!(tool != "xz" || is_told, "{garbage:?}: {message}");
        }
        // The checksum at the end, and a byte in the middle.
        for at in [wrapped.len() - 7, wrapped.len() / 2] {
            let mut flipped = wrapped.clone();
            flipped[at] ^= 0x10;
            refused(&flipped);
        }
        refused(&disk);
    }
}
