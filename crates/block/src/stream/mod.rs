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
mod inflow;
mod learn;
mod parked;
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
pub use placer::Placer;

use std::io::Read;

use crate::convert::{Before, Watch};
use crate::device::{ReadAt, Resize, Size, Target, WriteAt};
use crate::error::{Error, ErrorKind, Result, invalid, limit};
use crate::image::Format;

use carrier::Carrier;
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
    Inflow::run(stream, options.unwrap, |inflow| {
        let mut window = Window::default();
        window.fill(inflow)?;
        // More often than an empty disk it is a program that has failed.
        if window.bytes().is_empty() {
            return Err(invalid("the stream is empty"));
        }
        match options.contents.format(window.bytes())? {
            Format::Raw => copy_raw(inflow, window, options.limits.disk, &mut carrier),
            Format::Qcow2 => place_qcow2(inflow, window, &options.limits, &mut carrier, watch),
        }
    })?;
    carrier.finish()
}

/// Every command that converts a stream has that option.
const LARGER: &str = "allow larger disks with --max-size";

fn copy_raw(
    inflow: &mut Inflow,
    mut window: Window,
    most: u64,
    carrier: &mut Carrier<'_>,
) -> Result<()> {
    let mut size = 0;
    loop {
        window.fill(inflow)?;
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
