//! Copies judged by comparing bytes, on devices that fail on order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::device::{Fault, MemoryDevice, Request};
use crate::qcow2::NewImage;

const SIZE: usize = (5 << 20) + 512;

fn disk() -> (Image, Vec<u8>) {
    let mut bytes = vec![0; SIZE];
    for (index, block) in bytes.chunks_mut(4096).enumerate() {
        if index % 11 < 5 {
            block.fill(u8::try_from(index % 255 + 1).unwrap());
        }
    }
    let image = Image::raw(Arc::new(MemoryDevice::new(bytes.clone())));
    (image, bytes)
}

fn options(target: Before) -> Options {
    Options {
        threads: 3,
        target,
        share: true,
    }
}

#[test]
fn a_copy_is_the_same_and_durable() {
    let (image, bytes) = disk();
    let target = MemoryDevice::zeroed(SIZE);
    let report = to_raw(&image, &target, &options(Before::Zeroes), &Unwatched).unwrap();
    assert_eq!(target.after_power_cut(|_| false).contents(), bytes);
    assert_eq!(report.shared, 0);
    assert_eq!(report.written + report.zero, SIZE as u64);
    assert!(report.zero > 0);
}

#[test]
fn old_bytes_do_not_shine_through() {
    let (image, bytes) = disk();
    let target = MemoryDevice::new(vec![0xee; SIZE + 4096]);
    to_raw(&image, &target, &options(Before::Anything), &Unwatched).unwrap();
    assert!(target.contents()[..SIZE] == bytes);
    assert_eq!(target.contents()[SIZE..], [0xee; 4096]);
}

#[test]
fn a_failed_write_fails_the_copy() {
    let (image, _) = disk();
    let target = MemoryDevice::zeroed(SIZE);
    target.set_rule(|_, request| match request {
        Request::Write(offset, _) if offset > 3 << 20 => Some(Fault::NoSpace),
        _ => None,
    });
    let error = to_raw(&image, &target, &options(Before::Zeroes), &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
}

#[test]
fn a_failed_flush_fails_the_copy() {
    let (image, _) = disk();
    let target = MemoryDevice::zeroed(SIZE);
    target.set_rule(|_, request| (request == Request::Flush).then_some(Fault::Fail));
    to_raw(&image, &target, &options(Before::Zeroes), &Unwatched).unwrap_err();
}

#[test]
fn a_smaller_target_is_refused_before_anything_is_written() {
    let (image, _) = disk();
    let target = MemoryDevice::zeroed(SIZE - 1);
    to_raw(&image, &target, &options(Before::Zeroes), &Unwatched).unwrap_err();
    assert_eq!(target.unflushed(), 0);
}

/// Nobody waits for ever for what the thread would have brought.
#[test]
fn a_panic_fails_the_copy() {
    let source = MemoryDevice::new(vec![7; 64 << 20]);
    source.set_rule(|_, request| match request {
        Request::Read(0, _) => panic!("on order"),
        _ => None,
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let image = Image::raw(Arc::new(source));
        let spec = NewImage::of_size(64 << 20);
        let target = MemoryDevice::default();
        let copy = || to_qcow2(&image, &target, &spec, Packing::Plain, 2, &Unwatched);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(copy));
        sender.send(!matches!(outcome, Ok(Ok(_)))).unwrap();
    });
    let failed = receiver.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(failed, Ok(true));
}

#[derive(Default)]
struct StopAt {
    seen: AtomicU64,
    limit: u64,
}

impl Watch for StopAt {
    fn advance(&self, bytes: u64) {
        self.seen.fetch_add(bytes, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.seen.load(Ordering::Relaxed) >= self.limit
    }
}

#[test]
fn a_watcher_sees_all_bytes_and_can_stop() {
    let (image, _) = disk();
    let target = MemoryDevice::zeroed(SIZE);
    let all = StopAt {
        limit: u64::MAX,
        ..StopAt::default()
    };
    to_raw(&image, &target, &options(Before::Zeroes), &all).unwrap();
    assert_eq!(all.seen.load(Ordering::Relaxed), SIZE as u64);
    let some = StopAt {
        limit: 1,
        ..StopAt::default()
    };
    // Several threads could have all chunks in hand before the first is done.
    let options = Options {
        threads: 1,
        ..options(Before::Zeroes)
    };
    let error = to_raw(&image, &target, &options, &some).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

/// Space is set aside for runs of data before anybody knows that some of it is zeroes.
/// Those have none at the end, and the file is as long as the disk.
#[test]
fn zeroes_within_data_have_no_space_at_the_end() {
    use crate::device::{Caching, FileDevice, Resize};
    use std::os::unix::fs::MetadataExt;

    const PIECE: usize = 6 << 20;
    let program = std::env::current_exe().unwrap();
    let path = program.with_file_name(format!("rooms-{}", std::process::id()));
    let open = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = open.unwrap();
    std::fs::remove_file(&path).unwrap();
    // In memory there are no holes: all of it counts as one run of data.
    let mut bytes = vec![0; 3 * PIECE + 4096];
    bytes[..PIECE].fill(1);
    bytes[2 * PIECE..].fill(2);
    let image = Image::raw(Arc::new(MemoryDevice::new(bytes.clone())));
    let target = FileDevice::new(file, "target", Caching::Direct).unwrap();
    target.resize(bytes.len() as u64).unwrap();
    to_raw(&image, &target, &options(Before::Zeroes), &Unwatched).unwrap();
    let mut copy = vec![0xee; bytes.len()];
    crate::device::ReadAt::read_at(&target, &mut copy, 0).unwrap();
    assert!(copy == bytes);
    let made = target.file().metadata().unwrap();
    assert_eq!(made.len(), bytes.len() as u64);
    // What a filesystem takes for itself is less than a piece.
    assert!(made.blocks() * 512 < 3 * PIECE as u64, "{}", made.blocks());
}
