//! Reference counts as the file has them: a table of blocks of counts that
//! are 1 to 64 bits wide.
//!
//! ```text
//!   refcount table --entry--> block --entry--> how often a cluster is used
//! ```

use super::cluster::ClusterSize;
use super::extension::be64;
use super::header::Header;
use crate::device::{ReadAt, Size};
use crate::error::Result;

/// Bits of an entry of the refcount table that must be zero.
pub(super) const TABLE_RESERVED: u64 = 0x1ff;

/// How counts lie in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Width {
    bits: u32,
}

impl Width {
    pub(super) fn of(header: &Header) -> Self {
        Self {
            bits: header.refcount_bits,
        }
    }

    /// The largest count.
    pub(super) fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// How many counts a block holds.
    pub(super) fn per_block(self, cluster: ClusterSize) -> u64 {
        cluster.bytes() * 8 / u64::from(self.bits)
    }

    /// The bytes of a block that hold a count.
    fn span(self, index: usize) -> std::ops::Range<usize> {
        let bits = self.bits as usize;
        let start = index * bits / 8;
        start..start + bits.div_ceil(8)
    }

    /// The bytes of a block that hold some counts, of which there is one.
    pub(super) fn spans(self, indexes: std::ops::Range<usize>) -> std::ops::Range<usize> {
        self.span(indexes.start).start..self.span(indexes.end - 1).end
    }

    /// How far a narrow count is shifted in its byte: the first is lowest.
    fn shift(self, index: usize) -> usize {
        index * self.bits as usize % 8
    }

    /// A count of a block; the caller knows that the block has it.
    pub(super) fn get(self, block: &[u8], index: usize) -> u64 {
        let bytes = block[self.span(index)].iter();
        let value = bytes.fold(0, |value, byte| value << 8 | u64::from(*byte));
        value >> self.shift(index) & self.max()
    }

    /// Changes a count of a block.
    pub(super) fn set(self, block: &mut [u8], index: usize, count: u64) {
        let span = self.span(index);
        if self.bits < 8 {
            let shift = self.shift(index);
            let [max, count] = [self.max(), count & self.max()].map(low_byte);
            let byte = &mut block[span.start];
            *byte = *byte & !(max << shift) | count << shift;
        } else {
            let bytes = count.to_be_bytes();
            let length = span.len();
            block[span].copy_from_slice(&bytes[8 - length..]);
        }
    }
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// Reads the refcount table, which is 8 MiB at most. What lies beyond the end
/// of the file reads as zeroes.
pub(super) fn read_table(
    file: &(impl ReadAt + Size + ?Sized),
    header: &Header,
) -> Result<Vec<u64>> {
    let clusters = u64::from(header.refcount_clusters);
    let cluster = header.cluster.bytes();
    let mut table = Vec::with_capacity(usize::try_from(clusters * cluster / 8).unwrap_or(0));
    let mut piece = vec![0; header.cluster.buffer_len()];
    for index in 0..clusters {
        let offset = header.refcount_offset.0.saturating_add(index * cluster);
        read_zero_filled(file, &mut piece, offset)?;
        table.extend(piece.chunks_exact(8).map(|word| be64(word, 0)));
    }
    Ok(table)
}

/// Fills a buffer; what lies beyond the end of the file reads as zeroes.
pub(super) fn read_zero_filled(
    file: &(impl ReadAt + Size + ?Sized),
    buffer: &mut [u8],
    offset: u64,
) -> Result<()> {
    let there = file.size()?.saturating_sub(offset).min(buffer.len() as u64);
    let (present, absent) = buffer.split_at_mut(usize::try_from(there).unwrap_or(0));
    if !present.is_empty() {
        file.read_at(present, offset)?;
    }
    absent.fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_width_are_read_as_they_were_set() {
        for bits in [1, 2, 4, 8, 16, 32, 64] {
            let width = Width { bits };
            let mut block = vec![0; 512];
            let length = usize::try_from(512 * 8 / bits).unwrap();
            let count = |index: usize| (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for index in 0..length {
                width.set(&mut block, index, count(index));
            }
            for index in (0..length).rev() {
                let expected = count(index) & width.max();
                assert_eq!(width.get(&block, index), expected, "{bits} {index}");
            }
            width.set(&mut block, 1, 0);
            assert_eq!(width.get(&block, 0), count(0) & width.max());
            assert_eq!(width.get(&block, 1), 0);
            assert_eq!(width.get(&block, 2), count(2) & width.max());
        }
    }

    #[test]
    fn wide_counts_are_big_endian_and_narrow_ones_begin_low() {
        let mut block = vec![0; 512];
        Width { bits: 16 }.set(&mut block, 1, 0x1234);
        assert_eq!(block[..4], [0, 0, 0x12, 0x34]);
        let mut block = vec![0; 512];
        Width { bits: 2 }.set(&mut block, 1, 3);
        assert_eq!(block[0], 0b1100);
    }
}
