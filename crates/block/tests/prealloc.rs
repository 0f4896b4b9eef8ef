//! Space set aside, judged by QEMU's tools and the filesystem.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet_block::device::{Caching, FileDevice};
use disklet_block::error::ErrorKind;
use disklet_block::image::Format;
use disklet_block::qcow2::{Backing, ClusterSize, NewImage, Preallocation, Verdict, check, create};
use support::{QemuCheck, Scratch, open, qemu_img, shown};

const ALL: [Preallocation; 4] = [
    Preallocation::Off,
    Preallocation::Metadata,
    Preallocation::Falloc,
    Preallocation::Full,
];

fn new_file(path: &Path) -> FileDevice {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap();
    FileDevice::new(file, "new", Caching::Direct).unwrap()
}

#[test]
fn every_mode_takes_what_it_says() {
    let scratch = Scratch::new("prealloc");
    for bits in [9, 16, 21] {
        for mode in ALL {
            let path = scratch.file(&format!("{bits}-{}", mode.name()));
            let spec = NewImage {
                cluster: ClusterSize::from_bits(bits).unwrap(),
                ..NewImage::of_size((9 << 20) + 512)
            };
            let size = create(&new_file(&path), &spec, mode).unwrap();
            let meta = fs::metadata(&path).unwrap();
            assert_eq!(meta.len(), size, "{mode:?} {bits}");
            let taken = meta.blocks() * 512 >= 9 << 20;
            let takes = matches!(mode, Preallocation::Falloc | Preallocation::Full);
            // Between tables that are close, holes are not worth the while.
            let close = bits == 9 && mode == Preallocation::Metadata;
            assert!(close || taken == takes, "{mode:?} {bits}");
            let judged = QemuCheck::of(&path);
            assert_eq!(judged.verdict, Verdict::Clean);
            assert_eq!(QemuCheck::from(&check(&open(&path), "x").unwrap()), judged);
            let all = if mode == Preallocation::Off {
                0
            } else {
                judged.total
            };
            assert_eq!(judged.allocated, all, "{mode:?} {bits}");
            let map = qemu_img(&["map", "--output=json", "-f", "qcow2", &shown(&path)]);
            let holes = map.contains("\"present\": false");
            assert_eq!(holes, mode == Preallocation::Off, "{mode:?} {bits}: {map}");
        }
    }
}

#[test]
fn the_disk_reads_as_zeroes() {
    let scratch = Scratch::new("prealloc-zeroes");
    let raw = scratch.file("raw");
    fs::File::create(&raw).unwrap().set_len(5 << 20).unwrap();
    for mode in ALL {
        let path = scratch.file(mode.name());
        create(&new_file(&path), &NewImage::of_size(5 << 20), mode).unwrap();
        let arguments = ["compare", "-q", "-f", "raw", "-F", "qcow2"];
        qemu_img(&[&arguments[..], &[&shown(&raw), &shown(&path)]].concat());
        assert_eq!(Preallocation::from_name(mode.name()), Some(mode));
    }
}

#[test]
fn what_lies_below_is_not_hidden() {
    let scratch = Scratch::new("prealloc-below");
    let spec = NewImage {
        backing: Some(Backing {
            file: "base".into(),
            format: Format::Raw,
        }),
        ..NewImage::of_size(1 << 20)
    };
    let file = new_file(&scratch.file("x"));
    let refused = create(&file, &spec, Preallocation::Metadata).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}
