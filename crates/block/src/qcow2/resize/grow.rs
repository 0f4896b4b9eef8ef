//! A larger disk.

use super::super::header::MAX_L1_BYTES;
use super::{Resizer, refuse_corrupt};
use crate::error::{Result, limit, unsupported};

impl Resizer<'_> {
    pub(super) fn grow(mut self, size: u64, name: &str) -> Result<()> {
        let reach = self.header.l2_reach();
        let entries = u32::try_from(size.div_ceil(reach)).unwrap_or(u32::MAX);
        if u64::from(entries) * 8 > MAX_L1_BYTES || size >= 1 << 63 {
            return Err(limit(format!(
                "a disk of {size} bytes needs larger clusters"
            )));
        }
        self.clear_beyond(name)?;
        let (old, offset) = (self.header.l1_entries, self.header.l1_offset.0);
        if entries <= old {
            return self.write_header(size, old, offset);
        }
        let cluster = self.header.cluster;
        let room = cluster.count_for(u64::from(old) * 8) * cluster.bytes();
        if u64::from(entries) * 8 <= room {
            self.clear_room(old, entries, room)?;
            return self.write_header(size, entries, offset);
        }
        self.move_l1(size, entries)
    }

    /// What lies beyond the old end must read as zeroes: an earlier change of
    /// size may have been cut short, or have ended within a cluster.
    fn clear_beyond(&mut self, name: &str) -> Result<()> {
        if self.has_entries_beyond()? {
            if self.header.snapshots > 0 {
                return Err(unsupported(
                    "an image with snapshots has clusters beyond its end",
                ));
            }
            refuse_corrupt(self.file, name)?;
            self.trim()?;
        }
        self.clear_last_cluster(name)
    }

    /// The rest of the table's last cluster, which may hold anything.
    fn clear_room(&mut self, old: u32, new: u32, room: u64) -> Result<()> {
        let offset = self.header.l1_offset.0;
        if self.file.size()? < offset + room {
            self.file.resize(offset + room)?;
        }
        let zeroes = vec![0; (new - old) as usize * 8];
        self.file.write_at(&zeroes, offset + u64::from(old) * 8)?;
        self.file.flush()
    }

    fn move_l1(&mut self, size: u64, entries: u32) -> Result<()> {
        let cluster = self.header.cluster;
        let bits = cluster.bits();
        let clusters = cluster.count_for(u64::from(entries) * 8);
        let new = self.counts.allocate(clusters)? << bits;
        let old = self.header.l1_offset.0;
        let length = u64::from(self.header.l1_entries) * 8;
        let mut piece = vec![0; cluster.buffer_len()];
        for at in (0..length).step_by(cluster.buffer_len()) {
            let step = usize::try_from((length - at).min(cluster.bytes())).unwrap_or(0);
            self.file.read_at(&mut piece[..step], old + at)?;
            self.file.write_at(&piece[..step], new + at)?;
        }
        self.file.flush()?;
        self.write_header(size, entries, new)?;
        for index in 0..cluster.count_for(length) {
            self.counts.release((old >> bits) + index)?;
        }
        self.counts.write_back()?;
        self.file.flush()
    }
}
