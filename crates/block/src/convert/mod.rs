//! Copying a disk: from any image, with all that is below it, to a raw target.
//!
//! ```text
//!   planner (under a lock): skips zeroes, shares whole runs where the
//!        |                  filesystem can, cuts the rest into chunks
//!        v
//!   workers: read a chunk's pieces, unpack, find zeroes, write
//! ```
//!
//! Chunks are written in any order. Memory is a few MiB a thread, whatever the
//! size of the image, and there are no more threads than fit a limit.

mod budget;
mod order;
mod packer;
mod planner;
mod qcow2;
mod reader;
mod rooms;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Size, Target};
use crate::error::{Error, ErrorKind, Result, invalid};
use crate::image::Image;
pub use budget::fitting_threads;
pub use qcow2::{Packing, to_qcow2};

use planner::{Planner, Zeroes};
use rooms::Rooms;
use worker::Worker;

/// How to copy.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many threads work, at least one; fewer if memory has no room for
    /// their buffers.
    pub threads: usize,
    /// What the target reads as before.
    pub target: Before,
    /// Whether blocks may be shared with the source instead of being copied.
    pub share: bool,
}

/// What a target reads as before it is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Zeroes, as a new file does: zeroes need not be written.
    Zeroes,
    /// Zeroes whose space was set aside, and stays so.
    KeptZeroes,
    /// Anything: zeroes are written as well.
    Anything,
}

/// Whoever watches a copy, and may end it.
pub trait Watch: Sync {
    /// So many more bytes of the disk are done.
    fn advance(&self, bytes: u64);
    /// Whether to stop.
    fn cancelled(&self) -> bool;
}

/// Nobody watches.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn advance(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// What became of the bytes of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Share their blocks with the source.
    pub shared: u64,
    /// Were written.
    pub written: u64,
    /// Were zeroes.
    pub zero: u64,
}

/// Counts what threads have done.
#[derive(Debug, Default)]
struct Tally {
    shared: AtomicU64,
    written: AtomicU64,
    zero: AtomicU64,
}

/// Copies the whole disk to the beginning of the target, and makes it
/// durable. The target is at least as large.
pub fn to_raw(
    image: &Image,
    target: &dyn Target,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Report> {
    let size = image.size()?;
    if target.size()? < size {
        return Err(invalid("the target is smaller than the disk"));
    }
    let tally = Tally::default();
    let zeroes = match options.target {
        Before::Zeroes | Before::KeptZeroes => Zeroes::Skip,
        Before::Anything => Zeroes::Write(target),
    };
    let share_into = if options.share {
        target.shareable_file()
    } else {
        None
    };
    let rooms = (options.target == Before::Zeroes).then(|| Rooms::of(target));
    let planner = Planner::new(image, size, zeroes, share_into, watch, &tally);
    let planner = planner.setting_aside(rooms.as_ref());
    if planner.has_work()? {
        on_threads(budget::copying(options.threads, image), || {
            Worker::new(image, target, options.target, &tally, rooms.as_ref()).run(&planner)
        })?;
    }
    rooms.as_ref().map_or(Ok(()), Rooms::give_back)?;
    image.demand_whole()?;
    target.flush()?;
    Ok(tally.report())
}

/// Runs the same work on several threads; the first failure is the outcome.
fn on_threads(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        let mut outcome = work();
        for thread in others {
            let result = thread.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Io, "a copying thread has panicked"))
            });
            outcome = outcome.and(result);
        }
        outcome
    })
}

impl Tally {
    fn report(&self) -> Report {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Report {
            shared: count(&self.shared),
            written: count(&self.written),
            zero: count(&self.zero),
        }
    }
}
