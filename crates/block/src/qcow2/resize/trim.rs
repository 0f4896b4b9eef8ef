//! Taking away what lies beyond the end of the disk.

use super::super::entry::{COMPRESSED, CompressedCluster, OFFSET_MASK, ZERO};
use super::super::extension::be64;
use super::super::refcount::read_zero_filled;
use super::Resizer;
use crate::error::Result;

/// What lies beyond an end of the disk.
struct Excess {
    /// L2 tables that are not needed at all.
    tables: Vec<u64>,
    /// The table that the end lies in, from its first entry beyond.
    cut: Option<(u64, Vec<u8>)>,
}

impl Resizer<'_> {
    /// Whether any cluster that does not lie wholly before `end` has data.
    pub(super) fn has_data_beyond(&self, end: u64) -> Result<bool> {
        // A cluster that the end lies in counts as well.
        let end = end / self.header.cluster.bytes() * self.header.cluster.bytes();
        self.any_entry_beyond(end, &|word, bitmap| match bitmap {
            Some(bitmap) if word & COMPRESSED == 0 => bitmap & 0xffff_ffff != 0,
            _ => word & COMPRESSED != 0 || word & OFFSET_MASK != 0 && word & ZERO == 0,
        })
    }

    /// Whether anything is named beyond the end of the disk.
    pub(super) fn has_entries_beyond(&self) -> Result<bool> {
        self.any_entry_beyond(self.header.size, &|word, bitmap| {
            word != 0 || bitmap.is_some_and(|bitmap| bitmap != 0)
        })
    }

    fn any_entry_beyond(
        &self,
        end: u64,
        wanted: &dyn Fn(u64, Option<u64>) -> bool,
    ) -> Result<bool> {
        let entry = usize::try_from(self.header.l2_entry_bytes()).unwrap_or(8);
        let any = |bytes: &[u8]| {
            bytes.chunks_exact(entry).any(|bytes| {
                let bitmap = (entry == 16).then(|| be64(bytes, 8));
                wanted(be64(bytes, 0), bitmap)
            })
        };
        let excess = self.excess(end)?;
        if excess.cut.is_some_and(|(_, bytes)| any(&bytes)) {
            return Ok(true);
        }
        let mut table = vec![0; self.header.cluster.buffer_len()];
        for offset in excess.tables {
            read_zero_filled(self.file, &mut table, offset)?;
            if any(&table) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn excess(&self, end: u64) -> Result<Excess> {
        let header = &self.header;
        let first = end.div_ceil(header.l2_reach());
        let mut tables = Vec::new();
        for index in first..u64::from(header.l1_entries) {
            tables.extend(self.table_at(index)?);
        }
        let beyond = end % header.l2_reach();
        let index = beyond.div_ceil(header.cluster.bytes());
        let table = match beyond {
            0 => None,
            _ => self.table_at(first - 1)?,
        };
        let cut = match table {
            Some(table) if index < header.l2_entries() => {
                let start = index * header.l2_entry_bytes();
                let length = header.cluster.bytes() - start;
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
                read_zero_filled(self.file, &mut bytes, table + start)?;
                Some((table + start, bytes))
            }
            _ => None,
        };
        Ok(Excess { tables, cut })
    }

    fn table_at(&self, index: u64) -> Result<Option<u64>> {
        let mut word = [0; 8];
        read_zero_filled(self.file, &mut word, self.header.l1_offset.0 + index * 8)?;
        let offset = be64(&word, 0) & OFFSET_MASK;
        Ok((offset != 0).then_some(offset))
    }

    /// Frees what is named beyond the end of the disk. The image has been
    /// checked, and has no snapshots.
    pub(super) fn trim(&mut self) -> Result<()> {
        let excess = self.excess(self.header.size)?;
        self.unlink(&excess)?;
        if let Some((_, bytes)) = &excess.cut {
            self.release_entries(bytes)?;
        }
        let mut table = vec![0; self.header.cluster.buffer_len()];
        for offset in excess.tables {
            read_zero_filled(self.file, &mut table, offset)?;
            self.release_entries(&table)?;
            self.release(offset, self.header.cluster.bytes())?;
        }
        self.discard()?;
        self.counts.write_back()?;
        self.file.flush()?;
        self.cut_file()
    }

    /// Until this is durable, nothing may be freed.
    fn unlink(&self, excess: &Excess) -> Result<()> {
        let header = &self.header;
        if let Some((offset, bytes)) = &excess.cut {
            self.file.write_at(&vec![0; bytes.len()], *offset)?;
        }
        if !excess.tables.is_empty() {
            let needed = header.l1_needed();
            let length = (u64::from(header.l1_entries) - needed) * 8;
            let zeroes = vec![0; usize::try_from(length).unwrap_or(0)];
            self.file
                .write_at(&zeroes, header.l1_offset.0 + needed * 8)?;
        }
        self.file.flush()
    }

    fn release_entries(&mut self, bytes: &[u8]) -> Result<()> {
        let entry = usize::try_from(self.header.l2_entry_bytes()).unwrap_or(8);
        for bytes in bytes.chunks_exact(entry) {
            let word = be64(bytes, 0);
            if word & COMPRESSED != 0 {
                let packed = CompressedCluster::decode(word, self.header.cluster);
                self.release(packed.offset.0, packed.length)?;
            } else if word & OFFSET_MASK != 0 {
                self.release(word & OFFSET_MASK, self.header.cluster.bytes())?;
            }
        }
        Ok(())
    }

    pub(super) fn release(&mut self, offset: u64, length: u64) -> Result<()> {
        let bits = self.header.cluster.bits();
        for cluster in offset >> bits..=(offset + length - 1) >> bits {
            if self.counts.release(cluster)? {
                self.discard_later(cluster)?;
            }
        }
        Ok(())
    }

    /// Free clusters are often neighbours, and given back together.
    fn discard_later(&mut self, cluster: u64) -> Result<()> {
        if cluster == self.free.end {
            self.free.end += 1;
        } else if cluster + 1 == self.free.start {
            self.free.start = cluster;
        } else {
            self.discard()?;
            self.free = cluster..cluster + 1;
        }
        Ok(())
    }

    /// Gives back what is free.
    pub(super) fn discard(&mut self) -> Result<()> {
        let bits = self.header.cluster.bits();
        let start = self.free.start << bits;
        let end = (self.free.end << bits).min(self.file.size()?);
        self.free = 0..0;
        if start < end {
            self.file.discard(start, end - start)?;
        }
        Ok(())
    }

    /// What is free at the end of the file goes back to the filesystem. A
    /// file that cannot be cut, as a block device, stays as it is.
    fn cut_file(&mut self) -> Result<()> {
        let last = self.counts.last_used()?.map_or(1, |last| last + 1);
        let end = last << self.header.cluster.bits();
        if end < self.file.size()? && self.file.resize(end).is_ok() {
            self.file.flush()?;
        }
        Ok(())
    }
}
