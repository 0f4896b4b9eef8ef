//! One connection, with one request under way at a time.

use std::io::{Read, Write};

use super::answer::{Chunk, Come, Kind, unasked};
use super::handshake::{agree, send};
use super::wire::{Command, REQUEST, ZERO};
use super::wire::{fill, take_bytes, take_u32, take_u64};
use crate::device::Extent;
use crate::error::{Result, limit};

#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    /// What the last request is known by.
    cookie: u64,
    allocation: Option<u32>,
}

/// More runs than this in one answer are of no use to anybody.
const MOST_RUNS: u32 = 1 << 17;

impl<S: Read + Write> Connection<S> {
    /// Agrees with the server on an export; how large it is.
    pub(super) fn open(mut stream: S, export: &str) -> Result<(Self, u64)> {
        let agreed = agree(&mut stream, export)?;
        let connection = Self {
            stream,
            cookie: 0,
            allocation: agreed.allocation,
        };
        Ok((connection, agreed.size))
    }

    /// Fills the buffer.
    pub(super) fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.request(Command::Read, offset, buffer.len() as u64)?;
        let mut come = Come::default();
        loop {
            let chunk = Chunk::take(&mut self.stream, self.cookie)?;
            match chunk.kind {
                Kind::Data => {
                    let length = chunk.length.checked_sub(8).ok_or_else(unasked)?;
                    let start = take_u64(&mut self.stream)?.checked_sub(offset);
                    let piece = come.take(start, length, buffer.len())?;
                    fill(&mut self.stream, &mut buffer[piece])?;
                }
                Kind::Hole if chunk.length == 12 => {
                    let start = take_u64(&mut self.stream)?.checked_sub(offset);
                    let length = take_u32(&mut self.stream)?;
                    let piece = come.take(start, length, buffer.len())?;
                    buffer[piece].fill(0);
                }
                Kind::Nothing if chunk.length == 0 && chunk.last => {}
                Kind::Failure => return Err(chunk.failure(&mut self.stream)?),
                _ => return Err(unasked()),
            }
            if chunk.last {
                break;
            }
        }
        match come.bytes() == buffer.len() {
            true => Ok(()),
            false => Err(unasked()),
        }
    }

    /// The runs from an offset on, as far as the server tells; nothing if it
    /// does not tell at all.
    pub(super) fn zeroes(&mut self, offset: u64, length: u64) -> Result<Option<Vec<Extent>>> {
        let Some(context) = self.allocation else {
            return Ok(None);
        };
        self.request(Command::BlockStatus, offset, length)?;
        let mut runs = None;
        loop {
            let chunk = Chunk::take(&mut self.stream, self.cookie)?;
            match chunk.kind {
                Kind::BlockStatus if runs.is_none() => {
                    runs = Some(self.runs(context, chunk.length)?);
                }
                Kind::Nothing if chunk.length == 0 && chunk.last => {}
                Kind::Failure => return Err(chunk.failure(&mut self.stream)?),
                _ => return Err(unasked()),
            }
            if chunk.last {
                break;
            }
        }
        runs.map(Some).ok_or_else(unasked)
    }

    fn runs(&mut self, context: u32, length: u32) -> Result<Vec<Extent>> {
        let count = length.checked_sub(4).ok_or_else(unasked)? / 8;
        if count > MOST_RUNS {
            return Err(limit("its server says more than it should"));
        }
        if count == 0 || length != 4 + count * 8 || take_u32(&mut self.stream)? != context {
            return Err(unasked());
        }
        let bytes = take_bytes(&mut self.stream, count * 8)?;
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
        };
        let run = |bytes: &[u8]| {
            let length = u64::from(number(&bytes[..4]));
            let zero = number(&bytes[4..]) & ZERO != 0;
            (length > 0).then_some(Extent { length, zero })
        };
        let runs: Option<Vec<_>> = bytes.chunks_exact(8).map(run).collect();
        runs.ok_or_else(unasked)
    }

    fn request(&mut self, command: Command, offset: u64, length: u64) -> Result<()> {
        let length = u32::try_from(length).map_err(|_| limit("too much to ask for at once"))?;
        self.cookie += 1;
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST.to_be_bytes());
        request[6..8].copy_from_slice(&(command as u16).to_be_bytes());
        request[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&length.to_be_bytes());
        send(&mut self.stream, &request)
    }
}
