//! What is agreed on before the first request: which export, structured
//! replies, and that the server tells of zeroes.

use std::io::{Read, Write};

use super::wire::{ALLOCATION, GREETING, OPTION, OPTION_REPLY};
use super::wire::{take_bytes, take_u16, take_u32, take_u64};
use crate::error::{Error, ErrorKind, Result, corrupt, limit, unsupported};

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The export's size in bytes.
    pub(super) size: u64,
    /// By which number the server tells of zeroes, if it does.
    pub(super) allocation: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
#[repr(u32)]
enum Wish {
    Go = 7,
    StructuredReplies = 8,
    MetaContext = 10,
}

/// A reply to a wish.
struct Reply {
    kind: u32,
    bytes: Vec<u8>,
}

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 1 << 1;

const ACK: u32 = 1;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const REFUSED: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;

/// A server that says more than this of one wish has something else in mind.
const MOST_REPLIES: usize = 64;
const LONGEST_REPLY: u32 = 64 << 10;

/// The longest name that the protocol has.
const LONGEST_NAME: usize = 4096;

pub(super) fn agree(stream: &mut (impl Read + Write), export: &str) -> Result<Agreed> {
    if export.len() > LONGEST_NAME {
        return Err(limit("the export's name is too long"));
    }
    if take_u64(stream)? != GREETING || take_u64(stream)? != OPTION {
        return Err(corrupt("what answers is no NBD server"));
    }
    let offered = take_u16(stream)?;
    if offered & FIXED_NEWSTYLE == 0 {
        return Err(unsupported("its NBD server is too old"));
    }
    let wanted = u32::from(FIXED_NEWSTYLE | (offered & NO_ZEROES));
    send(stream, &wanted.to_be_bytes())?;
    if refusal(&wish(stream, Wish::StructuredReplies, &[])?).is_some() {
        return Err(unsupported("its NBD server has no structured replies"));
    }
    let allocation = allocation(stream, export)?;
    let size = go(stream, export)?;
    Ok(Agreed { size, allocation })
}

/// Asks to be told of zeroes.
fn allocation(stream: &mut (impl Read + Write), export: &str) -> Result<Option<u32>> {
    let mut request = named(export);
    request.extend(1_u32.to_be_bytes());
    request.extend(named(ALLOCATION));
    let replies = wish(stream, Wish::MetaContext, &request)?;
    if refusal(&replies).is_some() {
        return Ok(None);
    }
    let told = replies.iter().filter(|reply| reply.kind == META_CONTEXT);
    let mut ids = told.filter_map(|reply| {
        let (id, name) = reply.bytes.split_first_chunk()?;
        (name == ALLOCATION.as_bytes()).then(|| u32::from_be_bytes(*id))
    });
    Ok(ids.next_back())
}

/// Asks for the export; how large it is.
fn go(stream: &mut (impl Read + Write), export: &str) -> Result<u64> {
    let mut request = named(export);
    request.extend(0_u16.to_be_bytes());
    let replies = wish(stream, Wish::Go, &request)?;
    if let Some(reply) = refusal(&replies) {
        let words = in_words(&reply.bytes);
        return Err(Error::new(
            ErrorKind::Io,
            format!("its server refuses it{words}"),
        ));
    }
    let infos = replies.iter().filter(|reply| reply.kind == INFO);
    let mut sizes = infos.filter_map(|reply| {
        let (kind, rest) = reply.bytes.split_first_chunk()?;
        let (size, _flags) = rest.split_first_chunk()?;
        (u16::from_be_bytes(*kind) == INFO_EXPORT).then(|| u64::from_be_bytes(*size))
    });
    let size = sizes
        .next_back()
        .filter(|size| i64::try_from(*size).is_ok());
    size.ok_or_else(|| corrupt("its server does not say how large it is"))
}

/// Asks for something; all that is said of it, the last word at the end.
fn wish(stream: &mut (impl Read + Write), wish: Wish, bytes: &[u8]) -> Result<Vec<Reply>> {
    let number = wish as u32;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut request = Vec::new();
    request.extend(OPTION.to_be_bytes());
    request.extend(number.to_be_bytes());
    request.extend(length.to_be_bytes());
    request.extend(bytes);
    send(stream, &request)?;
    let mut replies = Vec::new();
    while replies.len() < MOST_REPLIES {
        if take_u64(stream)? != OPTION_REPLY || take_u32(stream)? != number {
            return Err(corrupt("its server answers something else than was asked"));
        }
        let (kind, length) = (take_u32(stream)?, take_u32(stream)?);
        if length > LONGEST_REPLY {
            return Err(limit("its server says more than it should"));
        }
        let bytes = take_bytes(stream, length)?;
        replies.push(Reply { kind, bytes });
        if kind == ACK || kind & REFUSED != 0 {
            return Ok(replies);
        }
    }
    Err(limit("its server answers without end"))
}

fn refusal(replies: &[Reply]) -> Option<&Reply> {
    replies.last().filter(|reply| reply.kind & REFUSED != 0)
}

fn named(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), name.as_bytes()].concat()
}

/// What a server says, in one line that can be shown.
pub(super) fn in_words(bytes: &[u8]) -> String {
    const MOST: usize = 500;
    let text = String::from_utf8_lossy(bytes);
    let shown: String = text.trim().chars().take(MOST).collect();
    match shown.is_empty() {
        true => String::new(),
        false => format!(": {}", shown.escape_debug()),
    }
}

pub(super) fn send(stream: &mut impl Write, bytes: &[u8]) -> Result<()> {
    stream
        .write_all(bytes)
        .map_err(|error| Error::io("its server cannot be asked", error))
}
