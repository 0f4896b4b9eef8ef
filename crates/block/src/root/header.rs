//! The header of a root device: its bytes, and what a device holds.

use super::DATA_OFFSET;
use crate::device::{ReadAt, Size};
use crate::error::Result;
use crate::zero::is_zero;

/// The SHA-256 of the file that a root was filled from.
pub type ImageHash = [u8; 32];

/// What is on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing, as far as samples show.
    Blank,
    /// Something that is not ours.
    Foreign,
    /// A root that Virtlet has filled, or has begun to: its header does not
    /// tell.
    Virtlet(ImageHash),
    /// A root that was being filled.
    Filling(ImageHash),
    /// A complete root.
    Complete(ImageHash),
    /// A root of a later version than this program knows.
    Later(u16),
    /// Our mark, and nonsense behind it.
    Damaged,
}

/// Virtlet's mark. Its version 1 is followed by nothing but a hash; version 2
/// is ours.
const MAGIC: [u8; 8] = 0x263d_be52_ba57_6702_u64.to_be_bytes();
const VIRTLET_VERSION: u16 = 1;
const VERSION: u16 = 2;
/// Words rather than numbers: no single damaged bit makes one of the other.
const FILLING: [u8; 8] = *b"filling\0";
const COMPLETE: [u8; 8] = *b"complete";

/// Where it says how far a fill can have come.
const REACH: std::ops::Range<usize> = 64..72;

/// The header is written as a block of this size: no device has larger ones.
pub(super) const HEADER_SIZE: usize = 4096;

/// How far a root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is being filled. So many bytes of its disk may be from this image or
    /// an earlier one that was not completed: they are ours to remove.
    Filling(u64),
    Complete,
}

/// The header of a root.
pub(super) fn encode(hash: &ImageHash, stage: Stage) -> [u8; HEADER_SIZE] {
    let mut block = [0; HEADER_SIZE];
    block[..8].copy_from_slice(&MAGIC);
    block[8..10].copy_from_slice(&VERSION.to_be_bytes());
    block[10..42].copy_from_slice(hash);
    let (word, reach) = match stage {
        Stage::Filling(reach) => (FILLING, reach),
        Stage::Complete => (COMPLETE, 0),
    };
    block[48..56].copy_from_slice(&word);
    block[56..64].copy_from_slice(&DATA_OFFSET.to_be_bytes());
    block[REACH].copy_from_slice(&reach.to_be_bytes());
    block
}

/// How many bytes of the disk a fill that was cut off may have written.
pub(super) fn reach(device: &(impl ReadAt + Size + ?Sized)) -> Result<u64> {
    let block = header_of(device)?;
    Ok(
        match block[..8] == MAGIC && matches!(decode(&block), Found::Filling(_)) {
            true => reach_in(&block),
            false => 0,
        },
    )
}

fn reach_in(block: &[u8; HEADER_SIZE]) -> u64 {
    let mut reach = [0; 8];
    reach.copy_from_slice(&block[REACH]);
    u64::from_be_bytes(reach)
}

fn header_of(device: &(impl ReadAt + Size + ?Sized)) -> Result<[u8; HEADER_SIZE]> {
    let mut block = [0; HEADER_SIZE];
    let length = device.size()?.min(HEADER_SIZE as u64);
    device.read_at(&mut block[..usize::try_from(length).unwrap_or(0)], 0)?;
    Ok(block)
}

/// Looks what is on a device. Reads its first MiB, its last, and samples
/// between them.
pub fn look(device: &(impl ReadAt + Size + ?Sized)) -> Result<Found> {
    let size = device.size()?;
    let block = header_of(device)?;
    if block[..8] != MAGIC {
        return Ok(match is_blank(device, size)? {
            true => Found::Blank,
            false => Found::Foreign,
        });
    }
    Ok(decode(&block))
}

fn decode(block: &[u8; HEADER_SIZE]) -> Found {
    let version = u16::from_be_bytes([block[8], block[9]]);
    let mut hash = [0; 32];
    hash.copy_from_slice(&block[10..42]);
    // One sector: what is behind it may be from before, if a cut tore the block.
    let is = |stage| block[..512] == encode(&hash, stage)[..512];
    match version {
        VIRTLET_VERSION => Found::Virtlet(hash),
        VERSION if is(Stage::Complete) => Found::Complete(hash),
        VERSION if is(Stage::Filling(reach_in(block))) => Found::Filling(hash),
        VERSION | 0 => Found::Damaged,
        later => Found::Later(later),
    }
}

/// How many places between begin and end are looked at.
const SAMPLES: u64 = 256;
const END: usize = 1 << 20;

/// Every filesystem, partition table and volume manager has something in the
/// first or the last MiB; the samples are for what has lost it.
fn is_blank(device: &(impl ReadAt + ?Sized), size: u64) -> Result<bool> {
    let mut buffer = vec![0; END];
    let mut is_zero_at = |offset: u64, length: usize| {
        let length = (size - offset).min(length as u64);
        let part = &mut buffer[..usize::try_from(length).unwrap_or(0)];
        device.read_at(part, offset)?;
        Ok(is_zero(part))
    };
    if !is_zero_at(0, END)? || !is_zero_at(size.saturating_sub(END as u64), END)? {
        return Ok(false);
    }
    for sample in 1..SAMPLES {
        let offset = (size / SAMPLES * sample) & !0xfff;
        if !is_zero_at(offset, HEADER_SIZE)? {
            return Ok(false);
        }
    }
    Ok(true)
}
