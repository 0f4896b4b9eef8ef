//! `disklet image convert` of what comes out of a pipe, or is wrapped.

use std::fs::{self, File};
use std::io::Write;
use std::process::Stdio;

use crate::scratch::{Scratch, end_by, first_part, json, refused, wait_for_nameless_file};

const TOOLS: [(&str, &str); 3] = [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")];

/// The same disk as `disk.raw`, in several ways.
fn images(scratch: &Scratch) -> [(&'static str, &'static str); 3] {
    scratch.disk("disk.raw", 5);
    scratch.qemu("convert -f raw -O qcow2 disk.raw plain.qcow2");
    scratch.qemu("convert -f raw -O qcow2 -c disk.raw packed.qcow2");
    [
        ("raw", "disk.raw"),
        ("qcow2", "plain.qcow2"),
        ("qcow2", "packed.qcow2"),
    ]
}

fn wrap(scratch: &Scratch, tool: &str, suffix: &str, file: &str) -> String {
    let wrapped = format!("{file}.{suffix}");
    let output = scratch.attempt(tool, &format!("-c {file}"));
    assert!(output.status.success(), "{tool}");
    fs::write(scratch.path(&wrapped), output.stdout).unwrap();
    wrapped
}

#[test]
fn images_out_of_a_pipe_become_raw_disks() {
    let scratch = Scratch::new("pipe");
    let convert = |file: &str, options: &str| {
        let output = scratch.piped(file, &format!("convert {options} -O raw - out.raw"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file} {options}: {told}");
        assert!(
            scratch.read("out.raw") == scratch.read("disk.raw"),
            "{file} {options}"
        );
        fs::remove_file(scratch.path("out.raw")).unwrap();
    };
    for (format, file) in images(&scratch) {
        convert(file, &format!("-f {format}"));
        convert(file, &format!("-f {format} --unwrap none"));
        convert(file, "--trust-magic");
        for (tool, suffix) in TOOLS {
            let wrapped = wrap(&scratch, tool, suffix, file);
            convert(&wrapped, &format!("-f {format} --unwrap {suffix}"));
            convert(&wrapped, "--trust-magic");
        }
    }
}

#[test]
fn wrapped_files_are_unwrapped_on_the_way() {
    let scratch = Scratch::new("wrapped");
    for (format, file) in images(&scratch) {
        for (tool, suffix) in TOOLS {
            let wrapped = wrap(&scratch, tool, suffix, file);
            for options in [
                format!("-f {format} --unwrap {suffix}"),
                "--trust-magic".into(),
            ] {
                let line = format!("convert {options} -O raw -o json {wrapped} out.raw");
                let told = json(&scratch.succeeds(&line));
                assert_eq!(told["way"], "stream", "{line}");
                assert_eq!(told["virtual-size"], 5 << 20, "{line}");
                assert!(
                    scratch.read("out.raw") == scratch.read("disk.raw"),
                    "{line}"
                );
            }
        }
    }
    // A disk that begins like a wrapping is a disk, unless its bytes are trusted.
    let line = "convert -f raw -O raw disk.raw.xz out.raw";
    scratch.succeeds(line);
    assert!(scratch.read("out.raw") == scratch.read("disk.raw.xz"));
}

/// The moved L1 table comes last, so that nearly all is kept in the scratch.
#[test]
fn images_whose_tables_come_last_go_through_the_scratch() {
    let scratch = Scratch::new("late");
    scratch.disk("disk.raw", 5);
    scratch.qemu("convert -f raw -O qcow2 -o cluster_size=4k disk.raw late.qcow2");
    scratch.qemu("resize -q late.qcow2 2G");
    scratch.qemu("convert -f qcow2 -O raw late.qcow2 wanted.raw");
    fs::create_dir(scratch.path("elsewhere")).unwrap();
    for options in ["", "--scratch elsewhere"] {
        let line = format!("convert -f qcow2 -O raw -o json {options} - out.raw");
        let output = scratch.piped("late.qcow2", &line);
        let told = json(&String::from_utf8(output.stdout).unwrap());
        assert!(told["parked"].as_u64().unwrap() > 1 << 20, "{told}");
        scratch.qemu("compare -q -f raw -F raw wanted.raw out.raw");
    }
    assert_eq!(
        scratch.names(),
        [
            "disk.raw",
            "elsewhere",
            "late.qcow2",
            "out.raw",
            "wanted.raw"
        ]
    );
    let line = "convert -f qcow2 -O raw --scratch nowhere - x.raw";
    let told = refused(1, line, &scratch.piped("late.qcow2", line));
    assert!(told.contains("--scratch"), "{told}");
}

#[test]
fn streams_that_are_cut_short_or_too_large_leave_the_old_file() {
    let scratch = Scratch::new("cut");
    scratch.disk("disk.raw", 2);
    scratch.qemu("convert -f raw -O qcow2 disk.raw whole.qcow2");
    first_part(&scratch, "whole.qcow2", "part.qcow2", 700_000);
    let whole = wrap(&scratch, "xz", "xz", "disk.raw");
    let length = scratch.read(&whole).len() - 100;
    first_part(&scratch, &whole, "part.xz", length);
    fs::write(scratch.path("old.raw"), b"old").unwrap();
    let names = scratch.names();
    for (file, options) in [
        ("part.qcow2", "-f qcow2"),
        ("part.xz", "-f raw --unwrap xz"),
        ("disk.raw", "-f qcow2"),
        ("disk.raw", "-f raw --unwrap gz"),
        ("disk.raw", "-f raw --max-size 1M"),
        ("whole.qcow2", "-f qcow2 --max-size 1M"),
    ] {
        let line = format!("convert {options} -O raw - old.raw");
        let told = refused(1, &line, &scratch.piped(file, &line));
        assert!(told.starts_with("error: standard input: "), "{told}");
        assert_eq!(scratch.read("old.raw"), b"old", "{file} {options}");
        assert_eq!(scratch.names(), names, "{file} {options}");
    }
}

#[test]
fn a_conversion_that_is_ended_while_it_waits_leaves_the_old_file() {
    let scratch = Scratch::new("waiting");
    scratch.disk("disk.raw", 2);
    fs::write(scratch.path("old.raw"), b"old").unwrap();
    for signal in ["KILL", "TERM"] {
        let mut command = scratch.command("convert -f raw -O raw - old.raw");
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // The pipe stays open, so that more is waited for.
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&scratch.read("disk.raw")).unwrap();
        wait_for_nameless_file(child.id());
        end_by(signal, &mut child);
        assert_eq!(scratch.names(), ["disk.raw", "old.raw"]);
        assert_eq!(scratch.read("old.raw"), b"old");
    }
}

#[test]
fn what_a_stream_cannot_become_is_refused() {
    let scratch = Scratch::new("stream-refused");
    scratch.disk("disk.raw", 1);
    for (line, why) in [
        ("convert -f raw -O qcow2 - x", "can only become a raw disk"),
        (
            "convert -f raw -O raw --preallocation full - x",
            "--preallocation",
        ),
        (
            "convert -f qcow2 -O raw --allow-below . - x",
            "--allow-below",
        ),
        ("convert -f raw -O qcow2 --unwrap xz disk.raw x", "-O raw"),
    ] {
        let told = refused(2, line, &scratch.piped("disk.raw", line));
        assert!(told.contains(why), "{line}: {told}");
    }
    // A file instead of a pipe will do.
    let file = File::open(scratch.path("disk.raw")).unwrap();
    let mut command = scratch.command("convert -f raw -O raw - copy.raw");
    assert!(command.stdin(file).output().unwrap().status.success());
    assert!(scratch.read("copy.raw") == scratch.read("disk.raw"));
    assert_eq!(scratch.names(), ["copy.raw", "disk.raw"]);
}
