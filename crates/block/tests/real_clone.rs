//! Clones that share blocks, on a real XFS. Needs root for loop devices.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use disklet_block::convert::Unwatched;
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image};
use disklet_block::ops::{Cloned, Way, clone};
use support::{Random, Scratch, attempt, open, open_writable, qemu_img, run, shown};

/// An XFS that can share blocks, mounted for as long as this lives.
struct Xfs {
    mount: PathBuf,
    _scratch: Scratch,
}

impl Xfs {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let (image, mount) = (scratch.file("xfs.img"), scratch.file("mount"));
        // No smaller XFS is made.
        File::create_new(&image)
            .unwrap()
            .set_len(512 << 20)
            .unwrap();
        fs::create_dir(&mount).unwrap();
        run("mkfs.xfs", &["-q", "-m", "reflink=1", &shown(&image)]);
        run("mount", &["-o", "loop", &shown(&image), &shown(&mount)]);
        Self {
            mount,
            _scratch: scratch,
        }
    }

    /// A disk of 8 MiB with data throughout.
    fn disk(&self) -> PathBuf {
        let path = self.mount.join("disk.raw");
        let mut random = Random::new(5);
        let bytes: Vec<u8> = (0..8 << 20).map(|_| random.byte()).collect();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn clone(&self, source: &Path, format: Format) -> (Cloned, PathBuf) {
        let target = self.mount.join("clone.raw");
        File::create_new(&target).unwrap();
        let image = Image::open(open(source), format, &NoImplicitFiles).unwrap();
        let cloned = clone(&image, &open_writable(&target), 2, &Unwatched).unwrap();
        (cloned, target)
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        let output = attempt("umount", &[&shown(&self.mount)]);
        if !output.status.success() && !std::thread::panicking() {
            panic!("{output:?}");
        }
    }
}

#[test]
#[ignore = "needs root and mkfs.xfs"]
fn raw_disks_are_shared_whole_and_part_when_written() {
    let xfs = Xfs::new("real-clone-whole");
    let source = xfs.disk();
    let before = fs::read(&source).unwrap();
    let (cloned, target) = xfs.clone(&source, Format::Raw);
    assert_eq!((cloned.way, cloned.report.shared), (Way::Whole, 8 << 20));
    assert!(fs::read(&target).unwrap() == before);
    let file = File::options().write(true).open(&target).unwrap();
    file.write_all_at(&[0; 4096], 4096).unwrap();
    assert!(fs::read(&source).unwrap() == before);
}

#[test]
#[ignore = "needs root and mkfs.xfs"]
fn clusters_of_an_image_are_shared_run_by_run() {
    let xfs = Xfs::new("real-clone-ranges");
    let raw = xfs.disk();
    let image = xfs.mount.join("disk.qcow2");
    let (from, into) = (shown(&raw), shown(&image));
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &from, &into]);
    let (cloned, target) = xfs.clone(&image, Format::Qcow2);
    assert_eq!((cloned.way, cloned.report.shared), (Way::Ranges, 8 << 20));
    assert!(fs::read(&target).unwrap() == fs::read(&raw).unwrap());
}

/// The last block of such a disk cannot be shared by ranges, but as a whole.
#[test]
#[ignore = "needs root and mkfs.xfs"]
fn disks_that_end_within_a_block_are_shared_too() {
    let xfs = Xfs::new("real-clone-odd");
    let source = xfs.disk();
    let file = File::options().write(true).open(&source).unwrap();
    file.set_len((8 << 20) - 512).unwrap();
    let (cloned, target) = xfs.clone(&source, Format::Raw);
    assert_eq!(cloned.way, Way::Whole);
    assert!(fs::read(&target).unwrap() == fs::read(&source).unwrap());
}
