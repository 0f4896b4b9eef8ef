//! Filling a root device.

use std::ops::Range;

use super::header::{Stage, encode, reach};
use super::{DATA_OFFSET, ImageHash};
use crate::convert::{Before, Options, Watch, to_raw};
use crate::device::{Allocation, Discard, Part, ReadAt, Size, Target, WriteZeroes};
use crate::error::{Error, ErrorKind, Result};
use crate::image::Image;
use crate::zero::is_zero;

/// How much of what is behind the image is made zeroes, at either end: there
/// would be the marks of an earlier filesystem or partition table.
const EDGE: u64 = 1 << 20;

/// What becomes of what is behind the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// It stays, but for its edges.
    Keep,
    /// Nobody needs it.
    Discard,
}

/// Whether all that [`fill`] would overwrite reads as zeroes: samples show what
/// a device is, but not that nothing of it is worth keeping.
pub fn is_unused(
    device: &(impl ReadAt + Size + ?Sized),
    image: u64,
    watch: &dyn Watch,
) -> Result<bool> {
    let end = device.size()?;
    let data_end = DATA_OFFSET
        .saturating_add(image)
        .saturating_add(EDGE)
        .min(end);
    let mut buffer = vec![0; 1 << 20];
    for range in [0..data_end, end.saturating_sub(EDGE).max(data_end)..end] {
        let mut offset = range.start;
        while offset < range.end {
            if watch.cancelled() {
                return Err(Error::new(ErrorKind::Cancelled, "was asked to stop"));
            }
            let length = (range.end - offset).min(buffer.len() as u64);
            let part = &mut buffer[..usize::try_from(length).unwrap_or(0)];
            device.read_at(part, offset)?;
            if !is_zero(part) {
                return Ok(false);
            }
            watch.advance(length);
            offset += length;
        }
    }
    Ok(true)
}

/// Refuses a device that is too small.
pub fn demand_room(device: &(impl Size + ?Sized), begin: u64, image: u64) -> Result<()> {
    let (room, needed) = (device.size()?, begin.saturating_add(image));
    if room >= needed {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!("has {room} bytes, but the image and its header need {needed}"),
    ))
}

/// Fills a device, whatever is on it. Nothing changes before it is known that
/// the image fits. What an earlier fill that was cut off has left goes.
pub fn fill(
    device: &(impl Target + ReadAt),
    image: &Image,
    hash: &ImageHash,
    behind: Behind,
    threads: usize,
    watch: &dyn Watch,
) -> Result<()> {
    let size = image.size()?;
    demand_room(device, DATA_OFFSET, size)?;
    let earlier = reach(device)?;
    // Also of the earlier, until its bytes are gone: this may be cut off, too.
    let filling = Stage::Filling(size.max(earlier));
    device.write_at(&encode(hash, filling), 0)?;
    device.flush()?;
    let disk = Part::new(device, DATA_OFFSET)?;
    clear_rest(&disk, size, behind)?;
    clear_earlier(&disk, size..earlier, watch)?;
    let options = Options {
        threads,
        target: Before::Anything,
        share: false,
    };
    // Durable when it returns.
    to_raw(image, &disk, &options, watch)?;
    device.write_at(&encode(hash, Stage::Complete), 0)?;
    device.flush()
}

/// What is behind the image shall not look like a disk of its own to the guest.
fn clear_rest(disk: &Part<'_>, image: u64, behind: Behind) -> Result<()> {
    let end = disk.size()?;
    if behind == Behind::Discard {
        disk.discard(image, end - image)?;
    }
    let edge = (end - image).min(EDGE);
    disk.write_zeroes(image, edge, Allocation::Free)?;
    disk.write_zeroes(end - edge, edge, Allocation::Free)
}

/// How much is made zeroes before it is asked whether to go on.
const STEP: u64 = 64 << 20;

/// No guest shall read what is of another image.
fn clear_earlier(disk: &Part<'_>, left: Range<u64>, watch: &dyn Watch) -> Result<()> {
    let end = left.end.min(disk.size()?);
    let mut offset = left.start;
    while offset < end {
        if watch.cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "was asked to stop"));
        }
        let length = STEP.min(end - offset);
        disk.write_zeroes(offset, length, Allocation::Free)?;
        offset += length;
    }
    Ok(())
}
