//! What is sent of a file: the file as it is, or frames that each stand for a part of it.
//!
//! ```text
//!   file    data .... hole .... data       as it is: all of it, zeroes too
//!   frames  [data|][hole|][hole|][data|]   a hole is some bytes; lost uploads go on
//!                                          where a frame ends
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use disklet_block::image::Format;
use disklet_block::stream::{Framer, Wrapping};
use disklet_core::names::Sha256;
use sha2::Digest;

use super::Failure;

/// Whether a file is sent as frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Compress {
    /// A raw disk with holes is
    Auto,
    /// A raw disk is, with holes or without
    Zstd,
    /// The file goes as it is
    None,
}

/// So much of the file is in a frame.
const FRAME: u64 = 4 << 20;

/// A file, and what is sent of it.
#[derive(Debug)]
pub(super) struct Source {
    file: Arc<File>,
    /// How long the file is.
    size: u64,
    /// Of what is sent.
    pub(super) length: u64,
    pub(super) digest: Sha256,
    /// Where each frame ends in what is sent; nothing if the file goes as it is.
    frames: Option<Arc<Vec<u64>>>,
}

impl Source {
    /// Reads all of it once: the checksum goes before it.
    pub(super) fn open(path: &Path, compress: Compress) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let unread = |error: io::Error| Failure::new(format!("{name}: cannot be read: {error}"));
        let mut file = File::open(path).map_err(unread)?;
        // Of a device, the metadata do not tell.
        let size = file.seek(SeekFrom::End(0)).map_err(unread)?;
        if size == 0 || file.metadata().map_err(unread)?.is_dir() {
            return Err(Failure::new(format!(
                "{name}: is no disk: nothing is in it"
            )));
        }
        let is_worth_it = match compress {
            Compress::None => false,
            Compress::Zstd => is_raw(&file, size).map_err(unread)?,
            Compress::Auto => {
                has_holes(&file, size).map_err(unread)? && is_raw(&file, size).map_err(unread)?
            }
        };
        let mut source = Self {
            file: Arc::new(file),
            size,
            length: size,
            digest: Sha256::from_bytes([0; 32]),
            frames: None,
        };
        match is_worth_it {
            true => source.measure_frames().map_err(unread)?,
            false => source.measure().map_err(unread)?,
        }
        Ok(source)
    }

    /// How large the disk is, where that can be told.
    pub(super) fn disk(&self) -> Option<u64> {
        self.frames.is_some().then_some(self.size)
    }

    /// From where on it can be sent that came so far.
    pub(super) fn restart(&self, offset: u64) -> u64 {
        match &self.frames {
            None if offset < self.length => offset,
            Some(ends) if ends.binary_search(&offset).is_ok() && offset < self.length => offset,
            _ => 0,
        }
    }

    /// What is behind a place that it can be sent from.
    pub(super) fn rest(&self, from: u64) -> Body {
        let file = Arc::clone(&self.file);
        match &self.frames {
            None => Body::Plain {
                file,
                at: from,
                end: self.length,
            },
            Some(ends) => {
                let begun = ends.partition_point(|end| *end <= from) as u64;
                Body::Frames(Box::new(Frames {
                    maker: Maker::of(file, self.size),
                    ends: Arc::clone(ends),
                    next: begun,
                    at: 0,
                }))
            }
        }
    }

    fn measure(&mut self) -> io::Result<()> {
        let mut hash = sha2::Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut rest = self.rest(0);
        loop {
            match rest.read(&mut buffer)? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
        self.digest = Sha256::from_bytes(hash.finalize().into());
        Ok(())
    }

    fn measure_frames(&mut self) -> io::Result<()> {
        let mut hash = sha2::Sha256::new();
        let mut maker = Maker::of(Arc::clone(&self.file), self.size);
        let mut ends = Vec::new();
        let mut length = 0;
        for nth in 0..self.size.div_ceil(FRAME) {
            let frame = maker.make(nth)?;
            hash.update(frame);
            length += frame.len() as u64;
            ends.push(length);
        }
        self.length = length;
        self.digest = Sha256::from_bytes(hash.finalize().into());
        self.frames = Some(Arc::new(ends));
        Ok(())
    }
}

/// Whether it is neither compressed nor of another format.
fn is_raw(file: &File, size: u64) -> io::Result<bool> {
    let mut start = vec![0; usize::try_from(size.min(4096)).unwrap_or(4096)];
    file.read_exact_at(&mut start, 0)?;
    let is_plain = Wrapping::by_magic(&start) == Wrapping::Plain;
    Ok(is_plain && matches!(Format::by_magic(&start), Ok(Format::Raw)))
}

/// Whether at least an eighth of it is holes.
fn has_holes(file: &File, size: u64) -> io::Result<bool> {
    const BLOCK: u64 = 512;
    let meta = file.metadata()?;
    let there = meta.blocks().saturating_mul(BLOCK);
    Ok(meta.is_file() && there <= size - size / 8)
}

/// What is sent, from some place to its end.
pub(super) enum Body {
    Plain { file: Arc<File>, at: u64, end: u64 },
    Frames(Box<Frames>),
}

/// Frames, one after the other.
pub(super) struct Frames {
    maker: Maker,
    ends: Arc<Vec<u64>>,
    /// The frame to be made next.
    next: u64,
    /// How much of the one before has been read.
    at: usize,
}

impl Body {
    /// Whether all of it has been read.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Plain { at, end, .. } => at >= end,
            Self::Frames(frames) => {
                frames.next >= frames.ends.len() as u64 && frames.at >= frames.maker.frame.len()
            }
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain { file, at, end } => {
                let left = usize::try_from(*end - *at).unwrap_or(usize::MAX);
                let most = buffer.len().min(left);
                let length = file.read_at(&mut buffer[..most], *at)?;
                if length == 0 && most > 0 {
                    return Err(changed());
                }
                *at += length as u64;
                Ok(length)
            }
            Self::Frames(frames) => frames.read(buffer),
        }
    }
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.maker.frame.len() {
            let nth = usize::try_from(self.next).unwrap_or(usize::MAX);
            let Some(end) = self.ends.get(nth) else {
                return Ok(0);
            };
            let before = nth.checked_sub(1).and_then(|nth| self.ends.get(nth));
            let length = end - before.unwrap_or(&0);
            if self.maker.make(self.next)?.len() as u64 != length {
                return Err(changed());
            }
            self.next += 1;
            self.at = 0;
        }
        let rest = &self.maker.frame[self.at..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }
}

fn changed() -> io::Error {
    io::Error::other("the file has changed while it was sent")
}

/// Makes frames.
struct Maker {
    file: Arc<File>,
    size: u64,
    framer: Framer,
    bytes: Vec<u8>,
    /// The one that was made last.
    frame: Vec<u8>,
    /// A full one of a hole.
    hole: Vec<u8>,
    /// Where data is again, as far as that was looked up.
    data: u64,
}

impl Maker {
    fn of(file: Arc<File>, size: u64) -> Self {
        Self {
            file,
            size,
            framer: Framer::default(),
            bytes: Vec::new(),
            frame: Vec::new(),
            hole: Vec::new(),
            data: 0,
        }
    }

    fn make(&mut self, nth: u64) -> io::Result<&[u8]> {
        let from = nth * FRAME;
        let length = usize::try_from(FRAME.min(self.size - from)).unwrap_or(0);
        self.bytes.resize(length, 0);
        let is_hole = self.data_behind(from) >= from + FRAME;
        match (is_hole, self.hole.is_empty()) {
            (true, false) => self.frame.clone_from(&self.hole),
            (true, true) => {
                self.bytes.fill(0);
                self.wrap()?;
                self.hole.clone_from(&self.frame);
            }
            (false, _) => {
                self.file.read_exact_at(&mut self.bytes, from)?;
                self.wrap()?;
            }
        }
        Ok(&self.frame)
    }

    fn wrap(&mut self) -> io::Result<()> {
        let wrapped = self.framer.wrap(&self.bytes, &mut self.frame);
        wrapped.map_err(io::Error::other)
    }

    /// Where the first data behind a place is: there, if that cannot be told. The last
    /// frame, which may be shorter than others, is always read.
    fn data_behind(&mut self, from: u64) -> u64 {
        if self.data < from {
            let found = rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Data(from));
            self.data = match found {
                Ok(data) => data,
                // Only a hole is behind it.
                Err(rustix::io::Errno::NXIO) => self.size,
                Err(_) => from,
            };
        }
        self.data
    }
}
