//! Conversions of images that QEMU made, judged by QEMU's own.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::OpenOptions;

use disklet_block::convert::{Before, Options, Unwatched, to_raw};
use disklet_block::device::{Resize, Size};
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image};
use support::{Scratch, open, open_writable, qemu_img, run, shown};

/// A file that was cut within its last cluster: QEMU reads the rest of that
/// cluster as zeroes, whichever subcluster a read begins with.
#[test]
fn subclusters_behind_the_end_of_the_file_read_as_zeroes() {
    let scratch = Scratch::new("cut-subclusters");
    let image = scratch.file("disk.qcow2");
    qemu_img(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-o",
        "extended_l2=on,cluster_size=64k",
        &shown(&image),
        "1M",
    ]);
    let writes = ["-c", "write -P 7 0 2k", "-c", "write -P 9 40k 2k"];
    let mut arguments = vec!["-f", "qcow2"];
    arguments.extend(writes);
    let name = shown(&image);
    arguments.push(&name);
    run("qemu-io", &arguments);
    let map = qemu_img(&["map", "--output=json", "-f", "qcow2", &name]);
    let cluster = host_of_first_extent(&map);
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    file.set_len(cluster + 2048).unwrap();

    let wanted = scratch.file("wanted.raw");
    let into = shown(&wanted);
    qemu_img(&["convert", "-f", "qcow2", "-O", "raw", &name, &into]);
    let source = Image::open(open(&image), Format::Qcow2, &NoImplicitFiles).unwrap();
    let copy = scratch.file("copy.raw");
    std::fs::write(&copy, b"").unwrap();
    let target = open_writable(&copy);
    target.resize(source.size().unwrap()).unwrap();
    let options = Options {
        threads: 1,
        target: Before::Zeroes,
        share: true,
    };
    to_raw(&source, &target, &options, &Unwatched).unwrap();
    let bytes = std::fs::read(copy).unwrap();
    assert_eq!(bytes[..2048], [7; 2048]);
    assert!(bytes == std::fs::read(wanted).unwrap());
}

fn host_of_first_extent(map: &str) -> u64 {
    let (_, rest) = map.split_once("\"offset\": ").unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}
