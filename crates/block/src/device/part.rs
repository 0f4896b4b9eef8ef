//! A part of a device, as a device.

use std::fs::File;

use super::{Allocation, Discard, Flush, SetAside, Shareable, Size, Target, WriteAt, WriteZeroes};
use crate::error::{Result, invalid};

/// What lies behind the first bytes of a target.
#[derive(Clone, Copy)]
pub struct Part<'t> {
    target: &'t dyn Target,
    begin: u64,
    size: u64,
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({} + {})", self.begin, self.size)
    }
}

impl<'t> Part<'t> {
    /// Everything from `begin` on.
    pub fn new(target: &'t dyn Target, begin: u64) -> Result<Self> {
        let size = target
            .size()?
            .checked_sub(begin)
            .ok_or_else(|| invalid("a part beyond the end was asked for"))?;
        Ok(Self {
            target,
            begin,
            size,
        })
    }

    /// Where a range is in the whole. Its end cannot overflow: it is inside.
    fn place(&self, offset: u64, length: u64) -> Result<u64> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(self.begin + offset),
            _ => Err(invalid("a range beyond the end was asked for")),
        }
    }
}

impl Size for Part<'_> {
    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }
}

impl WriteAt for Part<'_> {
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let place = self.place(offset, buffer.len() as u64)?;
        self.target.write_at(buffer, place)
    }
}

impl WriteZeroes for Part<'_> {
    fn write_zeroes(&self, offset: u64, length: u64, keep: Allocation) -> Result<()> {
        let place = self.place(offset, length)?;
        self.target.write_zeroes(place, length, keep)
    }
}

impl Discard for Part<'_> {
    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let place = self.place(offset, length)?;
        self.target.discard(place, length)
    }
}

impl Flush for Part<'_> {
    fn flush(&self) -> Result<()> {
        self.target.flush()
    }
}

impl SetAside for Part<'_> {
    fn set_aside(&self, offset: u64, length: u64) -> bool {
        let place = self.place(offset, length);
        place.is_ok_and(|place| self.target.set_aside(place, length))
    }
}

impl Shareable for Part<'_> {
    /// Its blocks are not where the file's are.
    fn shareable_file(&self) -> Option<&File> {
        None
    }
}
