//! One block of an archive that says what follows.

use super::{Entry, Kind};
use crate::error::{Result, corrupt};

pub(super) const BLOCK: usize = 512;

/// One block.
pub(super) struct Block(pub(super) [u8; BLOCK]);

/// What it says.
pub(super) struct Header {
    pub(super) mark: u8,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) size: u64,
}

const NAME: std::ops::Range<usize> = 0..100;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const MARK: usize = 156;
const LINK: std::ops::Range<usize> = 157..257;
const MAGIC: std::ops::Range<usize> = 257..263;
const PREFIX: std::ops::Range<usize> = 345..500;

impl Block {
    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    pub(super) fn header(&self) -> Result<Header> {
        let said = number(&self.0[CHECKSUM]);
        if said.is_none_or(|said| !self.sums().contains(&said)) {
            return Err(corrupt("this is no tar archive, or a damaged one"));
        }
        let size = number(&self.0[SIZE]).filter(|size| i64::try_from(*size).is_ok());
        let size = size.ok_or_else(|| corrupt("the archive has an entry of no size"))?;
        let mut path = text(&self.0[NAME]).to_vec();
        let prefix = text(&self.0[PREFIX]);
        // GNU's own headers have something else there.
        if self.0[MAGIC] == *b"ustar\0" && !prefix.is_empty() {
            path = [prefix, b"/", &path].concat();
        }
        let mark = self.0[MARK];
        Ok(Header {
            mark,
            path,
            link: text(&self.0[LINK]).to_vec(),
            size: if has_data(mark) { size } else { 0 },
        })
    }

    /// The sum of all bytes, and what old programs took for it.
    fn sums(&self) -> [u64; 2] {
        let mut sums = [0_u64, 0];
        for (at, byte) in self.0.iter().enumerate() {
            let byte = if CHECKSUM.contains(&at) { b' ' } else { *byte };
            sums[0] = sums[0].wrapping_add(u64::from(byte));
            sums[1] = sums[1].wrapping_add_signed(i64::from(byte.cast_signed()));
        }
        sums
    }
}

impl Header {
    /// The entry that it is of, if it is of one.
    pub(super) fn entry(self) -> Entry {
        let kind = match self.mark {
            // Before there was a mark for directories.
            b'0' | 0 | b'7' if self.path.ends_with(b"/") => Kind::Directory,
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink(self.link),
            b'2' => Kind::Symlink(self.link),
            b'3' => Kind::CharacterDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'S' => Kind::Sparse,
            other => Kind::Other(other),
        };
        Entry {
            path: self.path,
            kind,
            size: self.size,
        }
    }
}

/// Links, devices, directories and pipes have none, whatever they say.
pub(super) fn has_data(mark: u8) -> bool {
    !(b'1'..=b'6').contains(&mark)
}

/// What stands before the first zero.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal digits between blanks, or a number in base 256.
fn number(field: &[u8]) -> Option<u64> {
    if let [first @ 0x80..=0xff, rest @ ..] = field {
        let begin = u64::from(first & 0x7f);
        return rest.iter().try_fold(begin, |sum, byte| {
            Some(sum.checked_mul(256)? | u64::from(*byte))
        });
    }
    let blank = |byte: &u8| *byte == b' ' || *byte == 0;
    let start = field.iter().position(|byte| !blank(byte));
    let digits = start.map_or(&[][..], |start| &field[start..]);
    let end = digits.iter().position(blank).unwrap_or(digits.len());
    digits[..end].iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        Some(sum.checked_mul(8)? + u64::from(digit))
    })
}
