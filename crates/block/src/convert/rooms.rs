//! Space that is set aside before it is written.
//!
//! A filesystem that has to find a place for a request past the page cache holds the
//! whole file meanwhile; ext4 does so until the bytes are on the disk, so that requests
//! of several threads go one by one. Where a place was set aside, they go together. So
//! long runs of data have theirs before their bytes come, a window at a time; what turns
//! out to be zeroes is given back.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::device::{Allocation, Target};
use crate::error::Result;
use crate::zero::BLOCK;

/// What is set aside at once: few requests, and few zeroes to remember.
const WINDOW: u64 = 256 << 20;
/// What is set aside where packed clusters begin.
pub(super) const LIKELY: u64 = 64 << 20;
/// For less it is not worth the request.
const SHORTEST: u64 = 4 << 20;

/// What was set aside of a target.
pub(super) struct Rooms<'c> {
    target: &'c dyn Target,
    /// Behind it nothing has been set aside yet.
    until: AtomicU64,
    /// Zeroes that were not written, some of which have space.
    empty: Mutex<Vec<Range<u64>>>,
}

impl<'c> Rooms<'c> {
    pub(super) fn of(target: &'c dyn Target) -> Self {
        Self {
            target,
            until: AtomicU64::new(0),
            empty: Mutex::default(),
        }
    }

    /// Sets space aside for what is at the beginning of a run of data; where that ends
    /// is returned. What cannot be set aside is written without.
    pub(super) fn make(&self, run: Range<u64>) -> Result<u64> {
        let end = run.end.min(run.start.saturating_add(WINDOW));
        if run.end - run.start < SHORTEST {
            return Ok(end);
        }
        self.give_back()?;
        if self.target.set_aside(run.start, end - run.start) {
            self.until.store(end, Ordering::Relaxed);
        }
        Ok(end)
    }

    /// Zeroes that are not written. Only those that may have space are remembered: there
    /// may be any number of others.
    pub(super) fn leave_empty(&self, range: Range<u64>) {
        if range.start < self.until.load(Ordering::Relaxed) {
            let mut empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
            empty.push(range);
        }
    }

    /// Gives back what turned out to be empty.
    pub(super) fn give_back(&self) -> Result<()> {
        let empty = {
            let mut empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *empty)
        };
        for range in joined(empty).into_iter().filter_map(whole_blocks) {
            let length = range.end - range.start;
            self.target
                .write_zeroes(range.start, length, Allocation::Free)?;
        }
        Ok(())
    }
}

/// Filesystems have no smaller ones to give back.
fn whole_blocks(range: Range<u64>) -> Option<Range<u64>> {
    let block = BLOCK as u64;
    let (start, end) = (
        range.start.next_multiple_of(block),
        range.end / block * block,
    );
    (start < end).then_some(start..end)
}

/// Neighbours are one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one() {
        let ranges = vec![8..10, 0..2, 2..4, 6..8];
        assert_eq!(joined(ranges), [0..4, 6..10]);
        assert_eq!(joined(Vec::new()), []);
    }

    #[test]
    fn less_than_a_block_is_not_given_back() {
        let block = BLOCK as u64;
        assert_eq!(whole_blocks(1..2 * block - 1), None);
        assert_eq!(whole_blocks(0..0), None);
        assert_eq!(
            whole_blocks(block - 1..3 * block + 1),
            Some(block..3 * block)
        );
    }

    /// A disk may have any number of holes, and memory has a limit.
    #[test]
    fn zeroes_that_have_no_space_are_not_remembered() {
        use crate::device::MemoryDevice;
        let target = MemoryDevice::zeroed(1 << 20);
        let rooms = Rooms::of(&target);
        rooms.leave_empty(0..4096);
        assert!(rooms.empty.lock().unwrap().is_empty());
        rooms.until.store(8192, Ordering::Relaxed);
        rooms.leave_empty(4096..8192);
        rooms.leave_empty(8192..12288);
        let empty = rooms.empty.lock().unwrap();
        assert_eq!(empty.iter().map(|it| it.start).collect::<Vec<_>>(), [4096]);
    }
}
