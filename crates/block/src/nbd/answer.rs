//! The chunks that a structured reply consists of.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;

use super::handshake::in_words;
use super::wire::{CHUNK, SIMPLE_REPLY};
use super::wire::{take_bytes, take_u16, take_u32, take_u64};
use crate::error::{Error, ErrorKind, Result, corrupt, limit};

/// What a chunk begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    /// It is the last of its reply.
    pub(super) last: bool,
    pub(super) kind: Kind,
    /// Of what follows.
    pub(super) length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    Data,
    Hole,
    BlockStatus,
    Failure,
}

const LAST: u16 = 1;

impl Chunk {
    /// Reads the beginning of a chunk of the reply to a request.
    pub(super) fn take(stream: &mut impl Read, cookie: u64) -> Result<Self> {
        let magic = take_u32(stream)?;
        if magic == SIMPLE_REPLY {
            let (code, of) = (take_u32(stream)?, take_u64(stream)?);
            return Err(match (of == cookie, code) {
                (true, 1..) => failure(code, &[]),
                _ => unasked(),
            });
        }
        if magic != CHUNK {
            return Err(corrupt("its server answers with something else"));
        }
        let (flags, kind) = (take_u16(stream)?, take_u16(stream)?);
        if take_u64(stream)? != cookie {
            return Err(unasked());
        }
        let kind = match kind {
            0 => Kind::Nothing,
            1 => Kind::Data,
            2 => Kind::Hole,
            5 => Kind::BlockStatus,
            0x8000.. => Kind::Failure,
            _ => return Err(unasked()),
        };
        Ok(Self {
            last: flags & LAST != 0,
            kind,
            length: take_u32(stream)?,
        })
    }

    /// Reads why a request has failed. Nothing else is worth hearing then.
    pub(super) fn failure(self, stream: &mut impl Read) -> Result<Error> {
        const LONGEST: u32 = 8192;
        if self.length > LONGEST {
            return Err(limit("its server says more than it should"));
        }
        let bytes = take_bytes(stream, self.length)?;
        let Some((code, rest)) = bytes.split_first_chunk() else {
            return Err(unasked());
        };
        let words = rest.split_first_chunk::<2>().map(|(length, words)| {
            let length = usize::from(u16::from_be_bytes(*length));
            &words[..length.min(words.len())]
        });
        Ok(failure(u32::from_be_bytes(*code), words.unwrap_or(&[])))
    }
}

/// The numbers of errors are Linux's.
fn failure(code: u32, words: &[u8]) -> Error {
    let code = i32::try_from(code).unwrap_or(0);
    let system = io::Error::from_raw_os_error(code);
    match in_words(words) {
        words if words.is_empty() => Error::io("its server cannot read it", system),
        words => Error::new(ErrorKind::Io, format!("its server cannot read it{words}")),
    }
}

pub(super) fn unasked() -> Error {
    corrupt("its server answers something else than was asked")
}

/// Which bytes of a request have come. Chunks come in any order, and none
/// twice.
#[derive(Debug, Default)]
pub(super) struct Come {
    pieces: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Come {
    /// Takes a piece of a request of so many bytes; where it goes.
    pub(super) fn take(
        &mut self,
        start: Option<u64>,
        length: u32,
        whole: usize,
    ) -> Result<Range<usize>> {
        let length = length as usize;
        let start = start.and_then(|start| usize::try_from(start).ok());
        let piece = start.and_then(|start| Some(start..start.checked_add(length)?));
        let piece = piece.filter(|piece| !piece.is_empty() && piece.end <= whole);
        let piece = piece.ok_or_else(unasked)?;
        let before = self.pieces.range(..piece.end).next_back();
        if before.is_some_and(|(_, end)| *end > piece.start) {
            return Err(unasked());
        }
        self.pieces.insert(piece.start, piece.end);
        self.bytes += length;
        Ok(piece)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
