//! Images that were made to do harm: names, numbers and headers. Each is
//! refused with a reason, within limits, and nothing panics.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;

use disklet_block::device::{Caching, FileDevice, ReadAt};
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image, MAX_CHAIN};
use support::confined::{attempt, in_time, tried};
use support::forge::{Change, Forged, forged};
use support::{Scratch, shown};

/// Where the attempts run.
#[test]
fn child() {
    support::confined::child();
}

#[test]
fn the_limit_is_real() {
    let scratch = Scratch::new("hostile-greedy");
    let outcome = std::panic::catch_unwind(|| attempt(&scratch.file("none"), "greedy", None));
    outcome.map(|outcome| outcome.lines).unwrap_err();
}

#[test]
fn a_sound_image_passes_under_the_limits() {
    for bits in [9, 12, 16, 21] {
        let image = Forged::sound(bits);
        let outcome = tried(&format!("sound-{bits}"), &image);
        outcome.fine("open").fine("read").fine("check").fine("copy");
    }
}

#[test]
fn files_of_the_host_are_not_opened() {
    let secret = Scratch::new("hostile-secret");
    fs::write(secret.file("secret"), vec![9; 1 << 20]).unwrap();
    let name = shown(&secret.file("secret"));
    let mut backing = Forged::sound(16);
    backing.backing(&name, "raw");
    tried("backing", &backing).refused("open", "Forbidden", "names the backing file");
    let mut data = Forged::sound(16);
    data.data_file(&name);
    tried("data", &data).refused("open", "Forbidden", "names the data file");
    // Not even below a directory of ours, if it is another one.
    let ours = Scratch::new("hostile-ours");
    for (file, image) in [("b", &backing), ("d", &data)] {
        let path = ours.file(file);
        fs::write(&path, &image.bytes).unwrap();
        let outcome = in_time(&path, "qcow2", Some(ours.path()));
        outcome.refused("open", "Forbidden", "outside the directories");
    }
}

#[test]
fn a_format_is_not_guessed() {
    for format in ["", "vmdk", "json:{}"] {
        let mut image = Forged::sound(16);
        image.backing("base", format);
        tried("guess", &image).refused("open", "Unsupported", "a format is not guessed");
    }
}

#[test]
fn loops_and_endless_chains_end() {
    let scratch = Scratch::new("hostile-chain");
    let link = |from: &str, to: &str| {
        let mut image = Forged::sound(16);
        image.backing(&shown(&scratch.file(to)), "qcow2");
        fs::write(scratch.file(from), &image.bytes).unwrap();
    };
    let tried = |file: &str| in_time(&scratch.file(file), "qcow2", Some(scratch.path()));
    link("self", "self");
    tried("self").refused("open", "Limit", "leads back to itself");
    link("a", "b");
    link("b", "a");
    tried("a").refused("open", "Limit", "leads back to itself");
    for depth in 0..MAX_CHAIN + 5 {
        link(&format!("{depth}"), &format!("{}", depth + 1));
    }
    fs::write(
        scratch.file(&format!("{}", MAX_CHAIN + 5)),
        Forged::sound(16).bytes,
    )
    .unwrap();
    tried("0").refused("open", "Limit", "below each other");
    // One that is just short enough works.
    let first = format!("{}", 6);
    tried(&first).fine("open").fine("read").fine("copy");
    // A data file that is the image itself.
    let mut image = Forged::sound(16);
    image.data_file(&shown(&scratch.file("data")));
    fs::write(scratch.file("data"), &image.bytes).unwrap();
    tried("data").refused("open", "Limit", "leads back to itself");
}

#[test]
fn claims_of_exabytes_are_refused() {
    let cases: [(&str, Change, &str); 6] = [
        ("size-63", |i| i.virtual_size(1 << 63), "larger than any"),
        ("size-max", |i| i.virtual_size(u64::MAX), "larger than any"),
        (
            "l1",
            |i| i.virtual_size(1 << 60).put32(36, u32::MAX),
            "L1 table of 4294967295 entries",
        ),
        (
            "counts",
            |i| i.put32(56, u32::MAX),
            "refcount table is too large",
        ),
        (
            "snapshots",
            |i| i.put32(60, u32::MAX),
            "snapshots are too many",
        ),
        (
            "name",
            |i| i.put64(8, 200).put32(16, u32::MAX),
            "name of the backing file is too long",
        ),
    ];
    for (name, change, words) in cases {
        tried(name, &forged(change)).refused("open", "Limit", words);
    }
    let widths = forged(|i| i.put32(96, 63));
    tried("widths", &widths).refused("open", "Corrupt", "reference counts of 2^63 bits");
    let mut small = Forged::sound(16);
    small.virtual_size(1 << 62);
    tried("l1-small", &small).refused("open", "Corrupt", "L1 table is too small");
    let mut clusters = Forged::sound(16);
    clusters.put32(20, 40);
    tried("clusters", &clusters).refused("open", "Corrupt", "clusters of 2^40 bytes");
}

#[test]
fn absurd_extensions_are_refused() {
    for (name, length) in [("huge", u32::MAX), ("odd", 0xffff_fff9), ("just", 1 << 16)] {
        let mut image = Forged::sound(16);
        image.extension(0x1234_5678, length, &[]);
        tried(&format!("extension-{name}"), &image).refused(
            "open",
            "Corrupt",
            "header extension reaches beyond",
        );
    }
    let mut image = Forged::sound(16);
    image.put32(100, 0xffff_fff8);
    tried("header-length", &image).refused("open", "Corrupt", "a header of 4294967288 bytes");
    let mut image = Forged::sound(16);
    image.incompatible(1 << 40);
    tried("feature", &image).refused("open", "Unsupported", "feature 40");
    for (method, words) in [(1, "AES"), (2, "LUKS"), (77, "encrypted")] {
        let mut image = Forged::sound(16);
        image.put32(32, method);
        tried("encrypted", &image).refused("open", "Unsupported", words);
    }
}

/// A guest can write what it likes to its disk, also a header that names a
/// file of the host. Its disk is raw as long as it is opened as raw.
#[test]
fn a_raw_disk_stays_raw() {
    let mut disk = Forged::sound(16);
    disk.backing("/etc/passwd", "raw");
    let scratch = Scratch::new("hostile-raw");
    let path = scratch.file("disk");
    fs::write(&path, &disk.bytes).unwrap();
    let outcome = in_time(&path, "raw", None);
    outcome.fine("open").fine("read").fine("copy");
    let file = FileDevice::open(&path, Caching::Buffered).unwrap();
    let image = Image::open(file, Format::Raw, &NoImplicitFiles).unwrap();
    let mut bytes = vec![0; disk.bytes.len()];
    image.read_at(&mut bytes, 0).unwrap();
    assert!(bytes == disk.bytes);
    tried("raw-as-qcow2", &disk).refused("open", "Forbidden", "/etc/passwd");
    let mut plain = Forged::sound(16);
    plain.bytes[..4].fill(0);
    tried("not-qcow2", &plain).refused("open", "NotAnImage", "not a qcow2 image");
}
