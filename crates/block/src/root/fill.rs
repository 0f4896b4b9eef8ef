//! Filling a root device.

use super::header::encode;
use super::{DATA_OFFSET, ImageHash};
use crate::convert::{Before, Options, Watch, to_raw};
use crate::device::{Allocation, Behind, Discard, Size, Target, WriteZeroes};
use crate::error::{Error, ErrorKind, Result};
use crate::image::Image;

/// How much of what is behind the image is made zeroes, at either end: there
/// would be the marks of an earlier filesystem or partition table.
const EDGE: u64 = 1 << 20;

/// Fills a device, whatever is on it. Nothing changes before it is known that
/// the image fits.
pub fn fill(
    device: &dyn Target,
    image: &Image,
    hash: &ImageHash,
    threads: usize,
    watch: &dyn Watch,
) -> Result<()> {
    let (room, size) = (device.size()?, image.size()?);
    if room < DATA_OFFSET.saturating_add(size) {
        let needed = DATA_OFFSET.saturating_add(size);
        return Err(Error::new(
            ErrorKind::NoSpace,
            format!("has {room} bytes, but the image and its header need {needed}"),
        ));
    }
    device.write_at(&encode(hash, false), 0)?;
    device.flush()?;
    let disk = Behind::new(device, DATA_OFFSET)?;
    clear_rest(&disk, size)?;
    let options = Options {
        threads,
        target: Before::Anything,
        share: false,
    };
    // Durable when it returns.
    to_raw(image, &disk, &options, watch)?;
    device.write_at(&encode(hash, true), 0)?;
    device.flush()
}

/// What is behind the image shall not look like a disk of its own to the guest.
fn clear_rest(disk: &Behind<'_>, image: u64) -> Result<()> {
    let end = disk.size()?;
    disk.discard(image, end - image)?;
    let edge = (end - image).min(EDGE);
    disk.write_zeroes(image, edge, Allocation::Free)?;
    disk.write_zeroes(end - edge, edge, Allocation::Free)
}
