//! The counts of an image, changed in place.

use std::ops::Range;

use super::super::cluster::ClusterSize;
use super::super::header::Header;
use super::super::refcount::{TABLE_RESERVED, Width, read_table, read_zero_filled};
use super::ImageFile;
use crate::error::{Result, corrupt};

/// All counts, of which one block is in memory.
pub(super) struct Counts<'f> {
    pub(super) file: &'f dyn ImageFile,
    pub(super) cluster: ClusterSize,
    pub(super) width: Width,
    pub(super) table: Vec<u64>,
    pub(super) table_offset: u64,
    block: Option<Block>,
}

struct Block {
    number: u64,
    bytes: Vec<u8>,
    /// What of it has to be written.
    changed: Option<Range<usize>>,
}

impl<'f> Counts<'f> {
    pub(super) fn load(file: &'f dyn ImageFile, header: &Header) -> Result<Self> {
        let table = read_table(file, header)?;
        let size = file.size()?;
        let wrong = |entry: &u64| {
            *entry & TABLE_RESERVED != 0 || !header.cluster.begins_at(*entry) || *entry >= size
        };
        if table.iter().any(wrong) {
            return Err(corrupt("a refcount block is not where one can be"));
        }
        Ok(Self {
            file,
            cluster: header.cluster,
            width: Width::of(header),
            table,
            table_offset: header.refcount_offset.0,
            block: None,
        })
    }

    pub(super) fn per_block(&self) -> u64 {
        self.width.per_block(self.cluster)
    }

    /// Where the block with this number is; 0 if there is none.
    pub(super) fn block_offset(&self, number: u64) -> u64 {
        let index = usize::try_from(number).ok();
        let entry = index.and_then(|index| self.table.get(index));
        entry.copied().unwrap_or(0)
    }

    /// How often a cluster is counted.
    pub(super) fn get(&mut self, cluster: u64) -> Result<u64> {
        let width = self.width;
        let index = self.index(cluster);
        let block = self.load_block(cluster)?;
        Ok(block.map_or(0, |block| width.get(&block.bytes, index)))
    }

    /// Changes a count that is in a block.
    pub(super) fn set(&mut self, cluster: u64, count: u64) -> Result<()> {
        let width = self.width;
        let index = self.index(cluster);
        let Some(block) = self.load_block(cluster)? else {
            return Err(corrupt("a cluster is in use that has no count"));
        };
        width.set(&mut block.bytes, index, count);
        let span = width.spans(index..index + 1);
        block.changed = Some(match block.changed.take() {
            None => span,
            Some(old) => old.start.min(span.start)..old.end.max(span.end),
        });
        Ok(())
    }

    /// Takes a reference from a cluster; says whether it was the last.
    pub(super) fn release(&mut self, cluster: u64) -> Result<bool> {
        let count = self.get(cluster)?;
        if count > 0 {
            self.set(cluster, count - 1)?;
        }
        Ok(count == 1)
    }

    /// Writes what was changed.
    pub(super) fn write_back(&mut self) -> Result<()> {
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        let Some(changed) = block.changed.take() else {
            return Ok(());
        };
        let index = usize::try_from(block.number).unwrap_or(usize::MAX);
        let offset = self.table[index] + changed.start as u64;
        self.file.write_at(&block.bytes[changed], offset)
    }

    /// The last cluster that is counted at all.
    pub(super) fn last_used(&mut self) -> Result<Option<u64>> {
        for number in (0..self.table.len() as u64).rev() {
            if self.block_offset(number) == 0 {
                continue;
            }
            let start = number * self.per_block();
            for cluster in (start..start + self.per_block()).rev() {
                if self.get(cluster)? > 0 {
                    return Ok(Some(cluster));
                }
            }
        }
        Ok(None)
    }

    fn index(&self, cluster: u64) -> usize {
        usize::try_from(cluster % self.per_block()).unwrap_or(0)
    }

    fn load_block(&mut self, cluster: u64) -> Result<Option<&mut Block>> {
        let number = cluster / self.per_block();
        let offset = self.block_offset(number);
        if offset == 0 {
            return Ok(None);
        }
        if self
            .block
            .as_ref()
            .is_none_or(|block| block.number != number)
        {
            self.write_back()?;
            let mut bytes = vec![0; self.cluster.buffer_len()];
            read_zero_filled(self.file, &mut bytes, offset)?;
            self.block = Some(Block {
                number,
                bytes,
                changed: None,
            });
        }
        Ok(self.block.as_mut())
    }
}
