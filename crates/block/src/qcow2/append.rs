//! Appending to a file in large, aligned requests.

use std::cell::LazyCell;

use super::writer::NewFile;
use crate::error::Result;
use crate::sys::AlignedBuffer;

/// What is appended, gathered.
pub(super) struct Appender {
    /// Made when it is needed: an empty image appends nothing.
    buffer: LazyCell<AlignedBuffer>,
    /// Where the buffer's first byte belongs.
    start: u64,
    filled: usize,
    /// The size of the file as far as it was set.
    file_size: u64,
}

const SIZE: usize = 2 << 20;
/// The file grows in such steps; its end is set when it is finished.
const STEP: u64 = 64 << 20;

impl Appender {
    pub(super) fn starting_at(offset: u64) -> Self {
        Self {
            buffer: LazyCell::new(|| AlignedBuffer::zeroed(SIZE)),
            start: offset,
            filled: 0,
            file_size: 0,
        }
    }

    /// Appends bytes at an offset at or after what was appended before; what
    /// is left out in between reads as zeroes.
    pub(super) fn append(
        &mut self,
        file: &dyn NewFile,
        offset: u64,
        mut bytes: &[u8],
    ) -> Result<()> {
        let gap = offset - (self.start + self.filled as u64);
        if gap > (SIZE - self.filled) as u64 {
            self.flush(file)?;
            self.start = offset;
        } else {
            let gap = usize::try_from(gap).unwrap_or(0);
            self.buffer[self.filled..self.filled + gap].fill(0);
            self.filled += gap;
        }
        while !bytes.is_empty() {
            if self.filled == SIZE {
                self.flush(file)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(SIZE - self.filled));
            self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Overwrites bytes that were appended or left out before. What has left
    /// the buffer is written at once, the rest goes with the buffer.
    pub(super) fn patch(&mut self, file: &dyn NewFile, offset: u64, bytes: &[u8]) -> Result<()> {
        let gone = self.start.saturating_sub(offset).min(bytes.len() as u64);
        let (gone, here) = bytes.split_at(usize::try_from(gone).unwrap_or(0));
        if !gone.is_empty() {
            self.grow(file, offset + gone.len() as u64)?;
            file.write_at(gone, offset)?;
        }
        if here.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(offset + gone.len() as u64 - self.start).unwrap_or(0);
        let inside = here.len().min(self.filled.saturating_sub(at));
        self.buffer[at..at + inside].copy_from_slice(&here[..inside]);
        match &here[inside..] {
            [] => Ok(()),
            rest => self.append(file, offset + (gone.len() + inside) as u64, rest),
        }
    }

    /// Writes what is gathered.
    pub(super) fn flush(&mut self, file: &dyn NewFile) -> Result<()> {
        if self.filled > 0 {
            let end = self.start + self.filled as u64;
            self.grow(file, end)?;
            file.write_at(&self.buffer[..self.filled], self.start)?;
            self.start = end;
            self.filled = 0;
        }
        Ok(())
    }

    fn grow(&mut self, file: &dyn NewFile, end: u64) -> Result<()> {
        if end > self.file_size {
            self.file_size = end.next_multiple_of(STEP);
            file.resize(self.file_size)?;
        }
        Ok(())
    }
}
