//! Reading tables of any length in small pieces, past their holes.

use super::Checker;
use crate::error::Result;

const PIECE: usize = 64 << 10;

impl Checker<'_> {
    /// Calls `each` with every entry of a table that is not all zeroes. What
    /// lies beyond the end of the file is.
    pub(super) fn for_each(
        &mut self,
        offset: u64,
        length: u64,
        entry: u64,
        mut each: impl FnMut(&mut Self, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let end = offset.saturating_add(length).min(self.file_size);
        let entry_len = usize::try_from(entry).unwrap_or(8);
        let mut piece = vec![0; PIECE];
        let mut at = offset;
        while at < end {
            let hole = self.holes.end_at(at).map_or(0, |end| end - at);
            if hole >= entry {
                at = at.saturating_add(hole / entry * entry);
                continue;
            }
            let data = (self.holes.next_after(at) - at).min(PIECE as u64);
            let step = data.next_multiple_of(entry).min(end - at);
            let bytes = &mut piece[..usize::try_from(step).unwrap_or(0)];
            self.file.read_at(bytes, at)?;
            // An entry that the end of the file cuts in two is none.
            for (index, bytes) in bytes.chunks_exact(entry_len).enumerate() {
                if bytes.iter().any(|byte| *byte != 0) {
                    each(self, (at - offset) / entry + index as u64, bytes)?;
                }
            }
            at += step;
        }
        Ok(())
    }
}
