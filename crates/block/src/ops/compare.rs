//! Whether two disks have the same bytes.

use crate::convert::Watch;
use crate::device::{Extents, ReadAt, Size};
use crate::error::{Error, ErrorKind, Result};
use crate::image::Image;
use crate::sys::AlignedBuffer;
use crate::zero::is_zero;

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Byte for byte the same, as far as the shorter one goes; the rest of the
    /// longer one, if any, is zeroes.
    Same {
        /// Whether one is longer.
        sizes_differ: bool,
    },
    /// They differ at this offset first.
    Differs(u64),
}

const CHUNK: u64 = 1 << 20;

/// Compares two disks.
pub fn compare(one: &Image, other: &Image, watch: &dyn Watch) -> Result<Comparison> {
    let (first_size, second_size) = (one.size()?, other.size()?);
    let common = first_size.min(second_size);
    let mut buffers = Buffers::new();
    let mut at = 0;
    while at < common {
        if watch.cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "stopped on request"));
        }
        let length = match zeroes_in_both(one, other, at)? {
            0 => {
                let length = CHUNK.min(common - at);
                if let Some(difference) = buffers.difference(one, other, at, length)? {
                    return Ok(Comparison::Differs(at + difference));
                }
                length
            }
            zeroes => zeroes.min(common - at),
        };
        watch.advance(length);
        at += length;
    }
    let longer = if first_size > second_size { one } else { other };
    let end = first_size.max(second_size);
    while at < end {
        let extent = longer.extent_at(at)?;
        let length = extent.length.min(CHUNK).min(end - at);
        if !extent.zero {
            let bytes = buffers.read(longer, at, length)?;
            if !is_zero(bytes) {
                let within = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
                return Ok(Comparison::Differs(at + within as u64));
            }
        }
        watch.advance(length);
        at += length;
    }
    Ok(Comparison::Same {
        sizes_differ: first_size != second_size,
    })
}

/// For how many bytes both certainly read as zeroes.
fn zeroes_in_both(one: &Image, other: &Image, at: u64) -> Result<u64> {
    let first = one.extent_at(at)?;
    if !first.zero {
        return Ok(0);
    }
    let second = other.extent_at(at)?;
    Ok(if second.zero {
        first.length.min(second.length)
    } else {
        0
    })
}

struct Buffers {
    one: AlignedBuffer,
    other: AlignedBuffer,
}

impl Buffers {
    fn new() -> Self {
        let length = usize::try_from(CHUNK).unwrap_or(1 << 20);
        Self {
            one: AlignedBuffer::zeroed(length),
            other: AlignedBuffer::zeroed(length),
        }
    }

    fn read(&mut self, image: &Image, at: u64, length: u64) -> Result<&[u8]> {
        let length = usize::try_from(length).unwrap_or(0);
        image.read_at(&mut self.one[..length], at)?;
        Ok(&self.one[..length])
    }

    fn difference(
        &mut self,
        one: &Image,
        other: &Image,
        at: u64,
        length: u64,
    ) -> Result<Option<u64>> {
        let length = usize::try_from(length).unwrap_or(0);
        let (first, second) = (&mut self.one[..length], &mut self.other[..length]);
        one.read_at(first, at)?;
        other.read_at(second, at)?;
        if first == second {
            return Ok(None);
        }
        let position = first.iter().zip(second.iter()).position(|(a, b)| a != b);
        Ok(position.map(|position| position as u64))
    }
}
