//! Header extensions: a type, a length, and as many bytes, padded to eight.

use crate::error::{Result, corrupt};

/// What the extensions of a header say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) backing_format: Option<String>,
    pub(super) data_file: Option<String>,
    pub(super) encryption_header: bool,
    pub(super) bitmaps: Option<BitmapDirectory>,
    pub(super) feature_names: Vec<FeatureName>,
}

/// Where the directory of bitmaps is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BitmapDirectory {
    pub(super) count: u32,
    pub(super) size: u64,
    pub(super) offset: u64,
}

/// What an image calls a feature bit, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeatureName {
    pub(super) incompatible: bool,
    pub(super) bit: u8,
    pub(super) name: String,
}

const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const FEATURE_NAMES: u32 = 0x6803_f857;
const BITMAPS: u32 = 0x2385_2875;
const ENCRYPTION: u32 = 0x0537_be77;
const DATA_FILE: u32 = 0x4441_5441;

impl Extensions {
    /// Reads extensions from the bytes between the header and its limit.
    /// Unknown ones are passed over, as the format demands.
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Self> {
        let mut found = Self::default();
        while let Some((head, rest)) = bytes.split_at_checked(8) {
            let kind = be32(head, 0);
            if kind == END {
                return Ok(found);
            }
            let length = be32(head, 4) as usize;
            let padded = length.checked_next_multiple_of(8);
            let (Some(content), Some(padded)) = (rest.get(..length), padded) else {
                return Err(corrupt("a header extension reaches beyond the header"));
            };
            found.take(kind, content)?;
            bytes = rest.get(padded..).unwrap_or_default();
        }
        Ok(found)
    }

    fn take(&mut self, kind: u32, content: &[u8]) -> Result<()> {
        match kind {
            BACKING_FORMAT => self.backing_format = Some(text(content, "backing format")?),
            DATA_FILE => self.data_file = Some(text(content, "name of the data file")?),
            ENCRYPTION => self.encryption_header = true,
            BITMAPS => {
                if content.len() < 24 {
                    return Err(corrupt("the extension for bitmaps is too short"));
                }
                self.bitmaps = Some(BitmapDirectory {
                    count: be32(content, 0),
                    size: be64(content, 8),
                    offset: be64(content, 16),
                });
            }
            FEATURE_NAMES => {
                for entry in content.chunks_exact(48) {
                    let name = entry[2..]
                        .split(|byte| *byte == 0)
                        .next()
                        .unwrap_or_default();
                    self.feature_names.push(FeatureName {
                        incompatible: entry[0] == 0,
                        bit: entry[1],
                        name: String::from_utf8_lossy(name).into_owned(),
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn text(bytes: &[u8], what: &str) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| corrupt(format!("the {what} is not text")))
}

/// A big-endian number; the caller has checked the length.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// A big-endian number; the caller has checked the length.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

/// A big-endian number; the caller has checked the length.
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
