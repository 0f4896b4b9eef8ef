//! New images whose space is set aside beforehand.

use std::ops::Range;

use rustix::fs::FallocateFlags;

use super::cluster::GuestOffset;
use super::spec::NewImage;
use super::writer::Writer;
use crate::device::{FileDevice, Flush, WriteAt};
use crate::error::{Error, Result, invalid};

/// What is set aside when an image is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preallocation {
    /// Nothing.
    Off,
    /// Every cluster has its place in the file, which is sparse.
    Metadata,
    /// The filesystem has set the space aside as well.
    Falloc,
    /// The space is written with zeroes.
    Full,
}

impl Preallocation {
    /// As QEMU's tools write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Metadata => "metadata",
            Self::Falloc => "falloc",
            Self::Full => "full",
        }
    }

    /// By its name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Off, Self::Metadata, Self::Falloc, Self::Full]
            .into_iter()
            .find(|mode| mode.name() == name)
    }
}

/// Makes an image in an empty file, and makes it durable. Returns the size of
/// the file. If there is not enough room, the file is no good and the caller
/// removes it.
pub fn create(file: &FileDevice, spec: &NewImage, preallocation: Preallocation) -> Result<u64> {
    let mut writer = Writer::new(file, spec)?;
    if preallocation == Preallocation::Off {
        return writer.finish();
    }
    if spec.backing.is_some() {
        // Clusters that are there hide what lies below.
        return Err(invalid(
            "an image over another one cannot have its space set aside",
        ));
    }
    let runs = reserve_all(&mut writer, spec)?;
    let size = writer.finish()?;
    match preallocation {
        Preallocation::Off | Preallocation::Metadata => {}
        Preallocation::Falloc => {
            set_aside(file, size)?;
            file.flush()?;
        }
        Preallocation::Full => {
            for run in runs {
                write_zeroes(file, run)?;
            }
            file.flush()?;
        }
    }
    Ok(size)
}

/// Has the filesystem set space aside, which reads as zeroes.
pub(crate) fn set_aside(file: &FileDevice, size: u64) -> Result<()> {
    rustix::fs::fallocate(file.file(), FallocateFlags::empty(), 0, size)
        .map_err(|error| Error::io("space cannot be set aside", error.into()).of(file.name()))
}

/// Gives every cluster of the disk its place. Returns where they are: long
/// runs between the tables.
fn reserve_all(writer: &mut Writer<'_>, spec: &NewImage) -> Result<Vec<Range<u64>>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let step = spec.cluster.bytes();
    for index in 0..spec.size.div_ceil(step) {
        let start = writer.reserve(GuestOffset(index * step))?.0;
        match runs.last_mut() {
            Some(run) if run.end == start => run.end += step,
            _ => runs.push(start..start + step),
        }
    }
    Ok(runs)
}

/// Written out: a hole or an unwritten extent would not be full.
pub(crate) fn write_zeroes(file: &FileDevice, run: Range<u64>) -> Result<()> {
    const PIECE: u64 = 1 << 20;
    let zeroes = crate::sys::AlignedBuffer::zeroed(1 << 20);
    let mut at = run.start;
    while at < run.end {
        let step = PIECE.min(run.end - at);
        file.write_at(&zeroes[..usize::try_from(step).unwrap_or(0)], at)?;
        at += step;
    }
    Ok(())
}
