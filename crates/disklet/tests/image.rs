//! `disklet image`, judged by QEMU's own tools.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "image/check.rs"]
mod check;
#[path = "image/overlay.rs"]
mod overlay;
#[path = "image/preallocation.rs"]
mod preallocation;
#[path = "image/progress.rs"]
mod progress;
#[path = "image/resize.rs"]
mod resize;
#[path = "image/scratch.rs"]
mod scratch;
#[path = "image/stream.rs"]
mod stream;
#[path = "image/target.rs"]
mod target;
#[path = "image/told.rs"]
mod told;

use std::fs;
use std::process::Stdio;

use scratch::{Scratch, end_by, json, wait_for_nameless_file};

#[test]
fn disks_go_there_and_back_unchanged() {
    let scratch = Scratch::new("convert");
    scratch.disk("disk.raw", 9);
    for (number, options) in ["", "-c zlib", "-c zstd", "--cluster-size 4K"]
        .into_iter()
        .enumerate()
    {
        let image = format!("{number}.qcow2");
        scratch.succeeds(&format!(
            "convert -f raw -O qcow2 {options} disk.raw {image}"
        ));
        scratch.qemu(&format!("check -q {image}"));
        scratch.qemu(&format!("compare -q -f raw -F qcow2 disk.raw {image}"));
        scratch.succeeds(&format!("convert -f qcow2 -O raw {image} back.raw"));
        scratch.qemu("compare -q -f raw -F raw disk.raw back.raw");
        scratch.succeeds(&format!("compare -f qcow2 -F raw {image} back.raw"));
    }
}

/// Packed or not, a disk is measured as it would be without packing.
#[test]
fn a_copy_is_measured_as_qemu_img_does() {
    let scratch = Scratch::new("measure");
    scratch.disk("disk.raw", 5);
    // With holes where it has zeroes, so that both can see them.
    scratch.qemu("convert -f raw -O raw disk.raw sparse.raw");
    scratch.qemu("convert -f raw -O qcow2 -c disk.raw packed.qcow2");
    for (format, name) in [("raw", "sparse.raw"), ("qcow2", "packed.qcow2")] {
        let ours = scratch.succeeds(&format!("measure -f {format} -O qcow2 -o json {name}"));
        let theirs = scratch.qemu(&format!(
            "measure -f {format} -O qcow2 --output=json {name}"
        ));
        let (ours, theirs) = (json(&ours), json(&theirs));
        for field in ["required", "fully-allocated"] {
            assert_eq!(ours[field], theirs[field], "{name}: {field}");
        }
    }
}

#[test]
fn a_copy_of_a_raw_disk_says_how_it_was_made() {
    let scratch = Scratch::new("way");
    scratch.disk("disk.raw", 3);
    let told = json(&scratch.succeeds("convert -f raw -O raw -o json disk.raw copy.raw"));
    assert!(scratch.read("disk.raw") == scratch.read("copy.raw"));
    let number = |field: &str| told[field].as_u64().unwrap();
    let sum = number("written") + number("shared") + number("zero");
    assert_eq!(sum, 3 << 20, "{told}");
    // Filesystems that share blocks are looked at in the block engine's tests.
    match told["way"].as_str().unwrap() {
        "copy" => assert_eq!(number("shared"), 0),
        way => assert!(way.starts_with("reflink") && number("shared") > 0, "{told}"),
    }
    let told = scratch.succeeds("convert -f raw -O raw disk.raw copy.raw");
    assert!(told.contains("shared"), "{told}");
}

#[test]
fn refusals_leave_nothing_behind() {
    let scratch = Scratch::new("refusals");
    scratch.disk("disk.raw", 1);
    scratch.fails(1, "convert -f qcow2 -O raw disk.raw x");
    scratch.fails(1, "convert -f raw -O raw missing x");
    scratch.fails(1, "convert -f raw -O raw disk.raw no/such/place");
    scratch.fails(1, "convert -f raw -O raw --max-size 64K disk.raw x");
    scratch.fails(1, "create -f raw disk.raw 1M");
    scratch.fails(2, "create -f qcow2 x --cluster-size 100 1M");
    scratch.fails(2, "create -f qcow2 x");
    scratch.fails(2, "create -f qcow2 x 12XB");
    scratch.fails(2, "info disk.raw");
    scratch.fails(2, "compare -f raw disk.raw missing");
    assert_eq!(scratch.names(), ["disk.raw"]);
}

#[test]
fn disks_that_differ_are_told_where() {
    let scratch = Scratch::new("differ");
    scratch.disk("one.raw", 1);
    let mut bytes = scratch.read("one.raw");
    bytes[700_001] ^= 1;
    fs::write(scratch.path("other.raw"), bytes).unwrap();
    let output = scratch.disklet("compare -f raw one.raw other.raw");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"The disks differ at offset 700001.\n");
}

#[test]
fn a_killed_conversion_leaves_the_old_file_and_no_other() {
    let scratch = Scratch::new("killed");
    scratch.disk("disk.raw", 128);
    fs::write(scratch.path("target.qcow2"), b"old").unwrap();
    // Not INT: who started the tests may have it ignored, and that is inherited.
    for signal in ["KILL", "TERM"] {
        let mut command = scratch.command("convert -f raw -O qcow2 -c zlib -t 1");
        command.args(["disk.raw", "target.qcow2"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        wait_for_nameless_file(child.id());
        end_by(signal, &mut child);
        assert_eq!(scratch.names(), ["disk.raw", "target.qcow2"]);
        assert_eq!(scratch.read("target.qcow2"), b"old");
    }
}
