//! Images that lie, and devices that fail.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::shuffle::{Order, put, shuffled};
use super::*;
use crate::device::{Fault, Request};

pub(super) const CLUSTER: usize = 4096;
/// One L2 table with these clusters.
const REACH: u64 = 512 * 4096;

/// An image of two L2 tables: header, L1 table, the first L2 table, four data
/// clusters, the second L2 table, a data cluster.
pub(super) fn crafted() -> Vec<u8> {
    let mut file = vec![0; 9 * CLUSTER];
    file[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    file[23] = 12;
    put(&mut file, 24, 2 * REACH);
    file[39] = 2;
    put(&mut file, 40, CLUSTER as u64);
    put(&mut file, 48, 8 * CLUSTER as u64);
    file[59] = 1;
    file[99] = 4;
    file[103] = 104;
    put(&mut file, CLUSTER, 2 * CLUSTER as u64);
    put(&mut file, CLUSTER + 8, 7 * CLUSTER as u64);
    for (guest, host) in [(0, 3), (1, 4), (5, 5), (6, 6)] {
        entry(&mut file, 2, guest, host * CLUSTER as u64);
    }
    entry(&mut file, 7, 3, 8 * CLUSTER as u64);
    for cluster in [3, 4, 5, 6, 8] {
        file[cluster * CLUSTER..(cluster + 1) * CLUSTER].fill(u8::try_from(cluster).unwrap());
    }
    file
}

fn entry(file: &mut [u8], table: usize, number: usize, value: u64) {
    put(file, table * CLUSTER + number * 8, value);
}

pub(super) fn crafted_disk() -> Vec<u8> {
    let mut disk = vec![0; usize::try_from(2 * REACH).unwrap()];
    for (guest, byte) in [(0, 3), (1, 4), (5, 5), (6, 6), (512 + 3, 8)] {
        disk[guest * CLUSTER..(guest + 1) * CLUSTER].fill(byte);
    }
    disk
}

fn refusal(file: &[u8]) -> (ErrorKind, String) {
    let size = usize::try_from(2 * REACH).unwrap();
    let error = stream_qcow2(file, size).map(drop).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn the_crafted_image_is_sound() {
    let folder = Folder::new("crafted");
    let path = folder.file("crafted.qcow2");
    std::fs::write(&path, crafted()).unwrap();
    assert!(judged(&folder, &path) == crafted_disk());
    let report = assert_streams(&crafted(), &crafted_disk(), "crafted");
    assert_eq!(report.parked, 0);
}

#[test]
fn truncated_streams_are_refused() {
    for order in [Order::TablesFirst, Order::TablesLast, Order::Reversed] {
        let file = shuffled(&crafted(), order);
        // Of the last cluster the L1 table needs the first bytes only.
        for length in (0..=file.len() - CLUSTER).step_by(CLUSTER / 2) {
            let (kind, message) = refusal(&file[..length]);
            if length > 104 {
                assert_eq!(kind, ErrorKind::Corrupt, "{order:?} {length}: {message}");
                assert!(
                    message.contains("truncated"),
                    "{order:?} {length}: {message}"
                );
            }
        }
    }
}

#[test]
fn tables_that_point_outside_are_refused() {
    for (table, number, value) in [
        (1, 0, 100 * CLUSTER as u64),
        (1, 0, 1 << 50),
        (2, 0, 100 * CLUSTER as u64),
        (2, 0, 1 << 50),
        (2, 0, (1 << 62) | (1 << 40)),
        (7, 3, 9 * CLUSTER as u64),
        // The L1 table and the first L2 table as L2 tables of their own.
        (1, 1, CLUSTER as u64),
    ] {
        let mut file = crafted();
        entry(&mut file, table, number, value);
        let (kind, message) = refusal(&file);
        assert_eq!(kind, ErrorKind::Corrupt, "{message}");
    }
    let mut file = crafted();
    put(&mut file, 40, 1 << 50);
    assert_eq!(refusal(&file).0, ErrorKind::Corrupt);
    put(&mut file, 40, 0);
    assert_eq!(refusal(&file).0, ErrorKind::Corrupt);
}

#[test]
fn clusters_used_twice_are_copied_twice_if_both_uses_are_known() {
    let mut file = crafted();
    entry(&mut file, 2, 100, 6 * CLUSTER as u64);
    let mut disk = crafted_disk();
    disk[100 * CLUSTER..101 * CLUSTER].fill(6);
    assert_streams(&file, &disk, "shared");
    for order in [Order::TablesFirst, Order::TablesLast, Order::Reversed] {
        assert_streams(&shuffled(&file, order), &disk, "shared and shuffled");
    }
    // The second table comes when the cluster is gone.
    entry(&mut file, 2, 100, 0);
    entry(&mut file, 7, 100, 6 * CLUSTER as u64);
    let (kind, message) = refusal(&file);
    assert_eq!(kind, ErrorKind::Unsupported, "{message}");
    assert!(message.contains("used twice"), "{message}");
    let mut disk = crafted_disk();
    disk[612 * CLUSTER..613 * CLUSTER].fill(6);
    assert_streams(
        &shuffled(&file, Order::TablesLast),
        &disk,
        "shared and parked",
    );
}

#[test]
fn tables_used_twice_serve_twice() {
    let mut file = crafted();
    put(&mut file, CLUSTER + 8, 2 * CLUSTER as u64);
    let mut disk = crafted_disk();
    let (first, second) = disk.split_at_mut(usize::try_from(REACH).unwrap());
    second.copy_from_slice(first);
    assert_streams(&file, &disk, "shared table");
}

#[test]
fn images_that_need_other_files_or_keys_are_refused() {
    let refusal = |file: &[u8]| {
        let size = usize::try_from(2 * REACH).unwrap();
        let error = stream_qcow2(file, size).map(drop).unwrap_err();
        let remedy = error.remedy().expect("a remedy");
        assert!(remedy.contains("qemu-img convert -O qcow2 FILE NEW"));
        error.kind()
    };
    let mut file = crafted();
    put(&mut file, 8, 200);
    file[19] = 11;
    file[200..211].copy_from_slice(b"/etc/passwd");
    assert_eq!(refusal(&file), ErrorKind::Forbidden);
    let mut file = crafted();
    file[79] = 4;
    assert_eq!(refusal(&file), ErrorKind::Forbidden);
    let mut file = crafted();
    file[35] = 2;
    assert_eq!(refusal(&file), ErrorKind::Unsupported);
}

#[test]
fn dirty_and_corrupt_bits_do_not_keep_from_reading() {
    let mut file = crafted();
    file[79] = 3;
    assert_streams(&file, &crafted_disk(), "dirty and corrupt");
}

#[test]
fn limits_hold() {
    let plain = options(Format::Qcow2, Unwrap::As(Wrapping::Plain));
    let kind_with = |change: &dyn Fn(&mut Limits), file: &[u8]| {
        let mut options = plain;
        change(&mut options.limits);
        let size = usize::try_from(2 * REACH).unwrap();
        stream(file, &options, size).map(drop).unwrap_err().kind()
    };
    let file = crafted();
    assert_eq!(
        kind_with(&|limits| limits.disk = 4096, &file),
        ErrorKind::Limit
    );
    let longer = |limits: &mut Limits| limits.file = Some(8 * 4096 + 1);
    assert_eq!(kind_with(&longer, &file), ErrorKind::Limit);
    let last = shuffled(&file, Order::TablesLast);
    assert_eq!(
        kind_with(&|limits| limits.parked = 4096, &last),
        ErrorKind::Limit
    );
    let small = stream(&file, &plain, CLUSTER).map(drop).unwrap_err();
    assert_eq!(small.kind(), ErrorKind::Invalid);
}

#[test]
fn a_stream_without_end_ends_at_the_limit() {
    let file = crafted();
    let endless = (&file[..]).chain(std::io::repeat(0));
    let target = MemoryDevice::zeroed(usize::try_from(2 * REACH).unwrap());
    let mut options = options(Format::Qcow2, Unwrap::As(Wrapping::Plain));
    options.before = Before::Zeroes;
    let error = to_raw(
        endless,
        &options,
        &target,
        &MemoryDevice::default(),
        &Unwatched,
    );
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn failing_devices_fail_the_conversion() {
    let file = shuffled(&crafted(), Order::TablesLast);
    let options = options(Format::Qcow2, Unwrap::As(Wrapping::Plain));
    let size = usize::try_from(2 * REACH).unwrap();
    for number in 0.. {
        let (target, scratch) = (MemoryDevice::zeroed(size), MemoryDevice::default());
        let failing = if number % 2 == 0 { &target } else { &scratch };
        failing.set_rule(move |at, _| (at == number / 2).then_some(Fault::NoSpace));
        match to_raw(&file[..], &options, &target, &scratch, &Unwatched) {
            Ok(_) if number > 20 => break,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace),
        }
    }
    let target = MemoryDevice::zeroed(size);
    target.set_rule(|_, request| (request == Request::Flush).then_some(Fault::Fail));
    to_raw(
        &file[..],
        &options,
        &target,
        &MemoryDevice::default(),
        &Unwatched,
    )
    .unwrap_err();
}

struct Counting {
    seen: AtomicU64,
    stop: bool,
}

impl Watch for Counting {
    fn advance(&self, bytes: u64) {
        self.seen.fetch_add(bytes, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.stop
    }
}

#[test]
fn a_watcher_sees_the_whole_disk_and_can_stop() {
    let options = options(Format::Qcow2, Unwrap::As(Wrapping::Plain));
    for order in [Order::TablesFirst, Order::TablesLast, Order::Random(3)] {
        let file = shuffled(&crafted(), order);
        for stop in [false, true] {
            let watch = Counting {
                seen: AtomicU64::new(0),
                stop,
            };
            let target = MemoryDevice::zeroed(usize::try_from(2 * REACH).unwrap());
            let outcome = to_raw(
                &file[..],
                &options,
                &target,
                &MemoryDevice::default(),
                &watch,
            );
            match outcome {
                Ok(_) => assert_eq!(watch.seen.into_inner(), 2 * REACH),
                Err(error) => assert_eq!((stop, error.kind()), (true, ErrorKind::Cancelled)),
            }
        }
    }
}

proptest! {
    /// Damaged tables lead to a refusal or a disk, and nowhere else.
    #[test]
    fn damaged_images_do_no_harm(
        changes in prop::collection::vec((0usize..9 * 512, any::<u64>(), 0u32..64), 1..6),
        order: u64,
    ) {
        let mut file = shuffled(&crafted(), Order::Random(order));
        for (word, value, shift) in changes {
            let word = if word % 3 == 0 { word } else { word % (3 * 512) };
            put(&mut file, word * 8, value >> shift);
        }
        let mut options = options(Format::Qcow2, Unwrap::As(Wrapping::Plain));
        options.limits.disk = 8 << 20;
        let _ = stream(&file, &options, 8 << 20);
    }
}
