//! Where the bytes of a disk are, from its beginning to its end.

use crate::device::Size;
use crate::error::Result;
use crate::image::{Image, Place};

/// A part of a disk whose bytes are in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub start: u64,
    /// How long it is.
    pub length: u64,
    /// How far down the chain it is; 0 is the image itself.
    pub depth: usize,
    /// An image of the chain has it.
    pub present: bool,
    /// It reads as zeroes.
    pub zero: bool,
    /// There are bytes for it.
    pub data: bool,
    /// Its bytes are packed.
    pub compressed: bool,
    /// Where its bytes are in their file, or have their place, if they have one
    /// as they are.
    pub offset: Option<u64>,
}

impl Extent {
    /// Whether `next` continues it.
    fn joins(&self, next: &Self) -> bool {
        let offsets_join = match (self.offset, next.offset) {
            (Some(one), Some(other)) => one + self.length == other,
            (None, None) => true,
            _ => false,
        };
        offsets_join
            && self.depth == next.depth
            && self.present == next.present
            && self.zero == next.zero
            && self.data == next.data
            && self.compressed == next.compressed
    }
}

/// The extents of a disk, in order; neighbours that are alike are one.
#[derive(Debug)]
pub struct Extents<'i> {
    image: &'i Image,
    at: u64,
    size: u64,
    waiting: Option<Extent>,
}

/// Maps a disk.
pub fn map(image: &Image) -> Result<Extents<'_>> {
    Ok(Extents {
        image,
        at: 0,
        size: image.size()?,
        waiting: None,
    })
}

impl Extents<'_> {
    fn piece(&mut self) -> Result<Option<Extent>> {
        if self.at >= self.size {
            return Ok(None);
        }
        let located = self.image.locate(self.at, self.size - self.at)?;
        let (present, zero, data, compressed, offset) = match located.place {
            Place::Nowhere => (false, true, false, false, None),
            Place::Zero { kept } => (true, true, false, false, kept),
            Place::Plain { offset, .. } => (true, false, true, false, Some(offset)),
            Place::Packed { .. } => (true, false, true, true, None),
        };
        let extent = Extent {
            start: self.at,
            length: located.length,
            depth: located.depth,
            present,
            zero,
            data,
            compressed,
            offset,
        };
        self.at += located.length;
        Ok(Some(extent))
    }
}

impl Iterator for Extents<'_> {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.piece() {
                Err(error) => {
                    self.at = self.size;
                    return Some(Err(error));
                }
                Ok(None) => return self.waiting.take().map(Ok),
                Ok(Some(next)) => match &mut self.waiting {
                    Some(last) if last.joins(&next) => last.length += next.length,
                    waiting => {
                        if let Some(done) = waiting.replace(next) {
                            return Some(Ok(done));
                        }
                    }
                },
            }
        }
    }
}
