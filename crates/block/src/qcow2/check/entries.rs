//! Reading tables of any length in small pieces, past their holes.

use crate::device::Source;
use crate::error::Result;

const PIECE: usize = 64 << 10;

/// Calls `each` with every entry of a table that is not all zeroes. What lies
/// beyond the end of the file is.
pub(super) fn for_each(
    file: &dyn Source,
    offset: u64,
    length: u64,
    entry: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let size = file.size()?;
    let end = offset.saturating_add(length).min(size);
    let entry_len = usize::try_from(entry).unwrap_or(8);
    let mut piece = vec![0; PIECE];
    let mut at = offset;
    while at < end {
        let extent = file.extent_at(at)?;
        let hole = extent.length / entry * entry;
        if extent.zero && hole > 0 {
            at = at.saturating_add(hole);
            continue;
        }
        let run = extent.length.next_multiple_of(entry).min(PIECE as u64);
        let step = run.min(end - at);
        let bytes = &mut piece[..usize::try_from(step).unwrap_or(0)];
        file.read_at(bytes, at)?;
        // An entry that the end of the file cuts in two is none.
        for (index, bytes) in bytes.chunks_exact(entry_len).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                each((at - offset) / entry + index as u64, bytes)?;
            }
        }
        at += step;
    }
    Ok(())
}
