//! Images whose tables overlap, lead out of the file, or are far too large.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;

use support::Scratch;
use support::confined::{in_time, tried};
use support::forge::{BLOCK, COPIED, Change, DATA, Forged, L1, L2, REFCOUNTS, forged};

const CLUSTER: u64 = 1 << 16;

/// Where the attempts run.
#[test]
fn child() {
    support::confined::child();
}

#[test]
fn tables_that_overlap_are_refused() {
    let cases: [(&str, Change, &str); 6] = [
        (
            "l1-header",
            |i| i.put64(40, 0),
            "L1 table overlaps the header",
        ),
        (
            "l1-counts",
            |i| i.put64(40, REFCOUNTS * CLUSTER),
            "refcount table overlaps the L1 table",
        ),
        (
            "counts-header",
            |i| i.put64(48, 0),
            "refcount table overlaps the header",
        ),
        (
            "l2-l1",
            |i| i.set(L1, 0, COPIED | (L1 * CLUSTER)),
            "L2 table overlaps the L1 table",
        ),
        (
            "l2-counts",
            |i| i.set(L1, 0, COPIED | (REFCOUNTS * CLUSTER)),
            "L2 table overlaps the refcount table",
        ),
        (
            "l2-twice",
            |i| {
                i.virtual_size(1 << 30).put32(36, 2);
                i.set(L1, 1, COPIED | (L2 * CLUSTER))
            },
            "share an L2 table",
        ),
    ];
    for (name, change, words) in cases {
        let outcome = tried(name, &forged(change));
        outcome.refused("open", "Corrupt", words);
        outcome.refused("check", "Corrupt", "");
    }
    // An offset of 0 names no table: nothing to read, but not sound.
    let nowhere = forged(|i| i.set(L1, 0, COPIED));
    tried("l2-header", &nowhere).refused("check", "Corrupt", "");
}

#[test]
fn data_in_tables_is_found_by_the_check() {
    for (name, table) in [
        ("header", 0),
        ("l1", L1),
        ("l2", L2),
        ("counts", REFCOUNTS),
        ("block", BLOCK),
    ] {
        let mut image = Forged::sound(16);
        let cluster = image.cluster();
        image.set(L2, 1, COPIED | (table * cluster));
        // The count is made to agree, so that only the overlap is left.
        let at = image.at(BLOCK) + 2 * usize::try_from(table).unwrap();
        image.bytes[at + 1] = 2;
        let outcome = tried(&format!("data-{name}"), &image);
        if table == 0 {
            // An offset of 0 is no cluster; its count is a leak.
            outcome.fine("check");
        } else {
            outcome.refused("check", "Corrupt", "");
        }
    }
}

#[test]
fn tables_that_point_outside_are_refused() {
    let far = 1 << 50;
    let mut l1 = Forged::sound(16);
    l1.put64(40, far);
    tried("l1-outside", &l1).refused("open", "Corrupt", "L1 table reaches beyond the end");
    let mut counts = Forged::sound(16);
    counts.put64(48, far);
    let outcome = tried("counts-outside", &counts);
    outcome.refused("open", "Corrupt", "refcount table reaches beyond the end");
    outcome.refused("check", "Corrupt", "beyond the end");
    let mut l2 = Forged::sound(16);
    l2.set(L1, 0, COPIED | far);
    let outcome = tried("l2-outside", &l2);
    outcome.refused("read", "Corrupt", "L2 table reaches beyond the end");
    outcome.refused("check", "Corrupt", "beyond the end");
    let mut data = Forged::sound(16);
    data.set(L2, 0, COPIED | far);
    let outcome = tried("data-outside", &data);
    outcome.refused("read", "Corrupt", "a cluster lies beyond the end");
    outcome.refused("copy", "Corrupt", "a cluster lies beyond the end");
    let mut block = Forged::sound(16);
    block.set(REFCOUNTS, 0, far);
    tried("block-outside", &block).refused("check", "Corrupt", "refcount block 0 is outside");
    let mut snapshots = Forged::sound(16);
    snapshots.put32(60, 1).put64(64, far);
    tried("snapshots-outside", &snapshots).refused(
        "open",
        "Corrupt",
        "snapshot table reaches beyond",
    );
}

/// The end of a file is missing, as after a transfer that was cut short.
#[test]
fn a_run_that_the_file_cuts_short_does_not_read_as_zeroes() {
    let mut image = Forged::sound(16);
    let cluster = image.cluster();
    for index in 0..8 {
        image.set(L2, index, COPIED | ((DATA + index as u64) * cluster));
    }
    let outcome = tried("cut", &image);
    outcome.refused("read", "Corrupt", "beyond the end of the file");
    outcome.refused("copy", "Corrupt", "beyond the end of the file");
}

/// Files of terabytes that take no space, with tables to match.
#[test]
fn huge_files_of_holes_cost_nothing() {
    let scratch = Scratch::new("hostile-holes");
    let path = scratch.file("image");
    for bits in [9, 12, 16, 21] {
        let mut image = Forged::sound(bits);
        let cluster = image.cluster();
        let far = 1 << 40;
        // The largest L1 table, in a hole, for a disk as large as it goes.
        let entries: u64 = 4 << 20;
        let size = (entries * (cluster / 8) * cluster).min(1 << 62);
        image.virtual_size(size);
        image
            .put32(36, u32::try_from(entries).unwrap())
            .put64(40, far);
        image.put32(60, 65536).put64(64, 2 * far);
        fs::write(&path, &image.bytes).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(8 * far).unwrap();
        let outcome = in_time(&path, "qcow2", None);
        outcome.fine("open").fine("read");
        outcome.refused("copy", "Invalid", "smaller than the disk");
    }
}

/// Clusters so far apart that counting them all at once takes more than there
/// is.
#[test]
fn a_check_does_not_count_without_end() {
    let mut image = Forged::sound(16);
    for index in 1..8192 {
        image.set(L2, index, COPIED | ((index as u64) << 28));
    }
    image.virtual_size(1 << 29);
    let scratch = Scratch::new("hostile-apart");
    let path = scratch.file("image");
    fs::write(&path, &image.bytes).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 41).unwrap();
    let outcome = in_time(&path, "qcow2", None);
    outcome.refused("check", "Corrupt", "is used 1 times and counted 0 times");
}

/// The largest L1 table there may be, full, and in the worst order.
#[test]
fn a_full_table_of_the_largest_size_is_read_within_the_limits() {
    let entries: u64 = 4 << 20;
    let mut image = Forged::sound(9);
    let table = image.bytes.len() as u64;
    image.virtual_size(entries << 15);
    image.put32(36, 4 << 20).put64(40, table);
    let l1 = (0..entries).rev().flat_map(|index| {
        let offset = COPIED | (((index * 0x9_e375 % entries) + (1 << 20)) << 9);
        offset.to_be_bytes()
    });
    image.bytes.extend(l1);
    let scratch = Scratch::new("hostile-full");
    let path = scratch.file("image");
    fs::write(&path, &image.bytes).unwrap();
    let outcome = in_time(&path, "qcow2", None);
    outcome.refused("read", "Corrupt", "L2 table reaches beyond the end");
    outcome.refused("check", "Corrupt", "beyond the end");
    // And with a file that reaches as far, in holes.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 39).unwrap();
    let outcome = in_time(&path, "qcow2", None);
    outcome.fine("open").refused("check", "Corrupt", "");
}
