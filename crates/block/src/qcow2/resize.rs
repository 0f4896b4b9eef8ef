//! Changing the size of the disk in an image that exists.
//!
//! Whoever opens the image after a crash sees the old size or the new one,
//! with all data of the smaller of the two. Each line is durable before the
//! next begins:
//!
//! | written                                       | a crash afterwards leaves   |
//! |-----------------------------------------------|-----------------------------|
//! | features that nobody here knows are cleared   | the old size                |
//! | **grow**                                      |                             |
//! | zeroes behind the old end, out of sight; if   |                             |
//! | the last cluster is packed or a snapshot's    |                             |
//! | too, in a new one, then an entry that leads   |                             |
//! | there, then the old one uncounted             | the old size, leaks         |
//! | new refcount blocks and table, out of sight,  |                             |
//! | and counts of new clusters in old blocks      | the old size, leaks         |
//! | a new refcount table in the header            | the old size, leaks         |
//! | the larger L1 table; one new refcount block   |                             |
//! | in an old table; an old table uncounted       | the old size, leaks         |
//! | the header: size and L1 table, in one sector  | the new size, leaks         |
//! | the old L1 table is no longer counted         | the new size                |
//! | **shrink**                                    |                             |
//! | the header: the size                          | the new size, nothing freed |
//! | tables without what lies beyond               | the new size, leaks         |
//! | what they named is no longer counted          | the new size, a longer file |
//! | the file is cut                               | the new size                |

mod allocate;
mod counts;
mod grow;
mod last;
mod trim;

use std::ops::Range;

use super::check::{Verdict, check_within};
use super::cluster::HostOffset;
use super::extension::be64;
use super::header::Header;
use super::image::Qcow2;
use crate::device::{Discard, Flush, Resize, Source, WriteAt};
use crate::error::{Error, ErrorKind, Result, corrupt, invalid, unsupported};
use counts::Counts;

/// A file with an image that can be changed.
pub trait ImageFile: Source + WriteAt + Resize + Discard + Flush {}
impl<T: Source + WriteAt + Resize + Discard + Flush> ImageFile for T {}

/// How to change a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResizeOptions {
    /// What becomes of data beyond a smaller size.
    pub beyond: Beyond,
    /// The size of the disk below, if there is one: what of it lies beyond
    /// the old size must not come to light.
    pub backing_size: Option<u64>,
}

/// What becomes of data beyond a smaller size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// If there is any, the disk keeps its size.
    Keep,
    /// It is lost.
    Lose,
}

const SIZE_AT: u64 = 24;
const INCOMPATIBLE_AT: u64 = 72;
const AUTOCLEAR_AT: u64 = 88;
/// What of the autoclear features is known: bitmaps and raw data files.
const KNOWN_AUTOCLEAR: u64 = 3;
const DIRTY: u64 = 1;
/// Whoever resizes an image trusts it more than one from outside.
const CHECK_MEMORY: usize = 512 << 20;

/// Changes the size of the disk. Returns the size that it had.
pub fn resize(file: &dyn ImageFile, name: &str, size: u64, options: &ResizeOptions) -> Result<u64> {
    let header = Qcow2::read_header(file, name)?;
    let before = header.size;
    let run = || {
        refuse(&header, size)?;
        if size == before {
            return Ok(());
        }
        header.check_places(file.size()?)?;
        clear_features(file, &header, name)?;
        let resizer = Resizer::new(file, header.clone())?;
        if size > before {
            refuse_to_uncover(&header, options.backing_size)?;
            resizer.grow(size, name)
        } else {
            resizer.shrink(size, options.beyond, name)
        }
    };
    run().map_err(|error: Error| error.of(name))?;
    Ok(before)
}

/// What QEMU refuses, too, and what only it can do.
fn refuse(header: &Header, size: u64) -> Result<()> {
    if !size.is_multiple_of(512) {
        return Err(invalid(
            "the size of a disk must be a multiple of 512 bytes",
        ));
    }
    if header.marked_corrupt {
        return Err(corrupt(
            "the image is marked as corrupt, and must be repaired first",
        ));
    }
    let reason = if header.has_data_file() {
        "an image that keeps its data in another file cannot be resized here, only by qemu-img resize"
    } else if header.bitmaps.is_some() {
        "an image with bitmaps cannot be resized here: they would not fit the disk any more; remove them with qemu-img bitmap --remove, or resize it with qemu-img"
    } else if header.snapshots > 0 && header.version < 3 {
        "an image of version 2 with snapshots cannot be resized: delete them with qemu-img snapshot -d, or make it version 3 with qemu-img amend -o compat=1.1"
    } else if header.snapshots > 0 && size < header.size {
        "an image with snapshots cannot be made smaller: delete them with qemu-img snapshot -d"
    } else {
        return Ok(());
    };
    Err(unsupported(reason))
}

fn refuse_to_uncover(header: &Header, backing_size: Option<u64>) -> Result<()> {
    match (&header.backing_file, backing_size) {
        (None, _) => Ok(()),
        (Some(_), Some(size)) if size <= header.size => Ok(()),
        (Some(_), Some(_)) => Err(unsupported(
            "the disk below is larger, and its end would come to light",
        )),
        (Some(_), None) => Err(invalid("the size of the disk below must be known")),
    }
}

/// Clears the features that a writer must not leave, as QEMU does.
fn clear_features(file: &dyn ImageFile, header: &Header, name: &str) -> Result<()> {
    if header.version < 3 {
        return Ok(());
    }
    if header.dirty {
        // Its counts may be wrong. Where they are not, it may be used.
        refuse_corrupt(file, name)?;
        clear(file, INCOMPATIBLE_AT, !DIRTY)?;
    }
    clear(file, AUTOCLEAR_AT, KNOWN_AUTOCLEAR)
}

fn clear(file: &dyn ImageFile, at: u64, keep: u64) -> Result<()> {
    let mut word = [0; 8];
    file.read_at(&mut word, at)?;
    let features = be64(&word, 0);
    if features & keep != features {
        file.write_at(&(features & keep).to_be_bytes(), at)?;
        file.flush()?;
    }
    Ok(())
}

/// Freeing what two things use would lose one of them.
fn refuse_corrupt(file: &dyn ImageFile, name: &str) -> Result<()> {
    let report = check_within(file, name, CHECK_MEMORY)?;
    if report.verdict() != Verdict::Corrupt {
        return Ok(());
    }
    let first = report.problems.iter().find(|problem| !problem.leak);
    let first = first.map_or(String::new(), |problem| format!(": {problem}"));
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("the image must be repaired first{first}"),
    ))
}

/// An image whose size is being changed.
struct Resizer<'f> {
    file: &'f dyn ImageFile,
    /// As it is in the file.
    header: Header,
    counts: Counts<'f>,
    /// Clusters beside each other that nothing uses any more.
    free: Range<u64>,
}

impl<'f> Resizer<'f> {
    fn new(file: &'f dyn ImageFile, header: Header) -> Result<Self> {
        Ok(Self {
            file,
            counts: Counts::load(file, &header)?,
            header,
            free: 0..0,
        })
    }

    /// Puts size and L1 table into the header: 24 bytes of its first sector,
    /// which is written whole or not at all.
    fn write_header(&mut self, size: u64, l1_entries: u32, l1_offset: u64) -> Result<()> {
        let mut bytes = [0; 24];
        self.file.read_at(&mut bytes, SIZE_AT)?;
        bytes[..8].copy_from_slice(&size.to_be_bytes());
        bytes[12..16].copy_from_slice(&l1_entries.to_be_bytes());
        bytes[16..].copy_from_slice(&l1_offset.to_be_bytes());
        self.file.write_at(&bytes, SIZE_AT)?;
        self.file.flush()?;
        self.header.size = size;
        self.header.l1_entries = l1_entries;
        self.header.l1_offset = HostOffset(l1_offset);
        Ok(())
    }

    fn shrink(mut self, size: u64, beyond: Beyond, name: &str) -> Result<()> {
        refuse_corrupt(self.file, name)?;
        if beyond == Beyond::Keep && self.has_data_beyond(size)? {
            return Err(invalid(
                "the disk has data beyond the new size, which would be lost",
            ));
        }
        let (entries, offset) = (self.header.l1_entries, self.header.l1_offset.0);
        self.write_header(size, entries, offset)?;
        self.trim()
    }
}
