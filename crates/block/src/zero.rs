//! Finding zeroes.

/// Whether all bytes are zero.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // Most data shows itself in its first bytes; the rest is compared in
    // blocks that the compiler turns into wide instructions.
    const BLOCK: usize = 128;
    let mut blocks = bytes.chunks_exact(BLOCK);
    blocks
        .by_ref()
        .all(|block| block.iter().fold(0, |or, byte| or | byte) == 0)
        && blocks.remainder().iter().all(|byte| *byte == 0)
}

/// The granularity of the search; filesystems have no smaller holes.
pub const BLOCK: usize = 4096;

/// Zeroes shorter than this are written with the data around them: a request
/// costs more than the bytes.
const SHORTEST_HOLE: usize = 16 << 10;

/// The parts of a buffer that are worth writing, in order: everything but long
/// runs of zero blocks.
pub fn data_runs(bytes: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = next_block(bytes, at, false)?;
        let mut end = start;
        loop {
            let hole = next_block(bytes, end, true).unwrap_or(bytes.len());
            let data = next_block(bytes, hole, false);
            match data {
                Some(data) if data - hole < SHORTEST_HOLE => end = data,
                _ => {
                    at = data.unwrap_or(bytes.len());
                    return Some(start..hole);
                }
            }
        }
    })
}

/// The first block from `from` on that is zero, or is not.
fn next_block(bytes: &[u8], from: usize, zero: bool) -> Option<usize> {
    bytes
        .get(from..)?
        .chunks(BLOCK)
        .position(|block| is_zero(block) == zero)
        .map(|block| from + block * BLOCK)
        .filter(|at| *at < bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_found_at_any_length() {
        for length in [0, 1, 127, 128, 129, 4096, 5000] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes), "{length}");
            if let Some(last) = bytes.last_mut() {
                *last = 1;
                assert!(!is_zero(&bytes), "{length}");
            }
        }
    }

    #[test]
    fn runs_leave_long_holes_out_and_short_ones_in() {
        let mut bytes = vec![0; 100 * BLOCK + 10];
        bytes[0] = 1;
        bytes[2 * BLOCK] = 1;
        bytes[50 * BLOCK + 7] = 1;
        bytes[100 * BLOCK + 9] = 1;
        let runs: Vec<_> = data_runs(&bytes).collect();
        assert_eq!(
            runs,
            [
                0..3 * BLOCK,
                50 * BLOCK..51 * BLOCK,
                100 * BLOCK..100 * BLOCK + 10
            ]
        );
        assert_eq!(data_runs(&[0; 9000]).count(), 0);
        assert_eq!(data_runs(&[1; 9000]).next(), Some(0..9000));
    }
}
