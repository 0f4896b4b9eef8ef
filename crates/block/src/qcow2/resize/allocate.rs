//! New clusters at the end of the file, counted before they are used.
//!
//! ```text
//!   … old file | wanted clusters | new refcount blocks | new refcount table
//! ```
//!
//! Blocks and table count themselves and each other. One new block is linked
//! by its entry in the table. Several of them could not be linked at once,
//! and one could be in use before the block that counts it: then the table
//! is written anew, and the header links them all.

use std::ops::Range;

use super::super::header::MAX_REFCOUNT_TABLE_BYTES;
use super::counts::Counts;
use crate::error::{Result, limit};

const TABLE_AT: u64 = 48;

/// Where new clusters go, all numbers in clusters.
struct Plan {
    all: Range<u64>,
    /// Numbers of the new blocks, and where the first of them is.
    blocks: Vec<u64>,
    first_block: u64,
    /// The new table, perhaps of no clusters.
    table: Range<u64>,
}

impl Counts<'_> {
    /// Takes so many clusters in a row, which read as zeroes. They are counted
    /// once each as soon as the next flush is done. Returns the first.
    pub(super) fn allocate(&mut self, count: u64) -> Result<u64> {
        let plan = self.plan(count)?;
        let bits = self.cluster.bits();
        self.file.resize(plan.all.end << bits)?;
        let table = self.write_hidden(&plan)?;
        for cluster in plan.all.clone() {
            if self.block_offset(cluster / self.per_block()) != 0 {
                self.set(cluster, 1)?;
            }
        }
        self.write_back()?;
        self.file.flush()?;
        self.link(&plan, table)?;
        Ok(plan.all.start)
    }

    fn plan(&mut self, count: u64) -> Result<Plan> {
        let start = self.free_from()?;
        let (mut blocks, mut table) = (Vec::new(), 0);
        loop {
            let end = start + count + blocks.len() as u64 + table;
            let wanted = self.missing_blocks(start..end);
            let reach = (end - 1) / self.per_block() + 1;
            let moves = wanted.len() > 1 || reach > self.table.len() as u64;
            let wanted_table = if moves { self.table_clusters(reach) } else { 0 };
            if wanted.len() <= blocks.len() && wanted_table <= table {
                break;
            }
            // Never fewer than before: it has to end.
            table = table.max(wanted_table);
            blocks = wanted;
        }
        if table << self.cluster.bits() > MAX_REFCOUNT_TABLE_BYTES {
            return Err(limit("the refcount table would become too large"));
        }
        let first_block = start + count;
        let table_start = first_block + blocks.len() as u64;
        Ok(Plan {
            all: start..table_start + table,
            blocks,
            first_block,
            table: table_start..table_start + table,
        })
    }

    /// The first cluster at or after the end of the file from which on none
    /// is counted.
    fn free_from(&mut self) -> Result<u64> {
        let end = self.cluster.count_for(self.file.size()?);
        let used = self.last_used()?.map_or(0, |last| last + 1);
        Ok(end.max(used))
    }

    fn missing_blocks(&self, clusters: Range<u64>) -> Vec<u64> {
        let numbers = clusters.start / self.per_block()..=(clusters.end - 1) / self.per_block();
        numbers
            .filter(|number| self.block_offset(*number) == 0)
            .collect()
    }

    /// Of a table for so many blocks, with room for half as many again.
    fn table_clusters(&self, blocks: u64) -> u64 {
        let blocks = blocks.max(self.table.len() as u64);
        self.cluster.count_for((blocks + blocks / 2) * 8)
    }

    /// Writes new blocks and the new table where nothing leads to yet.
    fn write_hidden(&self, plan: &Plan) -> Result<Vec<u64>> {
        let bits = self.cluster.bits();
        let mut table = self.table.clone();
        let entries = (plan.table.end - plan.table.start) * self.cluster.bytes() / 8;
        let entries = usize::try_from(entries).unwrap_or(0);
        table.resize(entries.max(table.len()), 0);
        for (index, number) in plan.blocks.iter().enumerate() {
            let offset = (plan.first_block + index as u64) << bits;
            self.file
                .write_at(&self.new_block(*number, &plan.all), offset)?;
            table[usize::try_from(*number).unwrap_or(usize::MAX)] = offset;
        }
        if !plan.table.is_empty() {
            let bytes: Vec<u8> = table.iter().flat_map(|entry| entry.to_be_bytes()).collect();
            self.file.write_at(&bytes, plan.table.start << bits)?;
        }
        Ok(table)
    }

    fn new_block(&self, number: u64, used: &Range<u64>) -> Vec<u8> {
        let mut block = vec![0; self.cluster.buffer_len()];
        let start = number * self.per_block();
        for cluster in used.start.max(start)..used.end.min(start + self.per_block()) {
            let index = usize::try_from(cluster - start).unwrap_or(0);
            self.width.set(&mut block, index, 1);
        }
        block
    }

    fn link(&mut self, plan: &Plan, table: Vec<u64>) -> Result<()> {
        let bits = self.cluster.bits();
        let old = self.table_offset >> bits;
        let old_clusters = self.cluster.count_for(self.table.len() as u64 * 8);
        self.table = table;
        if plan.table.is_empty() {
            for number in &plan.blocks {
                let entry = self.block_offset(*number).to_be_bytes();
                self.file.write_at(&entry, self.table_offset + number * 8)?;
            }
            return Ok(());
        }
        let clusters = u32::try_from(plan.table.end - plan.table.start).unwrap_or(u32::MAX);
        self.table_offset = plan.table.start << bits;
        let mut place = self.table_offset.to_be_bytes().to_vec();
        place.extend(clusters.to_be_bytes());
        self.file.write_at(&place, TABLE_AT)?;
        self.file.flush()?;
        for cluster in old..old + old_clusters {
            self.release(cluster)?;
        }
        self.write_back()
    }
}
