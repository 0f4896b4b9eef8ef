//! Converting an image that comes as a stream, such as out of a pipe, to a raw
//! disk in one pass.
//!
//! ```text
//!   reader --decode--> bytes of the file --placer--> actions --carrier--> target
//!            thread                                              ^  |
//!                                                      recall    |  v  park
//!                                                               scratch
//! ```
//!
//! Memory is bounded whatever the stream says; `docs/decisions/0013` has the
//! sum. Clusters whose meaning is not known when they come are parked in the
//! scratch, at the offset that they have in the file.

mod action;
mod carrier;
mod decode;
mod disk;
mod expected;
mod frames;
mod inflow;
mod learn;
mod parked;
mod parts;
mod piece;
mod placer;
mod settle;
mod tables;
#[cfg(test)]
mod tests;
mod unpack;
mod window;

pub use action::{Action, Carry};
pub use decode::{Unwrap, Unwrapped, Wrapping};
pub use frames::Framer;
pub use parts::{Follower, Keeper, Mark, Parts};
pub use placer::Placer;

use std::io::Read;

use crate::convert::{Before, Watch};
use crate::device::{ReadAt, Resize, Size, Target, WriteAt};
use crate::error::{Error, ErrorKind, Result, invalid, limit};
use crate::image::Format;

use carrier::Carrier;
use decode::Decoder;
use inflow::Inflow;
use window::Window;

/// Where clusters are parked. It grows as needed and is best sparse: each
/// cluster is at the offset that it has in the file.
pub trait Scratch: Size + ReadAt + WriteAt + Resize + Sync {}
impl<T: Size + ReadAt + WriteAt + Resize + Sync> Scratch for T {}

/// How to convert a stream.
#[derive(Clone, Copy)]
pub struct Options<'c> {
    /// What the stream holds, within its wrapping.
    pub contents: Contents,
    /// What is wrapped around it.
    pub unwrap: Unwrap,
    /// What it may cost.
    pub limits: Limits,
    /// What the target reads as before.
    pub before: Before,
    /// Whether the target becomes as large as the disk.
    pub room: Room<'c>,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("contents", &self.contents)
            .field("unwrap", &self.unwrap)
            .field("limits", &self.limits)
            .field("before", &self.before)
            .finish_non_exhaustive()
    }
}

/// How it is known what a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The caller knows.
    As(Format),
    /// The first bytes within the wrapping tell; for streams whose writer is
    /// trusted, see [`Unwrap::ByMagic`].
    ByMagic,
}

impl Contents {
    fn format(self, start: &[u8]) -> Result<Format> {
        match self {
            Self::As(format) => Ok(format),
            Self::ByMagic => Format::by_magic(start),
        }
    }
}

/// What a stream may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of the largest disk.
    pub disk: u64,
    /// The bytes of the longest qcow2 file, unwrapped; twice the disk and
    /// 64 MiB unless it is said.
    pub file: Option<u64>,
    /// How many bytes may be parked.
    pub parked: u64,
}

/// The target's size.
#[derive(Clone, Copy)]
pub enum Room<'c> {
    /// It stays, and the disk has to fit.
    Fixed,
    /// It is set to the disk's; this is the target.
    Grows(&'c (dyn Resize + Sync)),
}

impl std::fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fixed => "Fixed",
            Self::Grows(_) => "Grows",
        })
    }
}

/// What became of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The format that the stream had, unwrapped.
    pub format: Format,
    /// The size of the disk.
    pub size: u64,
    /// The bytes of the file, unwrapped.
    pub file: u64,
    /// The bytes of the disk that were written.
    pub written: u64,
    /// The bytes of the disk that are zeroes.
    pub zero: u64,
    /// The bytes that were parked.
    pub parked: u64,
    /// Somebody has found the image corrupt, and noted it there.
    pub marked_corrupt: bool,
}

/// Converts a stream to a raw disk at the beginning of the target, and makes
/// it durable. After an error the target's content means nothing.
pub fn to_raw(
    stream: impl Read + Send,
    options: &Options<'_>,
    target: &dyn Target,
    scratch: &dyn Scratch,
    watch: &dyn Watch,
) -> Result<Report> {
    let mut carrier = Carrier::new(options, target, scratch, watch);
    Inflow::run(
        || Decoder::new(stream, options.unwrap),
        |inflow| place(inflow, options, &mut carrier, None, watch),
    )?;
    carrier.finish()
}

/// The same, of a stream of which a part has come before, or only a part may come. What
/// is kept of a raw disk is kept at marks; after an error, all before the last of them is
/// there.
pub fn to_raw_in_parts(
    stream: impl Read + Send,
    options: &Options<'_>,
    parts: Parts<'_>,
    target: &dyn Target,
    scratch: &dyn Scratch,
    watch: &dyn Watch,
) -> Result<Report> {
    let mut carrier = Carrier::new(options, target, scratch, watch);
    let Parts {
        before,
        follower,
        keeper,
    } = parts;
    let decoder = || {
        let decoder = match before {
            None => Decoder::new(stream, options.unwrap),
            Some((_, wrapping)) => Decoder::behind(stream, wrapping),
        };
        Ok(decoder?.followed_by(follower))
    };
    Inflow::run(decoder, |inflow| match before {
        None => place(inflow, options, &mut carrier, Some(keeper), watch),
        Some((disk, _)) => {
            carrier.begin_at(disk)?;
            let raw = Raw {
                begun: disk,
                most: options.limits.disk,
                keeper: Some(keeper),
            };
            raw.copy(inflow, Window::default(), &mut carrier)
        }
    })?;
    carrier.finish()
}

fn place(
    inflow: &mut Inflow,
    options: &Options<'_>,
    carrier: &mut Carrier<'_>,
    keeper: Option<&dyn Keeper>,
    watch: &dyn Watch,
) -> Result<()> {
    let mut window = Window::default();
    window.fill(inflow)?;
    // More often than an empty disk it is a program that has failed.
    if window.bytes().is_empty() {
        return Err(invalid("the stream is empty"));
    }
    let format = options.contents.format(window.bytes())?;
    if let Some(keeper) = keeper {
        keeper.learns(format)?;
    }
    match format {
        Format::Raw => {
            let raw = Raw {
                begun: 0,
                most: options.limits.disk,
                keeper,
            };
            raw.copy(inflow, window, carrier)
        }
        Format::Qcow2 => place_qcow2(inflow, window, &options.limits, carrier, watch),
    }
}

/// Every command that converts a stream has that option.
const LARGER: &str = "allow larger disks with --max-size";

/// A raw disk that comes.
struct Raw<'k> {
    /// How much of it was there before.
    begun: u64,
    most: u64,
    keeper: Option<&'k dyn Keeper>,
}

impl Raw<'_> {
    fn copy(
        &self,
        inflow: &mut Inflow,
        mut window: Window,
        carrier: &mut Carrier<'_>,
    ) -> Result<()> {
        let most = self.most;
        let mut size = self.begun;
        let mut last = None;
        loop {
            if let Err(lost) = window.fill(inflow) {
                // What came until now is of use, if it can be kept.
                self.keep(last, carrier)?;
                return Err(lost);
            }
            let bytes = window.bytes();
            if bytes.is_empty() {
                return carrier.set_size(size);
            }
            let guest = size;
            size += bytes.len() as u64;
            if size > most {
                return Err(limit(format!("the disk is larger than {most} bytes")).help(LARGER));
            }
            carrier.grow(size)?;
            carrier.carry(Action::Write { guest, bytes })?;
            carrier.count_file(bytes.len());
            window.consume(window.bytes().len());
            let mark = inflow.mark_within(size - self.begun);
            last = mark.map(|mark| self.counted(mark)).or(last);
            if last.as_ref().is_some_and(|mark| self.wants(mark)) {
                self.keep(last.take(), carrier)?;
            }
        }
    }

    /// From the beginning of the disk.
    fn counted(&self, mark: Mark) -> Mark {
        Mark {
            disk: mark.disk + self.begun,
            ..mark
        }
    }

    fn wants(&self, mark: &Mark) -> bool {
        self.keeper.is_some_and(|keeper| keeper.wants(mark))
    }

    fn keep(&self, mark: Option<Mark>, carrier: &mut Carrier<'_>) -> Result<()> {
        let (Some(keeper), Some(mark)) = (self.keeper, mark) else {
            return Ok(());
        };
        carrier.settle()?;
        keeper.keep(&mark)
    }
}

fn place_qcow2(
    inflow: &mut Inflow,
    mut window: Window,
    limits: &Limits,
    carrier: &mut Carrier<'_>,
    watch: &dyn Watch,
) -> Result<()> {
    let mut placer = Placer::new(window.bytes(), limits.file)?;
    let header = placer.header();
    if header.size > limits.disk {
        return Err(limit(format!(
            "the disk has {} bytes, more than {}",
            header.size, limits.disk
        ))
        .help(LARGER));
    }
    carrier.set_size(header.size)?;
    carrier.expect_clusters(header.cluster, header.compression);
    carrier.report_mark(header.marked_corrupt);
    window.make_room_for(Placer::lookahead(header.cluster));
    loop {
        let last = window.fill(inflow)?;
        let used = placer.feed(window.bytes(), last, &mut |action| carrier.carry(action))?;
        carrier.count_file(used);
        recall_tables(&mut placer, carrier, watch)?;
        window.consume(used);
        if last && window.bytes().is_empty() {
            break;
        }
    }
    placer.end()?;
    recall_tables(&mut placer, carrier, watch)
}

fn recall_tables(placer: &mut Placer, carrier: &mut Carrier<'_>, watch: &dyn Watch) -> Result<()> {
    let mut table = Vec::new();
    loop {
        if watch.cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "stopped on request"));
        }
        let Some(host) = placer.wanted()? else {
            return Ok(());
        };
        table.resize(placer.header().cluster.buffer_len(), 0);
        carrier.read_parked(&mut table, host)?;
        placer.recall(&table, &mut |action| carrier.carry(action))?;
    }
}
