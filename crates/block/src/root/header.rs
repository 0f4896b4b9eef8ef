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

/// The header is written as a block of this size: no device has larger ones.
pub(super) const HEADER_SIZE: usize = 4096;

/// The header of a root that is being filled, or is complete.
pub(super) fn encode(hash: &ImageHash, complete: bool) -> [u8; HEADER_SIZE] {
    let mut block = [0; HEADER_SIZE];
    block[..8].copy_from_slice(&MAGIC);
    block[8..10].copy_from_slice(&VERSION.to_be_bytes());
    block[10..42].copy_from_slice(hash);
    block[48..56].copy_from_slice(if complete { &COMPLETE } else { &FILLING });
    block[56..64].copy_from_slice(&DATA_OFFSET.to_be_bytes());
    block
}

/// Looks what is on a device. Reads its first MiB, its last, and samples
/// between them.
pub fn look(device: &(impl ReadAt + Size + ?Sized)) -> Result<Found> {
    let size = device.size()?;
    let mut block = [0; HEADER_SIZE];
    let length = size.min(HEADER_SIZE as u64);
    device.read_at(&mut block[..usize::try_from(length).unwrap_or(0)], 0)?;
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
    match version {
        VIRTLET_VERSION => Found::Virtlet(hash),
        // One sector: what is behind it may be from before, if a cut tore the block.
        VERSION if block[..512] == encode(&hash, true)[..512] => Found::Complete(hash),
        VERSION if block[..512] == encode(&hash, false)[..512] => Found::Filling(hash),
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
