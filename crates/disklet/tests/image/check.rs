//! `disklet image check` beside `qemu-img check`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::scratch::{Scratch, json};

const FIELDS: [&str; 10] = [
    "filename",
    "format",
    "check-errors",
    "corruptions",
    "leaks",
    "total-clusters",
    "allocated-clusters",
    "fragmented-clusters",
    "compressed-clusters",
    "image-end-offset",
];

/// Both say the same, with the same exit code.
fn agree(scratch: &Scratch, image: &str, code: i32) {
    let ours = scratch.disklet(&format!("check -f qcow2 -o json {image}"));
    let theirs = scratch.attempt("qemu-img", &format!("check -f qcow2 --output=json {image}"));
    assert_eq!(theirs.status.code(), Some(code), "{image}: {theirs:?}");
    assert_eq!(ours.status.code(), Some(code), "{image}: {ours:?}");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (ours, theirs) = (json(&text(&ours.stdout)), json(&text(&theirs.stdout)));
    for field in FIELDS {
        // qemu-img leaves out what is zero.
        let wanted = theirs.get(field).cloned().unwrap_or(0.into());
        assert_eq!(ours[field], wanted, "{image}: {field}");
    }
}

/// Where the first refcount block of an image is.
fn refcounts(file: &File) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 48).unwrap();
    let table = u64::from_be_bytes(word);
    file.read_exact_at(&mut word, table).unwrap();
    u64::from_be_bytes(word)
}

#[test]
fn verdicts_and_exit_codes_are_those_of_qemu_img() {
    let scratch = Scratch::new("check");
    scratch.disk("disk.raw", 3);
    for (image, packed) in [("plain.qcow2", ""), ("packed.qcow2", "-c")] {
        scratch.qemu(&format!(
            "convert -O qcow2 {packed} -f raw disk.raw {image}"
        ));
        agree(&scratch, image, 0);
        let told = scratch.succeeds(&format!("check -f qcow2 {image}"));
        assert!(told.starts_with("The image is sound.\n"), "{told}");
    }

    let open = |name: &str| {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .open(scratch.path(name))
            .unwrap()
    };
    let leaking = open("plain.qcow2");
    let cluster = leaking.metadata().unwrap().len().div_ceil(65536);
    leaking.set_len((cluster + 1) * 65536).unwrap();
    leaking
        .write_all_at(&1u16.to_be_bytes(), refcounts(&leaking) + cluster * 2)
        .unwrap();
    agree(&scratch, "plain.qcow2", 3);
    let told = scratch.disklet("check -f qcow2 plain.qcow2").stdout;
    assert!(String::from_utf8_lossy(&told).contains("1 clusters are counted as used"));

    let corrupt = open("packed.qcow2");
    corrupt
        .write_all_at(&0u16.to_be_bytes(), refcounts(&corrupt))
        .unwrap();
    agree(&scratch, "packed.qcow2", 2);
    let told = scratch.disklet("check -f qcow2 packed.qcow2").stdout;
    assert!(String::from_utf8_lossy(&told).contains("The image is corrupt: 1 errors"));
}

#[test]
fn what_cannot_be_checked_does_not_pass_for_corrupt() {
    let scratch = Scratch::new("check-not");
    scratch.disk("disk.raw", 1);
    scratch.fails(1, "check -f qcow2 disk.raw");
    scratch.fails(1, "check -f qcow2 missing");
    scratch.fails(1, "check disk.raw");
    scratch.fails(1, "check -f qcow2 --no-such-option disk.raw");
    let told = scratch.fails(63, "check -f raw disk.raw");
    assert!(told.contains("no tables that could be checked"), "{told}");
    scratch.fails(63, "check --trust-magic disk.raw");
    assert!(scratch.succeeds("check --help").contains("Exit code 0"));
}

#[test]
fn an_image_in_use_is_checked_only_if_told_to() {
    let scratch = Scratch::new("check-used");
    scratch.qemu("create -q -f qcow2 disk.qcow2 1M");
    let _user = scratch.in_use("qcow2", "disk.qcow2");
    let told = scratch.fails(1, "check -f qcow2 disk.qcow2");
    assert!(told.contains("--force-share"), "{told}");
    scratch.succeeds("check -U -f qcow2 disk.qcow2");
}
