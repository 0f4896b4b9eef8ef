//! Volume descriptors: where a reader starts.

use super::SECTOR_BYTES;
use super::identifier::ucs2;
use super::record::{Extent, ITSELF, Record, both16, both32};

/// What a descriptor says of its hierarchy.
#[derive(Debug)]
pub(super) struct Volume {
    /// Of the whole image.
    pub(super) sectors: u32,
    pub(super) path_table_bytes: u32,
    pub(super) little_path_table: u32,
    pub(super) big_path_table: u32,
    pub(super) root: Extent,
}

const PRIMARY: u8 = 1;
const SUPPLEMENTARY: u8 = 2;
const TERMINATOR: u8 = 255;
/// The escape sequence of UCS-2, level 3.
const JOLIET_LEVEL_3: &[u8; 3] = b"%/E";
const APPLICATION: &str = "DISKLET";
/// A time that is not given. Of one that is, `blkid` makes a UUID, which all
/// our images would share.
const NO_TIME: &[u8; 17] = b"0000000000000000\0";

/// How a descriptor writes text.
#[derive(Debug, Clone, Copy)]
enum Text {
    Ascii,
    Ucs2,
}

impl Text {
    /// The text and spaces behind it.
    fn field(self, text: &str, length: usize) -> Vec<u8> {
        let mut bytes = match self {
            Self::Ascii => format!("{text:length$}").into_bytes(),
            Self::Ucs2 => ucs2(&format!("{text:letters$}", letters = length / 2)),
        };
        // An odd field has room for half a letter.
        bytes.resize(length, 0);
        bytes
    }
}

pub(super) fn primary(label: &str, volume: &Volume) -> Vec<u8> {
    descriptor(PRIMARY, Text::Ascii, &[0; 3], label, volume)
}

pub(super) fn joliet(label: &str, volume: &Volume) -> Vec<u8> {
    descriptor(SUPPLEMENTARY, Text::Ucs2, JOLIET_LEVEL_3, label, volume)
}

pub(super) fn terminator() -> Vec<u8> {
    let mut bytes = start(TERMINATOR);
    bytes.resize(SECTOR_BYTES, 0);
    bytes
}

fn start(kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(b"CD001");
    bytes.push(1);
    bytes
}

fn descriptor(kind: u8, text: Text, escapes: &[u8; 3], label: &str, volume: &Volume) -> Vec<u8> {
    let mut bytes = start(kind);
    bytes.push(0);
    // The system that the system area is for.
    bytes.extend(text.field("", 32));
    bytes.extend(text.field(label, 32));
    bytes.extend([0; 8]);
    bytes.extend(both32(volume.sectors));
    bytes.extend(escapes);
    bytes.extend([0; 29]);
    // The first and only volume of its set, in blocks as large as sectors.
    bytes.extend(both16(1));
    bytes.extend(both16(1));
    bytes.extend(both16(2048));
    bytes.extend(both32(volume.path_table_bytes));
    bytes.extend(volume.little_path_table.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(volume.big_path_table.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(Record::directory(ITSELF, volume.root, Vec::new()).to_bytes());
    // Volume set, publisher, preparer.
    for _ in 0..3 {
        bytes.extend(text.field("", 128));
    }
    bytes.extend(text.field(APPLICATION, 128));
    // Files with the copyright, an abstract and a bibliography.
    for _ in 0..3 {
        bytes.extend(text.field("", 37));
    }
    // Of creation, change, expiry and effect.
    for _ in 0..4 {
        bytes.extend(NO_TIME);
    }
    bytes.push(1);
    bytes.resize(SECTOR_BYTES, 0);
    bytes
}
