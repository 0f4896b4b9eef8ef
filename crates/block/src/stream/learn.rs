//! Reading tables while data comes.

use super::action::Joiner;
use super::piece::{Piece, Pieces};
use super::placer::{Placer, beyond, truncated};
use crate::error::Result;
use crate::qcow2::l2_table;

impl Placer {
    fn l1_end(&self) -> u64 {
        self.header.l1_offset.0 + u64::from(self.header.l1_entries) * 8
    }

    pub(super) fn l1_is_complete(&self) -> bool {
        self.l1_entries == self.header.l1_entries
    }

    pub(super) fn is_l1(&self, offset: u64) -> bool {
        (self.header.l1_offset.0..self.l1_end()).contains(&offset)
    }

    /// Takes in the entries of the L1 table that come with this cluster.
    pub(super) fn take_l1(&mut self, end: u64, joiner: &mut Joiner<'_, '_>) -> Result<()> {
        let start = self.position;
        let l1_here = self.l1_end().min(end) - start;
        let used = self.header.size.div_ceil(self.header.l2_reach());
        for word in joiner.bytes(start, l1_here).chunks_exact(8) {
            let index = self.l1_entries;
            self.l1_entries += 1;
            if u64::from(index) >= used {
                continue;
            }
            let entry = word.try_into().map_or(0, u64::from_be_bytes);
            match l2_table(entry, self.header.cluster)? {
                None => {
                    let guest = u64::from(index) * self.header.l2_reach();
                    let length = self.header.l2_reach().min(self.header.size - guest);
                    joiner.zero(guest, length)?;
                }
                Some(host) if host.0 >= self.most => return Err(beyond(self.most, "an L2 table")),
                Some(host) => self
                    .tables
                    .add(host.0 >> self.header.cluster.bits(), index)?,
            }
        }
        if self.l1_is_complete() {
            self.tables
                .complete(end.div_ceil(self.header.cluster.bytes()));
        }
        Ok(())
    }

    /// Reads L2 tables while data comes. Data from `from` on is awaited.
    /// Returns whether the table has to be looked at again.
    pub(super) fn read_tables(
        &mut self,
        table: &[u8],
        numbers: std::ops::Range<usize>,
        from: u64,
        joiner: &mut Joiner<'_, '_>,
    ) -> Result<bool> {
        let mut again = false;
        for number in numbers {
            again |= self.read_table(table, number, from, joiner)?;
        }
        Ok(again)
    }

    fn read_table(
        &mut self,
        table: &[u8],
        number: usize,
        from: u64,
        joiner: &mut Joiner<'_, '_>,
    ) -> Result<bool> {
        let Self {
            header,
            tables,
            expected,
            ..
        } = self;
        if (table.len() as u64) < header.cluster.bytes() {
            return Err(truncated(self.position + table.len() as u64, "an L2 table"));
        }
        let index = tables.get(number).index;
        let mut ahead = 0;
        for piece in Pieces::of(table, header, index) {
            let piece = piece?;
            if piece.host_end() > self.most + 512 {
                return Err(beyond(self.most, "a cluster"));
            }
            ahead += usize::from(piece.split(from).1.is_some());
        }
        if ahead > expected.room() {
            return Ok(true);
        }
        let mut none_before = true;
        for piece in Pieces::of(table, header, index) {
            let (before, ahead) = piece?.split(from);
            match before {
                Some(Piece::Zero { guest, length }) => joiner.zero(guest, length)?,
                Some(_) => none_before = false,
                None => {}
            }
            ahead.into_iter().for_each(|piece| expected.push(piece));
        }
        let from = from.div_ceil(header.cluster.bytes());
        tables.set_read(number, from, none_before);
        Ok(!none_before)
    }
}
