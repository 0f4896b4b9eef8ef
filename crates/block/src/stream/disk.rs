//! The disk that is being written.

use crate::convert::{Before, Watch};
use crate::device::{Allocation, Target};
use crate::error::Result;
use crate::zero::data_runs;

/// Writes bytes and zeroes, and counts them.
pub(super) struct Disk<'c> {
    pub(super) target: &'c dyn Target,
    pub(super) watch: &'c dyn Watch,
    pub(super) before: Before,
    pub(super) written: u64,
    pub(super) zeroed: u64,
}

impl Disk<'_> {
    /// Writes what is not zero.
    pub(super) fn put(&mut self, guest: u64, bytes: &[u8]) -> Result<()> {
        let mut at = 0;
        for run in data_runs(bytes) {
            self.leave(guest + at as u64, (run.start - at) as u64)?;
            self.target
                .write_at(&bytes[run.clone()], guest + run.start as u64)?;
            self.written += run.len() as u64;
            at = run.end;
        }
        self.leave(guest + at as u64, (bytes.len() - at) as u64)?;
        self.watch.advance(bytes.len() as u64);
        Ok(())
    }

    pub(super) fn zero(&mut self, guest: u64, length: u64) -> Result<()> {
        self.leave(guest, length)?;
        self.watch.advance(length);
        Ok(())
    }

    /// Leaves zeroes behind, which may be there already.
    fn leave(&mut self, guest: u64, length: u64) -> Result<()> {
        self.zeroed += length;
        match self.before {
            Before::Anything if length > 0 => {
                self.target.write_zeroes(guest, length, Allocation::Free)
            }
            Before::Anything | Before::Zeroes | Before::KeptZeroes => Ok(()),
        }
    }
}
