//! Reading tar archives as they come: one pass, one entry after the other.
//!
//! Written for layers of container images, which strangers make: every length
//! is bounded, and what is passed over counts. ustar, GNU's long names and pax
//! are read; sparse files are told of, and not put together.

mod header;
mod pax;
#[cfg(test)]
mod tests;

use std::io::Read;

use crate::error::{Error, Result, corrupt, limit};

use header::{BLOCK, Block, Header};
use pax::Overrides;

/// A long name may have so many bytes.
const LONGEST_NAME: u64 = 64 << 10;
/// What is said of one entry in pax may have so many.
const LONGEST_PAX: u64 = 1 << 20;

/// What an archive, or several, may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// How many entries, those that speak of others included.
    pub entries: u64,
    /// How many bytes may be passed over.
    pub passed: u64,
}

/// One thing in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as it stands there.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// How many bytes of data follow.
    pub size: u64,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file, whose data follow.
    File,
    /// A file whose holes are left out of its data.
    Sparse,
    /// A directory.
    Directory,
    /// Another name of this one.
    HardLink(Vec<u8>),
    /// Leads to this name.
    Symlink(Vec<u8>),
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A pipe.
    Fifo,
    /// Nothing that is known here.
    Other(u8),
}

/// An archive that is being read.
#[derive(Debug)]
pub struct Tar<R> {
    reader: R,
    allowance: Allowance,
    /// The data of the entry that have not been read.
    left: u64,
    /// What fills the entry's last block.
    padding: u64,
    ended: bool,
}

impl<R: Read> Tar<R> {
    /// An archive that comes.
    pub fn new(reader: R, allowance: Allowance) -> Self {
        Self {
            reader,
            allowance,
            left: 0,
            padding: 0,
            ended: false,
        }
    }

    /// The next entry; what has not been read of the last one is passed over.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let mut said = Overrides::default();
        loop {
            self.pass_data()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            self.left = header.size;
            self.padding = padding(header.size);
            match header.mark {
                b'L' => said.name(self.said(LONGEST_NAME)?),
                b'K' => said.link(self.said(LONGEST_NAME)?),
                b'x' | b'X' => said.pax(&self.said(LONGEST_PAX)?)?,
                // What holds for all files is never what they are called.
                b'g' => {}
                _ => {
                    let entry = said.complete(header)?;
                    self.left = entry.size;
                    self.padding = padding(entry.size);
                    return Ok(Some(entry));
                }
            }
        }
    }

    /// Reads data of the entry; 0 at its end.
    pub fn read_data(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if most == 0 {
            return Ok(0);
        }
        let length = self.read(&mut buffer[..most])?;
        match length {
            0 => Err(cut_short()),
            length => {
                self.left -= length as u64;
                Ok(length)
            }
        }
    }

    /// What it reads from.
    pub fn into_reader(self) -> R {
        self.reader
    }

    /// Reads to the end of everything; what another archive may still cost.
    pub fn finish(&mut self) -> Result<Allowance> {
        while self.next_entry()?.is_some() {}
        // As archives are made, blocks of zeroes follow.
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(self.allowance),
                length => self.passes(length as u64)?,
            }
        }
    }

    fn header(&mut self) -> Result<Option<Header>> {
        if self.ended {
            return Ok(None);
        }
        let block = self.block()?;
        if block.as_ref().is_none_or(Block::is_zero) {
            self.ended = true;
            if self.block()?.is_some_and(|block| !block.is_zero()) {
                return Err(corrupt("the archive goes on behind its end"));
            }
            return Ok(None);
        }
        self.allowance.entries = self
            .allowance
            .entries
            .checked_sub(1)
            .ok_or_else(|| limit("the archive has too many entries"))?;
        block.map(|block| block.header()).transpose()
    }

    /// One block, or none at the end.
    fn block(&mut self) -> Result<Option<Block>> {
        let mut bytes = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.read(&mut bytes[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(cut_short()),
                length => filled += length,
            }
        }
        self.passes(BLOCK as u64)?;
        Ok(Some(Block(bytes)))
    }

    /// What is said of the next entry.
    fn said(&mut self, most: u64) -> Result<Vec<u8>> {
        if self.left > most {
            return Err(limit("the archive has a name that is too long"));
        }
        let mut bytes = vec![0; usize::try_from(self.left).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.read_data(&mut bytes[filled..])?;
        }
        self.passes(filled as u64)?;
        Ok(bytes)
    }

    fn pass_data(&mut self) -> Result<()> {
        let mut rest = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        // Before anything of it comes.
        self.passes(rest)?;
        if rest == 0 {
            return Ok(());
        }
        let mut buffer = vec![0; 64 << 10];
        while rest > 0 {
            let most = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
            match self.read(&mut buffer[..most])? {
                0 => return Err(cut_short()),
                length => rest -= length as u64,
            }
        }
        Ok(())
    }

    fn passes(&mut self, bytes: u64) -> Result<()> {
        self.allowance.passed = self
            .allowance
            .passed
            .checked_sub(bytes)
            .ok_or_else(|| limit("the archive unpacks to too much beside the disk"))?;
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.reader.read(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                outcome => {
                    return outcome.map_err(|error| Error::io("the archive cannot be read", error));
                }
            }
        }
    }
}

fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

fn cut_short() -> Error {
    corrupt("the archive ends in the middle: it is truncated")
}
