//! Dirty bitmaps: their directory, tables and clusters.

use super::super::entry::OFFSET_MASK;
use super::super::extension::be64;
use super::super::listing;
use super::Checker;
use super::census::Kind;
use crate::error::Result;

/// A cluster of ones need not be stored.
const ALL_ONES: u64 = 1;
const RESERVED: u64 = !(OFFSET_MASK | ALL_ONES);

impl Checker<'_> {
    pub(super) fn walk_bitmaps(&mut self) -> Result<()> {
        let Some(directory) = self.header.bitmaps else {
            return Ok(());
        };
        self.count(directory.offset, directory.size, Kind::Bitmaps)?;
        let bitmaps = match listing::bitmaps(self.file, directory) {
            Ok(bitmaps) => bitmaps,
            Err(error) => return self.cannot_go_on(error),
        };
        for bitmap in &bitmaps {
            let offset = bitmap.table_offset.0;
            let length = u64::from(bitmap.table_entries) * 8;
            if !self.count(offset, length, Kind::Bitmaps)? {
                continue;
            }
            self.for_each(offset, length, 8, |checker, _, bytes| {
                checker.bitmap_entry(be64(bytes, 0))
            })?;
        }
        Ok(())
    }

    fn bitmap_entry(&mut self, entry: u64) -> Result<()> {
        let offset = entry & OFFSET_MASK;
        let cluster = self.header.cluster;
        let ones = entry & ALL_ONES != 0;
        if entry & RESERVED != 0 || !cluster.begins_at(offset) || offset != 0 && ones {
            self.report
                .corruption(|| format!("the entry {entry:#x} of a bitmap is none"));
        } else if offset != 0 {
            self.count(offset, cluster.bytes(), Kind::Bitmaps)?;
        }
        Ok(())
    }
}
