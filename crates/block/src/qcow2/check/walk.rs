//! L1 and L2 tables, of the disk and of its snapshots.

use super::super::entry::{COMPRESSED, COPIED, CompressedCluster, OFFSET_MASK, ZERO};
use super::super::extension::be64;
use super::Checker;
use super::census::{Kind, Use};
use super::entries;
use crate::error::Result;

const L1_RESERVED: u64 = !(OFFSET_MASK | COPIED);
const L2_RESERVED: u64 = 0x3f00_0000_0000_01fe;

impl Checker<'_> {
    /// Counts an L1 table and the L2 tables that it names.
    pub(super) fn walk_l1(&mut self, offset: u64, entries: u32, active: bool) -> Result<()> {
        let length = u64::from(entries) * 8;
        if !self.count(offset, length, Kind::L1)? {
            // Reading a table again and again could take for ever.
            return Ok(());
        }
        entries::for_each(self.file, offset, length, 8, |index, bytes| {
            self.l1_entry(index, be64(bytes, 0), active)
        })
    }

    fn l1_entry(&mut self, index: u64, entry: u64, active: bool) -> Result<()> {
        if entry & L1_RESERVED != 0 {
            self.report
                .corruption(|| format!("L1 entry {index} has reserved bits set"));
        }
        let offset = entry & OFFSET_MASK;
        let cluster = self.header.cluster;
        if !cluster.begins_at(offset) {
            self.report.corruption(|| {
                format!("L1 entry {index}: the table is not at the start of a cluster")
            });
        }
        // Counted even where it is wrong, so that what it hits is known.
        let kind = if cluster.begins_at(offset) {
            Kind::L2
        } else {
            Kind::Data
        };
        self.count(offset, cluster.bytes(), kind)?;
        let number = offset >> cluster.bits();
        if active && self.census.inside(offset, cluster.bytes()).is_some() {
            if self.census.get(number).1.has(Use::ACTIVE) {
                // The disk has no use for a table twice.
                self.census.note(number, Use::OVERLAP)?;
            }
            self.census.note(number, Use::ACTIVE)?;
            self.note_copied(number, entry)?;
        }
        Ok(())
    }

    /// Remembers what the copied bit says, to be compared with the count.
    fn note_copied(&mut self, cluster: u64, entry: u64) -> Result<()> {
        let flag = if entry & COPIED != 0 {
            Use::COPIED
        } else {
            Use::SHARED
        };
        self.census.note(cluster, flag)
    }

    /// Counts what the L2 tables name: each table is read once, and what it
    /// names counts as often as the table does.
    pub(super) fn walk_l2_tables(&mut self) -> Result<()> {
        let header = self.header;
        let mut next = self.census.next_of(Kind::L2, 0);
        while let Some(table) = next {
            let (times, uses) = self.census.get(table);
            let active = uses.has(Use::ACTIVE);
            let mut expected = None;
            let offset = table << header.cluster.bits();
            let (length, entry) = (header.cluster.bytes(), header.l2_entry_bytes());
            next = self.census.next_of(Kind::L2, table + 1);
            if self.is_hole(offset, length)? {
                continue;
            }
            entries::for_each(self.file, offset, length, entry, |_, bytes| {
                let bitmap = if header.extended_l2 {
                    be64(bytes, 8)
                } else {
                    0
                };
                let entry = L2 {
                    word: be64(bytes, 0),
                    bitmap,
                    times,
                    active,
                };
                self.l2_entry(&entry, &mut expected)
            })?;
        }
        Ok(())
    }

    /// Whether a table lies in a hole of the file. The last hole is known:
    /// millions of tables in one must not be asked for one by one.
    fn is_hole(&mut self, offset: u64, length: u64) -> Result<bool> {
        if !self.hole.contains(&offset) && offset < self.file.size()? {
            let extent = self.file.extent_at(offset)?;
            let length = if extent.zero { extent.length } else { 0 };
            self.hole = offset..offset + length;
        }
        Ok(self.hole.contains(&offset) && offset + length <= self.hole.end)
    }

    fn l2_entry(&mut self, entry: &L2, expected: &mut Option<u64>) -> Result<()> {
        if entry.word & COMPRESSED != 0 {
            return self.compressed(entry);
        }
        let L2 { word, bitmap, .. } = *entry;
        if word & L2_RESERVED != 0 {
            self.report
                .corruption(|| format!("the L2 entry {word:#x} has reserved bits set"));
        }
        let offset = word & OFFSET_MASK;
        let external = self.header.has_data_file();
        // With a data file, offset 0 is as good as any.
        let allocated = offset != 0 || external && word & COPIED != 0 && word & ZERO == 0;
        if !allocated {
            if bitmap & 0xffff_ffff != 0 {
                self.report
                    .corruption(|| "subclusters are allocated in no cluster".into());
            }
            return Ok(());
        }
        if bitmap >> 32 & bitmap & 0xffff_ffff != 0 {
            self.report
                .corruption(|| "a subcluster is both allocated and zero".into());
        }
        if entry.active {
            self.report.allocated_clusters += 1;
            if expected.is_some_and(|expected| expected != offset) {
                self.report.fragmented_clusters += 1;
            }
            *expected = Some(offset + self.header.cluster.bytes());
        }
        self.plain(entry, offset, external)
    }

    fn plain(&mut self, entry: &L2, offset: u64, external: bool) -> Result<()> {
        let cluster = self.header.cluster;
        if !cluster.begins_at(offset) {
            self.report
                .corruption(|| format!("the cluster at {offset} is not at a multiple of its size"));
        }
        if external {
            // Nobody counts the clusters of a data file.
            if entry.active && entry.word & COPIED == 0 {
                self.report.corruption(|| {
                    format!("the cluster at {offset} of the data file is not ours alone")
                });
            }
            return Ok(());
        }
        self.count_times(offset, cluster.bytes(), Kind::Data, entry.times)?;
        if entry.active && self.census.inside(offset, cluster.bytes()).is_some() {
            self.note_copied(offset >> cluster.bits(), entry.word)?;
        }
        Ok(())
    }

    fn compressed(&mut self, entry: &L2) -> Result<()> {
        if entry.word & COPIED != 0 {
            self.report
                .corruption(|| "a compressed cluster has the copied bit set".into());
        }
        if self.header.has_data_file() || entry.bitmap != 0 {
            self.report
                .corruption(|| "a cluster is compressed where none can be".into());
            return Ok(());
        }
        let packed = CompressedCluster::decode(entry.word, self.header.cluster);
        self.count_times(packed.offset.0, packed.length, Kind::Data, entry.times)?;
        if entry.active {
            // They share sectors, and are never read in one piece.
            self.report.allocated_clusters += 1;
            self.report.compressed_clusters += 1;
            self.report.fragmented_clusters += 1;
        }
        Ok(())
    }
}

/// An entry of an L2 table.
struct L2 {
    word: u64,
    /// The second word of an extended one.
    bitmap: u64,
    /// How many L1 entries name the table.
    times: u16,
    /// One of them is the disk's own.
    active: bool,
}
