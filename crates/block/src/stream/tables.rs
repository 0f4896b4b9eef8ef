//! The L2 tables of an image and what is known about them.

use crate::error::{Result, corrupt, limit};

/// More L2 tables than this are refused: 3 MiB of notes, and 128 TiB of disk
/// with usual clusters.
const MOST_TABLES: usize = 1 << 18;

/// Twelve bytes about an L2 table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    /// Its cluster in the file.
    pub(super) cluster: u32,
    /// Its number in the L1 table.
    pub(super) index: u32,
    /// From which cluster of the file on its data was placed as it came. What
    /// lies before is parked.
    placed_from: u32,
}

/// Nothing was placed as it came: the table was not known then.
const NOT_READ: u32 = u32::MAX;

impl Table {
    /// Whether it was read while data came.
    pub(super) fn was_read(&self) -> bool {
        self.placed_from != NOT_READ
    }

    /// The cluster of the file before which its data is parked.
    pub(super) fn parked_before(&self) -> u64 {
        self.placed_from.into()
    }

    /// Whether some of its data is parked.
    fn is_open(&self) -> bool {
        self.placed_from > 0
    }
}

/// All L2 tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    list: Vec<Table>,
    /// The first that is still to come, or to be looked at again.
    next: usize,
    /// How many of the first came before the L1 table and are not read yet.
    passed: std::ops::Range<usize>,
    unread: usize,
}

impl Tables {
    /// Notes a table that the L1 table names.
    pub(super) fn add(&mut self, cluster: u64, index: u32) -> Result<()> {
        if self.list.len() >= MOST_TABLES {
            return Err(limit(format!(
                "an image with more than {MOST_TABLES} L2 tables cannot be read from a stream"
            )));
        }
        let cluster =
            u32::try_from(cluster).map_err(|_| corrupt("an L2 table lies beyond any file"))?;
        self.list.push(Table {
            cluster,
            index,
            placed_from: NOT_READ,
        });
        self.unread += 1;
        Ok(())
    }

    /// The L1 table is complete; the stream is at this cluster.
    pub(super) fn complete(&mut self, position: u64) {
        self.list
            .sort_unstable_by_key(|table| (table.cluster, table.index));
        self.next = self
            .list
            .partition_point(|table| u64::from(table.cluster) < position);
        self.passed = 0..self.next;
    }

    /// Whether some tables have not been read.
    pub(super) fn some_unread(&self) -> bool {
        self.unread > 0
    }

    /// The cluster of the next table to come.
    pub(super) fn awaited(&self) -> Option<u64> {
        self.list.get(self.next).map(|table| table.cluster.into())
    }

    /// The tables in the cluster that comes now: one, as a rule.
    pub(super) fn arriving(&mut self, cluster: u64) -> std::ops::Range<usize> {
        let start = self.next;
        self.next += same_cluster(&self.list[start..], cluster);
        start..self.next
    }

    /// The cluster of a table that came before it was known to be one.
    pub(super) fn passed(&self) -> Option<u64> {
        let first = self.list[self.passed.clone()].first()?;
        Some(first.cluster.into())
    }

    /// The tables in that cluster, which are read now.
    pub(super) fn take_passed(&mut self, cluster: u64) -> std::ops::Range<usize> {
        let start = self.passed.start;
        self.passed.start += same_cluster(&self.list[self.passed.clone()], cluster);
        start..self.passed.start
    }

    pub(super) fn get(&self, number: usize) -> Table {
        self.list[number]
    }

    /// A table has been read. Its data from `cluster` on is placed as it
    /// comes; `none_before` says that there is no other.
    pub(super) fn set_read(&mut self, number: usize, cluster: u64, none_before: bool) {
        let cluster = u32::try_from(cluster).unwrap_or(NOT_READ - 1);
        self.list[number].placed_from = if none_before { 0 } else { cluster };
        self.unread -= 1;
    }

    /// The stream has ended: tables are looked at again in the disk's order.
    pub(super) fn begin_settling(&mut self) {
        self.list.retain(Table::is_open);
        self.list.sort_unstable_by_key(|table| table.index);
        self.next = 0;
    }

    /// The next table to look at again.
    pub(super) fn to_settle(&self) -> Option<Table> {
        self.list.get(self.next).copied()
    }

    pub(super) fn settled(&mut self) {
        self.next += 1;
    }
}

fn same_cluster(tables: &[Table], cluster: u64) -> usize {
    tables
        .iter()
        .take_while(|table| u64::from(table.cluster) == cluster)
        .count()
}
