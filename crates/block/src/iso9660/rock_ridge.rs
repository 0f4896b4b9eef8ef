//! Rock Ridge: names and modes of POSIX, in the part of directory records that
//! is left to the system.

use super::record::{TIME, both32};

/// What POSIX knows of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    mode: u32,
    links: u32,
}

impl Attributes {
    pub(super) fn file(permissions: u32) -> Self {
        Self {
            mode: 0o100_000 | permissions,
            links: 1,
        }
    }

    /// A directory is linked from above, from itself and from the directories
    /// below.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are fewer than 65536 directories"
    )]
    pub(super) fn directory(below: usize) -> Self {
        Self {
            mode: 0o040_555,
            links: 2 + below as u32,
        }
    }
}

const HAS_ATTRIBUTES: u8 = 1 << 0;
const HAS_NAME: u8 = 1 << 3;
const HAS_TIMES: u8 = 1 << 7;
/// Of modification, access and change.
const TIMES: u8 = 0b1110;

/// The fields of an entry with a name.
pub(super) fn named(attributes: Attributes, name: &str) -> Vec<u8> {
    let mut fields = fields_of(attributes, HAS_ATTRIBUTES | HAS_TIMES | HAS_NAME);
    fields.extend(field(*b"NM", &[&[0], name.as_bytes()]));
    fields
}

/// The fields of a directory in itself, and of its parent.
pub(super) fn unnamed(attributes: Attributes) -> Vec<u8> {
    fields_of(attributes, HAS_ATTRIBUTES | HAS_TIMES)
}

/// The fields of the root in itself, which say that there are such fields. Who
/// defined them is too long for a record: it is at the start of a sector of its
/// own.
pub(super) fn root(attributes: Attributes, definition_sector: u32) -> Vec<u8> {
    let mut fields = field(*b"SP", &[&[0xbe, 0xef, 0]]);
    fields.extend(unnamed(attributes));
    let offset = both32(0);
    let length = both32(DEFINITION_BYTES);
    let place = [&both32(definition_sector)[..], &offset, &length];
    fields.extend(field(*b"CE", &place));
    fields
}

const IDENTIFIER: &str = "RRIP_1991A";
const DESCRIPTION: &str =
    "THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";
const SOURCE: &str = "PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER \
    IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION.";
const DEFINITION_BYTES: u32 = 237;

/// Says what the fields are, in the words of the specification.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the texts are shorter than 256 bytes"
)]
pub(super) fn definition() -> Vec<u8> {
    let texts = [IDENTIFIER, DESCRIPTION, SOURCE].map(str::as_bytes);
    let lengths = texts.map(|text| text.len() as u8);
    field(*b"ER", &[&lengths, &[1], texts[0], texts[1], texts[2]])
}

fn fields_of(attributes: Attributes, present: u8) -> Vec<u8> {
    let root_owns = both32(0);
    let mut fields = field(*b"RR", &[&[present]]);
    fields.extend(field(
        *b"PX",
        &[
            &both32(attributes.mode),
            &both32(attributes.links),
            &root_owns,
            &root_owns,
        ],
    ));
    fields.extend(field(*b"TF", &[&[TIMES], &TIME, &TIME, &TIME]));
    fields
}

/// A field: who it is, its length, its version, its content.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a field is shorter than the record it is in"
)]
fn field(signature: [u8; 2], content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let [first, second] = signature;
    let mut bytes = vec![first, second, 4 + content.len() as u8, 1];
    bytes.extend(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_as_long_as_the_root_says() {
        assert_eq!(definition().len(), DEFINITION_BYTES as usize);
        assert_eq!(definition()[2..8], [237, 1, 10, 84, 135, 1]);
    }
}
