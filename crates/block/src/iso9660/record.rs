//! Directory records, and the numbers that are written in both byte orders.

use super::SECTOR_BYTES;

/// Where the bytes of a file or directory are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) sector: u32,
    pub(super) bytes: u32,
}

/// 1980-01-01, midnight UTC: early enough to mean no time at all, and yet a
/// time to archivers, which frown at 1970.
pub(super) const TIME: [u8; 7] = [80, 1, 1, 0, 0, 0, 0];

/// The identifier of a directory in itself; also of the root.
pub(super) const ITSELF: &[u8] = &[0];
/// The identifier of a directory's parent in it.
pub(super) const PARENT: &[u8] = &[1];

const DIRECTORY_FLAG: u8 = 2;
const FIXED_BYTES: usize = 33;

/// An entry of a directory.
#[derive(Debug)]
pub(super) struct Record<'a> {
    identifier: &'a [u8],
    extent: Extent,
    flags: u8,
    /// Fields of Rock Ridge.
    pub(super) system_use: Vec<u8>,
}

impl<'a> Record<'a> {
    pub(super) fn file(identifier: &'a [u8], extent: Extent, system_use: Vec<u8>) -> Self {
        Self {
            identifier,
            extent,
            flags: 0,
            system_use,
        }
    }

    pub(super) fn directory(identifier: &'a [u8], extent: Extent, system_use: Vec<u8>) -> Self {
        Self {
            identifier,
            extent,
            flags: DIRECTORY_FLAG,
            system_use,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "names of at most 64 characters keep a record under 256 bytes"
    )]
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // What follows the identifier starts at an even byte, and so does the
        // next record.
        let name_bytes = (FIXED_BYTES + self.identifier.len()).next_multiple_of(2);
        let length = (name_bytes + self.system_use.len()).next_multiple_of(2);
        let mut bytes = vec![length as u8, 0];
        bytes.extend(both32(self.extent.sector));
        bytes.extend(both32(self.extent.bytes));
        bytes.extend(TIME);
        bytes.extend([self.flags, 0, 0]);
        bytes.extend(both16(1));
        bytes.push(self.identifier.len() as u8);
        bytes.extend(self.identifier);
        bytes.resize(name_bytes, 0);
        bytes.extend(&self.system_use);
        bytes.resize(length, 0);
        bytes
    }
}

/// The sectors of a directory. A record does not cross from one into the next.
pub(super) fn directory_bytes(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        let record = record.to_bytes();
        let left = bytes.len().next_multiple_of(SECTOR_BYTES) - bytes.len();
        if record.len() > left {
            bytes.resize(bytes.len() + left, 0);
        }
        bytes.extend(record);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
    bytes
}

/// A number, little-endian and then big-endian.
pub(super) fn both32(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A number, little-endian and then big-endian.
pub(super) fn both16(number: u16) -> [u8; 4] {
    let [low, high] = number.to_le_bytes();
    [low, high, high, low]
}
