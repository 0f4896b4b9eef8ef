//! A device whose beginning comes last.
//!
//! ```text
//!   begin     0000000000 ..old bytes..    the beginning is wiped, durably
//!   filling   0000000000 new bytes....    what belongs there is kept in memory
//!   complete  boot,table new bytes....    once all the rest is durable
//! ```
//!
//! A disk without its first MiB is none: it has no boot sector, no partition
//! table and no superblock. Whoever opens a device that was filled half way
//! finds nothing that looks like one.

use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Allocation, Discard, Flush, SetAside, Shareable, Size, Target, WriteAt, WriteZeroes};
use crate::error::{Result, invalid};

/// How much is held back.
pub const HELD: u64 = 1 << 20;

/// A target whose first MiB, or all of a smaller one, is written at the end.
pub struct HeldBack<'t> {
    target: &'t dyn Target,
    size: u64,
    beginning: Mutex<Vec<u8>>,
}

impl std::fmt::Debug for HeldBack<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldBack({} bytes)", self.size)
    }
}

impl<'t> HeldBack<'t> {
    /// Wipes the target's beginning. When it returns, nobody finds there what was
    /// there before.
    pub fn begin(target: &'t dyn Target) -> Result<Self> {
        let size = target.size()?;
        let held = usize::try_from(size.min(HELD)).map_err(|_| invalid("too large"))?;
        // Zeroes that are written are there whatever a device takes a discard for.
        target.write_at(&vec![0; held], 0)?;
        target.flush()?;
        Ok(Self {
            target,
            size,
            beginning: Mutex::new(vec![0; held]),
        })
    }

    /// Goes on with a target whose beginning was held back before, and was this then.
    pub fn resume(target: &'t dyn Target, beginning: Vec<u8>) -> Result<Self> {
        let size = target.size()?;
        if beginning.len() as u64 != size.min(HELD) {
            return Err(invalid("what was held back is not of this target"));
        }
        Ok(Self {
            target,
            size,
            beginning: Mutex::new(beginning),
        })
    }

    /// What is held back, so that it can be kept elsewhere.
    #[must_use]
    pub fn beginning(&self) -> Vec<u8> {
        self.held().clone()
    }

    /// Makes the rest durable, and then the beginning.
    pub fn complete(self) -> Result<()> {
        self.target.flush()?;
        self.target.write_at(&self.held(), 0)?;
        self.target.flush()
    }

    fn held(&self) -> MutexGuard<'_, Vec<u8>> {
        // Bytes are whole at every moment.
        self.beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How much of a range is held back.
    fn held_of(&self, offset: u64, length: u64) -> Result<usize> {
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return Err(invalid("a range beyond the end was asked for"));
        }
        let held = self.size.min(HELD).saturating_sub(offset).min(length);
        usize::try_from(held).map_err(|_| invalid("too large"))
    }

    /// Where the rest of a range begins, and how long it is.
    fn rest(offset: u64, length: u64, held: usize) -> (u64, u64) {
        (offset + held as u64, length - held as u64)
    }
}

impl Size for HeldBack<'_> {
    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }
}

impl WriteAt for HeldBack<'_> {
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let held = self.held_of(offset, buffer.len() as u64)?;
        let (first, rest) = buffer.split_at(held);
        if let Ok(at) = usize::try_from(offset)
            && !first.is_empty()
        {
            self.held()[at..at + held].copy_from_slice(first);
        }
        match rest.is_empty() {
            true => Ok(()),
            false => self.target.write_at(rest, offset + held as u64),
        }
    }
}

impl WriteZeroes for HeldBack<'_> {
    fn write_zeroes(&self, offset: u64, length: u64, keep: Allocation) -> Result<()> {
        let held = self.held_of(offset, length)?;
        if let Ok(at) = usize::try_from(offset)
            && held > 0
        {
            self.held()[at..at + held].fill(0);
        }
        match Self::rest(offset, length, held) {
            (_, 0) => Ok(()),
            (offset, length) => self.target.write_zeroes(offset, length, keep),
        }
    }
}

impl Discard for HeldBack<'_> {
    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let held = self.held_of(offset, length)?;
        match Self::rest(offset, length, held) {
            (_, 0) => Ok(()),
            (offset, length) => self.target.discard(offset, length),
        }
    }
}

impl Flush for HeldBack<'_> {
    /// The beginning is not among what is durable then.
    fn flush(&self) -> Result<()> {
        self.target.flush()
    }
}

impl SetAside for HeldBack<'_> {
    fn set_aside(&self, offset: u64, length: u64) -> bool {
        self.target.set_aside(offset, length)
    }
}

impl Shareable for HeldBack<'_> {
    /// Blocks that are shared would be there at once.
    fn shareable_file(&self) -> Option<&File> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Fault, MemoryDevice, Request};

    const MIB: usize = 1 << 20;

    fn fill(target: &dyn Target, size: usize) -> Result<()> {
        let held = HeldBack::begin(target)?;
        // Across the border, on both sides of it, and over itself.
        held.write_at(&vec![1; size], 0)?;
        held.write_zeroes(MIB as u64 - 10, 20, Allocation::Free)?;
        held.write_at(&[2; 4], MIB as u64 - 2)?;
        held.discard(size as u64 - 5, 0)?;
        held.complete()
    }

    fn filled(size: usize) -> Vec<u8> {
        let mut bytes = vec![1; size];
        bytes[MIB - 10..MIB + 10].fill(0);
        bytes[MIB - 2..MIB + 2].fill(2);
        bytes
    }

    #[test]
    fn all_of_it_is_there_at_the_end() {
        let device = MemoryDevice::new(vec![9; 3 * MIB]);
        fill(&device, 3 * MIB).unwrap();
        assert!(device.contents() == filled(3 * MIB));
        assert_eq!(device.unflushed(), 0);
    }

    #[test]
    fn a_small_device_is_held_back_whole() {
        let device = MemoryDevice::new(vec![9; 100]);
        let held = HeldBack::begin(&device).unwrap();
        held.write_at(&[1; 60], 40).unwrap();
        assert_eq!(device.contents(), [0; 100]);
        held.complete().unwrap();
        assert_eq!(device.contents(), [[0; 40].as_slice(), &[1; 60]].concat());
        let held = HeldBack::begin(&device).unwrap();
        assert!(held.write_at(&[1], 100).is_err());
        assert!(held.write_zeroes(u64::MAX, 2, Allocation::Free).is_err());
    }

    /// Cut at every request, and whatever the cut leaves of what was not flushed: the old
    /// beginning before anything else has changed, none, or all of the new disk.
    #[test]
    fn a_device_that_was_filled_half_way_has_no_beginning() {
        let mut cut = 0;
        loop {
            let device = MemoryDevice::new(vec![9; 3 * MIB]);
            device.set_rule(move |number, request| {
                let is_read = matches!(request, Request::Read(..));
                (number >= cut && !is_read).then_some(Fault::Fail)
            });
            let outcome = fill(&device, 3 * MIB);
            for choice in [0, u64::MAX, 0x5555_5555_5555_5555] {
                let left = device.after_power_cut(|index| choice >> (index % 64) & 1 == 1);
                let bytes = left.contents();
                let (beginning, rest) = bytes.split_at(MIB);
                let is_old = rest.iter().all(|byte| *byte == 9);
                let is_new = bytes == filled(3 * MIB);
                let is_none = beginning.iter().all(|byte| *byte == 0);
                // The beginning itself is written last, by one request, over durable rest.
                let is_last = rest == &filled(3 * MIB)[MIB..];
                assert!(is_old || is_none || is_new || is_last, "cut {cut}");
            }
            if outcome.is_ok() {
                break;
            }
            cut += 1;
        }
        assert!(cut > 5, "only {cut} cuts");
    }
}
