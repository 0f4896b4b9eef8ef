//! What may be wrapped around an image: gzip, xz or zstd.
//!
//! Each codec turns bytes into bytes and keeps its own limit on memory.
//! [`Decoder`] feeds one from a reader.

mod gzip;
mod unwrapped;
mod xz;
mod zstd;

pub use unwrapped::Unwrapped;

use std::io::Read;

use super::Follower;
use crate::error::{Error, Result, corrupt};

/// What is wrapped around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapping {
    /// Nothing.
    Plain,
    /// RFC 1952, one member or several.
    Gzip,
    /// The .xz format.
    Xz,
    /// RFC 8878, one frame or several.
    Zstd,
}

/// How it is known what is wrapped around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwrap {
    /// The caller knows.
    As(Wrapping),
    /// The first bytes tell. A raw disk can begin with any bytes, and whoever
    /// wrote it chooses them; this is for streams whose writer is trusted.
    ByMagic,
}

impl Wrapping {
    /// By the first bytes of a stream, see [`Unwrap::ByMagic`].
    #[must_use]
    pub fn by_magic(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A frame to be skipped comes first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }

    fn codec(self) -> Result<Box<dyn Codec + Send>> {
        Ok(match self {
            Self::Plain => Box::new(Copied),
            Self::Gzip => Box::new(gzip::Gzip::new()),
            Self::Xz => Box::new(xz::Xz::new()?),
            Self::Zstd => Box::new(zstd::Zstd::new()),
        })
    }

    /// For what follows a member, a stream or a frame, if something does.
    fn codec_behind(self) -> Box<dyn Codec + Send> {
        match self {
            Self::Plain => Box::new(Copied),
            Self::Gzip => Box::new(gzip::Gzip::behind()),
            Self::Xz => Box::new(xz::Xz::behind()),
            Self::Zstd => Box::new(zstd::Zstd::behind()),
        }
    }
}

/// How far a codec came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    read: usize,
    written: usize,
}

/// Turns wrapped bytes into unwrapped ones.
trait Codec {
    /// Decodes some bytes. `last` says that no input follows. Nothing read and
    /// nothing written, with room for output, means that more input is needed.
    fn decode(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Result<Step>;

    /// Whether the input may end here.
    fn may_end(&self) -> bool;
}

struct Copied;

impl Codec for Copied {
    fn decode(&mut self, input: &[u8], output: &mut [u8], _last: bool) -> Result<Step> {
        let length = input.len().min(output.len());
        output[..length].copy_from_slice(&input[..length]);
        Ok(Step {
            read: length,
            written: length,
        })
    }

    fn may_end(&self) -> bool {
        true
    }
}

/// How much is read at once.
const INPUT: usize = 256 << 10;

/// Unwraps what it reads.
pub(super) struct Decoder<'f, R> {
    reader: R,
    input: Vec<u8>,
    /// What of the input has not been decoded.
    start: usize,
    end: usize,
    ended: bool,
    codec: Option<Box<dyn Codec + Send>>,
    follower: Option<&'f mut dyn Follower>,
    /// How much of the stream has been decoded.
    taken: u64,
    /// The last place within what was read last that a decoder can begin at.
    restart: Option<Restart>,
}

/// Where a decoder can begin.
#[derive(Debug)]
pub(super) struct Restart {
    /// So many bytes of what was read last lie before.
    pub(super) within: usize,
    /// So many bytes of the stream lie before.
    pub(super) taken: u64,
    /// What the follower knows of them.
    pub(super) followed: Vec<u8>,
}

impl<'f, R: Read> Decoder<'f, R> {
    pub(super) fn new(reader: R, unwrap: Unwrap) -> Result<Self> {
        let mut decoder = Self {
            reader,
            input: vec![0; INPUT],
            start: 0,
            end: 0,
            ended: false,
            codec: None,
            follower: None,
            taken: 0,
            restart: None,
        };
        let wrapping = match unwrap {
            Unwrap::As(wrapping) => wrapping,
            Unwrap::ByMagic => {
                while decoder.end < 6 && !decoder.ended {
                    decoder.fill()?;
                }
                Wrapping::by_magic(&decoder.input[..decoder.end])
            }
        };
        decoder.codec = Some(wrapping.codec()?);
        Ok(decoder)
    }

    /// Begins where an earlier one could have begun anew.
    pub(super) fn behind(reader: R, wrapping: Wrapping) -> Result<Self> {
        let mut decoder = Self::new(reader, Unwrap::As(wrapping))?;
        decoder.codec = Some(wrapping.codec_behind());
        Ok(decoder)
    }

    /// Has somebody look at what is decoded, and notes where another could begin.
    pub(super) fn followed_by(self, follower: &'f mut dyn Follower) -> Self {
        Self {
            follower: Some(follower),
            ..self
        }
    }

    /// The last place within what was read last that a decoder can begin at.
    pub(super) fn restart(&mut self) -> Option<Restart> {
        self.restart.take()
    }

    /// Fills the buffer; it stays shorter only at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        self.restart = None;
        while filled < buffer.len() {
            if self.start == self.end && !self.ended {
                self.fill()?;
            }
            let Some(codec) = &mut self.codec else { break };
            let input = &self.input[self.start..self.end];
            let step = codec.decode(input, &mut buffer[filled..], self.ended)?;
            if let Some(follower) = &mut self.follower {
                follower.took(&input[..step.read]);
                self.taken += step.read as u64;
                if step.read > 0 && codec.may_end() {
                    self.restart = Some(Restart {
                        within: filled + step.written,
                        taken: self.taken,
                        followed: follower.state(),
                    });
                }
            }
            self.start += step.read;
            filled += step.written;
            if step.read + step.written > 0 {
                continue;
            }
            if !self.ended {
                self.fill()?;
            } else if self.start < self.end || !codec.may_end() {
                return Err(corrupt(
                    "the compressed stream ends in the middle: it is truncated",
                ));
            } else {
                break;
            }
        }
        Ok(filled)
    }

    /// What it reads from.
    fn into_reader(self) -> R {
        self.reader
    }

    /// Reads more behind what is left.
    fn fill(&mut self) -> Result<()> {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        loop {
            match self.reader.read(&mut self.input[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(length) => self.end += length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::io("the stream cannot be read", error)),
            }
            return Ok(());
        }
    }
}
