//! The counts of the file against the census.

use std::ops::Range;

use super::super::refcount::{TABLE_RESERVED, Width, read_table, read_zero_filled};
use super::Checker;
use super::census::{Kind, PAGE, Use};
use crate::error::Result;
use crate::zero::is_zero;

impl Checker<'_> {
    /// Counts the refcount blocks. Returns where those are that can be used.
    pub(super) fn walk_refcount_table(&mut self) -> Result<Vec<u64>> {
        let mut table = read_table(self.file, self.header)?;
        for (index, entry) in table.iter_mut().enumerate() {
            if *entry != 0 && !self.count_block(index, *entry)? {
                *entry = 0;
            }
        }
        Ok(table)
    }

    /// Compares the counts of a part of the file.
    pub(super) fn compare(&mut self, table: &[u64], part: Range<u64>) -> Result<()> {
        let width = Width::of(self.header);
        let per_block = width.per_block(self.header.cluster);
        let mut block = vec![0; self.header.cluster.buffer_len()];
        for number in part.start / per_block..part.end.div_ceil(per_block) {
            let first = number * per_block;
            let clusters = first.max(part.start)..(first + per_block).min(part.end);
            let entry = usize::try_from(number)
                .ok()
                .and_then(|number| table.get(number));
            match entry.map_or(0, |entry| entry & !TABLE_RESERVED) {
                0 => self.compare_with_nothing(&clusters),
                offset => {
                    self.read_block(offset, &mut block)?;
                    self.compare_with_block(&clusters, first, &block, width);
                }
            }
        }
        Ok(())
    }

    /// Says whether the counts of a block can be used.
    fn count_block(&mut self, index: usize, entry: u64) -> Result<bool> {
        let cluster = self.header.cluster;
        if entry & TABLE_RESERVED != 0 {
            self.report
                .corruption(|| format!("refcount table entry {index} has reserved bits set"));
            return Ok(true);
        }
        if !cluster.begins_at(entry) {
            self.report
                .corruption(|| format!("refcount block {index} is not at the start of a cluster"));
            return Ok(false);
        }
        if entry >> cluster.bits() >= self.clusters {
            self.report
                .corruption(|| format!("refcount block {index} is outside the file"));
            return Ok(false);
        }
        let free = self.count(entry, cluster.bytes(), Kind::RefcountBlock)?;
        if !free {
            self.report
                .corruption(|| format!("refcount block {index} is used otherwise, too"));
        }
        Ok(free)
    }

    fn read_block(&self, offset: u64, block: &mut [u8]) -> Result<()> {
        if self.holes.cover(offset, block.len() as u64) {
            block.fill(0);
            return Ok(());
        }
        read_zero_filled(self.file, block, offset)
    }

    /// Clusters that the file does not count at all.
    fn compare_with_nothing(&mut self, clusters: &Range<u64>) {
        for piece in pages_of(clusters) {
            if self.census.has_page(piece.start / PAGE) {
                piece.for_each(|cluster| self.judge(cluster, 0));
            }
        }
    }

    /// With a block whose first count is that of the cluster `first`.
    fn compare_with_block(
        &mut self,
        clusters: &Range<u64>,
        first: u64,
        block: &[u8],
        width: Width,
    ) {
        let index = |cluster: u64| usize::try_from(cluster - first).unwrap_or(0);
        for piece in pages_of(clusters) {
            let known = self.census.has_page(piece.start / PAGE);
            let bytes = width.spans(index(piece.start)..index(piece.end));
            if !known && is_zero(&block[bytes]) {
                continue;
            }
            piece.for_each(|cluster| {
                let stored = width.get(block, index(cluster));
                self.judge(cluster, stored);
            });
        }
    }

    fn judge(&mut self, cluster: u64, stored: u64) {
        let (counted, uses) = self.census.get(cluster);
        if stored == 0 && counted == 0 {
            return;
        }
        let counted = self.countable(cluster, counted);
        let bits = self.header.cluster.bits();
        self.report.image_end_offset = self.report.image_end_offset.max((cluster + 1) << bits);
        // Larger counts are not told apart.
        let known = u16::try_from(stored).unwrap_or(u16::MAX);
        let report = &mut self.report;
        if known < counted {
            report.corruption(|| {
                format!("cluster {cluster} is used {counted} times and counted {stored} times")
            });
        } else if known > counted {
            report.leak(|| {
                format!("cluster {cluster} is used {counted} times and counted {stored} times")
            });
        }
        if known >= counted && uses.has(Use::OVERLAP) {
            report.corruption(|| format!("cluster {cluster} is used as two things"));
        }
        let contradiction = if stored == 1 {
            Use::SHARED
        } else {
            Use::COPIED
        };
        if uses.has(contradiction) {
            report.corruption(|| {
                format!(
                    "cluster {cluster} is counted {stored} times, and its copied bit says otherwise"
                )
            });
        }
    }

    /// As much of a count as the image has room for; the rest is as many
    /// errors. Counts above 65535 are not told apart.
    fn countable(&mut self, cluster: u64, counted: u16) -> u16 {
        let most = u16::try_from(Width::of(self.header).max()).unwrap_or(u16::MAX);
        for _ in most..counted {
            self.report
                .corruption(|| format!("cluster {cluster} is used more often than can be counted"));
        }
        counted.min(most)
    }
}

/// Cuts a range at the pages of the census.
fn pages_of(clusters: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = clusters.end;
    let mut at = clusters.start;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let piece = at..((at / PAGE + 1) * PAGE).min(end);
            at = piece.end;
            piece
        })
    })
}
