//! The cluster that the old end of the disk lies in. Whatever it holds beyond
//! must be zeroes before the disk reaches there.

use super::super::compressed::Unpacker;
use super::super::entry::{COMPRESSED, COPIED, CompressedCluster, OFFSET_MASK, ZERO};
use super::super::extension::be64;
use super::super::refcount::read_zero_filled;
use super::{Resizer, refuse_corrupt};
use crate::error::Result;
use crate::zero::is_zero;

/// All subclusters are in the cluster.
const ALL_ALLOCATED: u64 = 0xffff_ffff;

/// A cluster as the tables name it.
struct Last {
    l1_at: u64,
    /// The entry of the L1 table.
    l1_word: u64,
    /// Where the L2 table is.
    table: u64,
    /// Where in it the entry is.
    entry: u64,
    word: u64,
    /// The second word of an extended entry.
    bitmap: u64,
}

impl Last {
    /// Whether bytes of the file can be read through it.
    fn has_bytes(&self) -> bool {
        self.is_packed() || self.word & OFFSET_MASK != 0 && self.word & ZERO == 0
    }

    fn is_packed(&self) -> bool {
        self.word & COMPRESSED != 0
    }

    fn host(&self) -> u64 {
        self.word & OFFSET_MASK
    }
}

impl Resizer<'_> {
    pub(super) fn clear_last_cluster(&mut self, name: &str) -> Result<()> {
        let cluster = self.header.cluster;
        let within = cluster.within(self.header.size);
        if within == 0 {
            return Ok(());
        }
        let Some(last) = self.last_cluster()?.filter(Last::has_bytes) else {
            return Ok(());
        };
        let mut bytes = self.read_last(&last)?;
        let start = usize::try_from(within).unwrap_or(0);
        if is_zero(&bytes[start..]) {
            return Ok(());
        }
        bytes[start..].fill(0);
        if !self.is_ours_alone(&last)? {
            refuse_corrupt(self.file, name)?;
            return self.replace(&last, &bytes);
        }
        // What is behind the end of the file reads as zeroes anyway.
        let there = self.file.size()?.saturating_sub(last.host());
        let end = usize::try_from(there.min(cluster.bytes())).unwrap_or(0);
        self.file
            .write_at(&bytes[start..end], last.host() + within)?;
        self.file.flush()
    }

    fn last_cluster(&self) -> Result<Option<Last>> {
        let header = &self.header;
        let l1_at = header.l1_offset.0 + header.size / header.l2_reach() * 8;
        let mut words = [0; 16];
        read_zero_filled(self.file, &mut words[..8], l1_at)?;
        let l1_word = be64(&words, 0);
        let table = l1_word & OFFSET_MASK;
        if table == 0 {
            return Ok(None);
        }
        let index = header.size % header.l2_reach() / header.cluster.bytes();
        let entry = index * header.l2_entry_bytes();
        let length = usize::try_from(header.l2_entry_bytes()).unwrap_or(8);
        words = [0; 16];
        read_zero_filled(self.file, &mut words[..length], table + entry)?;
        Ok(Some(Last {
            l1_at,
            l1_word,
            table,
            entry,
            word: be64(&words, 0),
            bitmap: be64(&words, 8),
        }))
    }

    fn read_last(&self, last: &Last) -> Result<Vec<u8>> {
        let header = &self.header;
        let mut bytes = vec![0; header.cluster.buffer_len()];
        if last.is_packed() {
            let place = CompressedCluster::decode(last.word, header.cluster);
            let mut packed = vec![0; usize::try_from(place.length).unwrap_or(0)];
            read_zero_filled(self.file, &mut packed, place.offset.0)?;
            Unpacker::new(header.compression).unpack(&packed, &mut bytes)?;
        } else {
            read_zero_filled(self.file, &mut bytes, last.host())?;
        }
        Ok(bytes)
    }

    /// Whether the cluster may be written where it is: tables and counts both
    /// say that no snapshot uses it.
    fn is_ours_alone(&mut self, last: &Last) -> Result<bool> {
        let bits = self.header.cluster.bits();
        Ok(!last.is_packed()
            && last.word & COPIED != 0
            && self.is_our_table(last)?
            && self.counts.get(last.host() >> bits)? == 1)
    }

    fn is_our_table(&mut self, last: &Last) -> Result<bool> {
        let bits = self.header.cluster.bits();
        Ok(last.l1_word & COPIED != 0 && self.counts.get(last.table >> bits)? == 1)
    }

    /// Puts the bytes into a new cluster, and into a new table if the old one
    /// is a snapshot's too. Until the entry is written nothing leads there;
    /// afterwards nothing of the disk leads to the old ones.
    fn replace(&mut self, last: &Last, bytes: &[u8]) -> Result<()> {
        let cluster = self.header.cluster;
        let keeps_table = self.is_our_table(last)?;
        let wanted = if keeps_table { 1 } else { 2 };
        let new = self.counts.allocate(wanted)? << cluster.bits();
        self.file.write_at(bytes, new)?;
        let entry = self.entry_for(last, new);
        if keeps_table {
            self.file.flush()?;
            self.file.write_at(&entry, last.table + last.entry)?;
        } else {
            let mut table = vec![0; cluster.buffer_len()];
            read_zero_filled(self.file, &mut table, last.table)?;
            let at = usize::try_from(last.entry).unwrap_or(0);
            table[at..at + entry.len()].copy_from_slice(&entry);
            let new_table = new + cluster.bytes();
            self.file.write_at(&table, new_table)?;
            self.file.flush()?;
            let word = COPIED | new_table;
            self.file.write_at(&word.to_be_bytes(), last.l1_at)?;
        }
        self.file.flush()?;
        self.let_go(last, keeps_table)
    }

    fn entry_for(&self, last: &Last, host: u64) -> Vec<u8> {
        let mut entry = (COPIED | host).to_be_bytes().to_vec();
        if self.header.extended_l2 {
            let bitmap = if last.is_packed() {
                ALL_ALLOCATED
            } else {
                last.bitmap
            };
            entry.extend(bitmap.to_be_bytes());
        }
        entry
    }

    fn let_go(&mut self, last: &Last, keeps_table: bool) -> Result<()> {
        let cluster = self.header.cluster;
        if last.is_packed() {
            let packed = CompressedCluster::decode(last.word, cluster);
            self.release(packed.offset.0, packed.length)?;
        } else {
            self.release(last.host(), cluster.bytes())?;
        }
        if !keeps_table {
            self.release(last.table, cluster.bytes())?;
        }
        self.discard()?;
        self.counts.write_back()?;
        self.file.flush()
    }
}
