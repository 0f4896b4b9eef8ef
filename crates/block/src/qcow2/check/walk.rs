//! L1 and L2 tables, of the disk and of its snapshots.

use super::super::entry::{COMPRESSED, COPIED, CompressedCluster, OFFSET_MASK, ZERO};
use super::super::extension::be64;
use super::Checker;
use super::census::{Kind, Use};
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
        self.for_each(offset, length, 8, |checker, index, bytes| {
            checker.l1_entry(index, be64(bytes, 0), active)
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
        if !active || !cluster.begins_at(offset) {
            self.count(offset, cluster.bytes(), kind)?;
        } else if self.inside(offset, cluster.bytes()).is_some() {
            let number = offset >> cluster.bits();
            self.tables.add_active(number, kind, copied(entry))?;
        } else {
            self.is_outside(offset, kind);
        }
        Ok(())
    }

    /// Counts what the L2 tables name: each table is read once, and what it
    /// names counts as often as the table does. The tables are added.
    pub(super) fn walk_l2_tables(&mut self) -> Result<()> {
        let groups = self.tables.groups();
        for group in &groups {
            let known = self.tables.of_group(*group);
            let tables: Vec<_> = known.filter(|(_, _, uses)| uses.is(Kind::L2)).collect();
            for (table, times, uses) in tables {
                self.walk_l2(table, times, uses.has(Use::ACTIVE))?;
            }
        }
        for group in groups {
            for (cluster, count, uses) in self.tables.of_group(group) {
                self.census.merge(cluster, count, uses);
            }
        }
        Ok(())
    }

    fn walk_l2(&mut self, table: u64, times: u16, active: bool) -> Result<()> {
        let header = self.header;
        let offset = table << header.cluster.bits();
        let (length, entry) = (header.cluster.bytes(), header.l2_entry_bytes());
        if self.holes.cover(offset, length) {
            return Ok(());
        }
        let mut expected = None;
        self.for_each(offset, length, entry, |checker, _, bytes| {
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
            checker.l2_entry(&entry, &mut expected);
            Ok(())
        })
    }

    fn l2_entry(&mut self, entry: &L2, expected: &mut Option<u64>) {
        if entry.word & COMPRESSED != 0 {
            self.compressed(entry);
            return;
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
            return;
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
        self.plain(entry, offset, external);
    }

    fn plain(&mut self, entry: &L2, offset: u64, external: bool) {
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
            return;
        }
        self.count_data(offset, cluster.bytes(), entry.times);
        if entry.active && self.inside(offset, cluster.bytes()).is_some() {
            self.census
                .note(offset >> cluster.bits(), copied(entry.word));
        }
    }

    fn compressed(&mut self, entry: &L2) {
        if entry.word & COPIED != 0 {
            self.report
                .corruption(|| "a compressed cluster has the copied bit set".into());
        }
        if self.header.has_data_file() || entry.bitmap != 0 {
            self.report
                .corruption(|| "a cluster is compressed where none can be".into());
            return;
        }
        let packed = CompressedCluster::decode(entry.word, self.header.cluster);
        self.count_data(packed.offset.0, packed.length, entry.times);
        if entry.active {
            // They share sectors, and are never read in one piece.
            self.report.allocated_clusters += 1;
            self.report.compressed_clusters += 1;
            self.report.fragmented_clusters += 1;
        }
    }
}

/// What the copied bit says, to be compared with the count.
fn copied(entry: u64) -> Use {
    if entry & COPIED != 0 {
        Use::COPIED
    } else {
        Use::SHARED
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
