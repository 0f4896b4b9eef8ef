//! A copy of a disk that costs as little as the filesystem lets it.
//!
//! ```text
//!   raw file --FICLONE--> shares all its blocks                     Whole
//!      | refused, or not a raw file
//!      v
//!   each run of bytes --FICLONERANGE--> shares what is aligned      Ranges
//!      | refused
//!      v
//!   bytes are read and written, holes are passed over               Copied
//! ```

use std::fs::File;

use crate::convert::{Before, Options, Report, Watch, to_raw};
use crate::device::{FileDevice, Flush, Resize, Shareable, Size};
use crate::error::Result;
use crate::image::Image;
use crate::sys;

/// How a clone was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It shares all blocks with the source.
    Whole,
    /// It shares some of them.
    Ranges,
    /// It shares none.
    Copied,
}

/// A clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cloned {
    /// How it was made.
    pub way: Way,
    /// What became of the bytes.
    pub report: Report,
}

/// Makes an empty file a raw disk with the bytes of an image, and makes it
/// durable.
pub fn clone(
    image: &Image,
    target: &FileDevice,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Cloned> {
    let size = image.size()?;
    if let (Some(from), Some(into)) = (image.shareable_file(), target.shareable_file())
        && share_all(from, into, size)
    {
        target.flush()?;
        watch.advance(size);
        return Ok(Cloned {
            way: Way::Whole,
            report: Report {
                shared: size,
                ..Report::default()
            },
        });
    }
    target.resize(0)?;
    target.resize(size)?;
    let options = Options {
        threads,
        target: Before::Zeroes,
        share: true,
    };
    let report = to_raw(image, target, &options, watch)?;
    let way = if report.shared > 0 {
        Way::Ranges
    } else {
        Way::Copied
    };
    Ok(Cloned { way, report })
}

/// Whoever grows the source meanwhile makes the clone longer than the disk;
/// such a one is not kept.
fn share_all(from: &File, into: &File, size: u64) -> bool {
    sys::clone_file(from, into).is_ok() && into.metadata().is_ok_and(|meta| meta.len() == size)
}
