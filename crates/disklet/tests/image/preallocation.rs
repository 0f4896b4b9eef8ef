//! Space set aside in new images and copies.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::scratch::{Scratch, json};

const MODES: [&str; 4] = ["off", "metadata", "falloc", "full"];

fn on_disk(scratch: &Scratch, name: &str) -> u64 {
    fs::metadata(scratch.path(name)).unwrap().blocks() * 512
}

#[test]
fn new_images_take_what_those_of_qemu_img_take() {
    let scratch = Scratch::new("create-prealloc");
    for mode in MODES {
        scratch.succeeds(&format!("create -f qcow2 --preallocation {mode} {mode} 8M"));
        scratch.qemu(&format!("check -q -f qcow2 {mode}"));
        let map = |line: &str| {
            let extents = json(&scratch.qemu(line));
            let extents = extents.as_array().unwrap().clone();
            let with_place = extents.iter().filter(|one| one.get("offset").is_some());
            with_place
                .map(|one| one["length"].as_u64().unwrap())
                .sum::<u64>()
        };
        let theirs = format!("{mode}.qemu");
        scratch.qemu(&format!(
            "create -q -f qcow2 -o preallocation={mode} {theirs} 8M"
        ));
        assert_eq!(
            map(&format!("map --output=json -f qcow2 {mode}")),
            map(&format!("map --output=json -f qcow2 {theirs}")),
            "{mode}"
        );
        let taken = |name: &str| on_disk(&scratch, name) >= 8 << 20;
        assert_eq!(taken(mode), taken(&theirs), "{mode}");
    }
}

#[test]
fn raw_disks_and_copies_take_their_space() {
    let scratch = Scratch::new("raw-prealloc");
    scratch.disk("disk.raw", 4);
    for (mode, takes) in [("off", false), ("falloc", true), ("full", true)] {
        scratch.succeeds(&format!("create -f raw --preallocation {mode} {mode} 4M"));
        scratch.succeeds(&format!(
            "convert -f raw -O raw --preallocation {mode} disk.raw {mode}.copy"
        ));
        assert!(scratch.read(mode) == vec![0; 4 << 20], "{mode}");
        let copy = format!("{mode}.copy");
        assert!(scratch.read(&copy) == scratch.read("disk.raw"), "{mode}");
        for name in [mode, &copy] {
            assert_eq!(on_disk(&scratch, name) >= 4 << 20, takes, "{name}");
        }
    }
}

#[test]
fn what_cannot_be_set_aside_is_refused() {
    let scratch = Scratch::new("prealloc-refused");
    scratch.disk("disk.raw", 1);
    for (line, why) in [
        (
            "create -f raw --preallocation metadata x 1M",
            "falloc or full",
        ),
        (
            "create -f qcow2 --preallocation full -b disk.raw -F raw x",
            "hide what lies below",
        ),
        (
            "convert -f raw -O raw --preallocation metadata disk.raw x",
            "falloc or full",
        ),
        (
            "convert -f raw -O qcow2 --preallocation falloc disk.raw x",
            "only in a raw one",
        ),
    ] {
        let told = scratch.fails(2, line);
        assert!(told.contains(why), "{line}: {told}");
    }
    assert_eq!(scratch.names(), ["disk.raw"]);
}
