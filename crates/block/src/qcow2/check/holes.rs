//! Where a file has nothing, found out once: asking for each of millions of
//! tables would be slow, and on a tmpfs each question takes as long as the
//! data that follows.

use crate::device::Source;
use crate::error::Result;

/// How many holes are remembered. If there are more, the small ones are
/// forgotten, and read as the zeroes that they are.
const MOST: usize = 1 << 16;

/// The holes of a file, in order.
pub(super) struct Holes {
    /// Begin and end.
    holes: Vec<(u64, u64)>,
    least: u64,
}

impl Holes {
    /// Goes through a file from its beginning to its end.
    pub(super) fn of(file: &dyn Source) -> Result<Self> {
        let mut found = Self {
            holes: Vec::new(),
            least: 1,
        };
        let size = file.size()?;
        let mut at = 0;
        while at < size {
            let extent = file.extent_at(at)?;
            let end = at.saturating_add(extent.length);
            if extent.zero {
                found.add(at, end);
            }
            at = end;
        }
        Ok(found)
    }

    fn add(&mut self, start: u64, end: u64) {
        if end - start < self.least {
            return;
        }
        while self.holes.len() >= MOST {
            self.least *= 2;
            let least = self.least;
            self.holes.retain(|(start, end)| end - start >= least);
        }
        self.holes.push((start, end));
    }

    /// Where the hole ends that an offset lies in, if it lies in one.
    pub(super) fn end_at(&self, offset: u64) -> Option<u64> {
        let after = self.holes.partition_point(|(start, _)| *start <= offset);
        let (_, end) = *self.holes.get(after.checked_sub(1)?)?;
        (offset < end).then_some(end)
    }

    /// Where the next hole begins.
    pub(super) fn next_after(&self, offset: u64) -> u64 {
        let after = self.holes.partition_point(|(start, _)| *start <= offset);
        self.holes.get(after).map_or(u64::MAX, |(start, _)| *start)
    }

    /// Whether a range lies in a hole.
    pub(super) fn cover(&self, offset: u64, length: u64) -> bool {
        self.end_at(offset)
            .is_some_and(|end| end - offset >= length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_holes_are_remembered() {
        let mut holes = Holes {
            holes: Vec::new(),
            least: 1,
        };
        for number in 0..10 * MOST as u64 {
            let length = if number % 1000 == 7 {
                5000
            } else {
                1 + number % 9
            };
            holes.add(number << 20, (number << 20) + length);
        }
        assert!(holes.holes.len() <= MOST);
        assert!(holes.cover(1007 << 20, 5000));
        assert!(!holes.cover(1007 << 20, 5001));
        assert!(!holes.cover(1006 << 20, 100));
        assert_eq!(holes.end_at((1007 << 20) + 4999), Some((1007 << 20) + 5000));
        assert_eq!(holes.end_at((1007 << 20) + 5000), None);
        assert!(holes.next_after(1007 << 20) > 1007 << 20);
    }
}
