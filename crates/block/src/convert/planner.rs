//! Hands out what is left to copy.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::rooms::{LIKELY, Rooms};
use super::{Tally, Watch};
use crate::device::{Allocation, Source, Target};
use crate::error::{Error, ErrorKind, Result};
use crate::image::{Image, Place};
use crate::sys;
use crate::zero::BLOCK;

/// How much a worker takes at once: large enough for few requests, small
/// enough to share work evenly and to keep memory low.
pub(super) const CHUNK: u64 = 2 << 20;

/// Knows how far the copy has come.
pub(super) struct Planner<'c> {
    image: &'c Image,
    zeroes: Zeroes<'c>,
    size: u64,
    watch: &'c dyn Watch,
    tally: &'c Tally,
    /// Where space is set aside for what comes next, if anywhere.
    rooms: Option<&'c Rooms<'c>>,
    state: Mutex<State<'c>>,
    failed: AtomicBool,
}

/// What becomes of zeroes.
pub(super) enum Zeroes<'c> {
    /// Nothing has to be done for them.
    Skip,
    /// They are written there.
    Write(&'c dyn Target),
}

struct State<'c> {
    next: u64,
    /// The number of the next chunk.
    number: u64,
    /// The target's file, as long as sharing has not failed.
    share_into: Option<&'c File>,
    /// Up to where space was set aside.
    room_until: u64,
}

impl<'c> Planner<'c> {
    pub(super) fn new(
        image: &'c Image,
        size: u64,
        zeroes: Zeroes<'c>,
        share_into: Option<&'c File>,
        watch: &'c dyn Watch,
        tally: &'c Tally,
    ) -> Self {
        Self {
            image,
            zeroes,
            size,
            watch,
            tally,
            rooms: None,
            state: Mutex::new(State {
                next: 0,
                number: 0,
                share_into,
                room_until: 0,
            }),
            failed: AtomicBool::new(false),
        }
    }

    /// Has space set aside before it hands out chunks.
    pub(super) fn setting_aside(self, rooms: Option<&'c Rooms<'c>>) -> Self {
        Self { rooms, ..self }
    }

    /// Whether a worker has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// A failure of one worker ends the others.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn done(&self, bytes: u64) {
        self.watch.advance(bytes);
    }

    /// Whether anything is left for workers; all that needs none is done.
    pub(super) fn has_work(&self) -> Result<bool> {
        self.reach_data(&mut self.lock())
    }

    /// The next chunk that has bytes to copy, with its number, or nothing at
    /// the end.
    pub(super) fn next(&self) -> Result<Option<(u64, Range<u64>)>> {
        let mut state = self.lock();
        Ok(self.reach_data(&mut state)?.then(|| self.cut(&mut state)))
    }

    fn lock(&self) -> MutexGuard<'_, State<'c>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes past zeroes and what can be shared. Whether bytes to copy were
    /// reached before the end.
    fn reach_data(&self, state: &mut State<'c>) -> Result<bool> {
        while state.next < self.size && !self.has_failed() {
            if self.watch.cancelled() {
                return Err(Error::new(ErrorKind::Cancelled, "stopped on request"));
            }
            let at = state.next;
            let located = self.image.locate(at, self.size - at)?;
            let done = match located.place {
                Place::Nowhere | Place::Zero { .. } => {
                    self.zero(at, located.length)?;
                    located.length
                }
                Place::Plain { device, offset } => {
                    match self.share(state, device, offset, located.length) {
                        0 => {
                            self.make_room(state, located.length)?;
                            return Ok(true);
                        }
                        shared => shared,
                    }
                }
                Place::Packed { .. } => {
                    // How long such runs are is not known; as a rule they are long.
                    self.make_room(state, LIKELY.min(self.size - at))?;
                    return Ok(true);
                }
            };
            state.next += done;
            self.done(done);
        }
        Ok(false)
    }

    /// How much of what comes next now shares its blocks with a device.
    fn share(&self, state: &mut State<'_>, from: &dyn Source, offset: u64, length: u64) -> u64 {
        let Some((into, from)) = state.share_into.zip(from.shareable_file()) else {
            return 0;
        };
        match share(from, offset, into, state.next, length, self.size) {
            Ok(shared) => {
                self.tally.shared.fetch_add(shared, Ordering::Relaxed);
                shared
            }
            Err(_) => {
                state.share_into = None;
                0
            }
        }
    }

    fn make_room(&self, state: &mut State<'_>, length: u64) -> Result<()> {
        if let Some(rooms) = self.rooms.filter(|_| state.next >= state.room_until) {
            state.room_until = rooms.make(state.next..state.next + length)?;
        }
        Ok(())
    }

    fn cut(&self, state: &mut State<'_>) -> (u64, Range<u64>) {
        let start = state.next;
        let end = (start / CHUNK + 1).saturating_mul(CHUNK).min(self.size);
        state.next = end;
        state.number += 1;
        (state.number - 1, start..end)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<()> {
        self.tally.zero.fetch_add(length, Ordering::Relaxed);
        match self.zeroes {
            Zeroes::Skip => {
                if let Some(rooms) = self.rooms {
                    rooms.leave_empty(offset..offset + length);
                }
                Ok(())
            }
            Zeroes::Write(target) => target.write_zeroes(offset, length, Allocation::Free),
        }
    }
}

/// Shares as much of a run as is aligned; the end of a disk need not be.
/// Returns how much it was.
fn share(
    from: &File,
    offset: u64,
    into: &File,
    at: u64,
    length: u64,
    size: u64,
) -> std::io::Result<u64> {
    let block = BLOCK as u64;
    if !offset.is_multiple_of(block) || !at.is_multiple_of(block) {
        return Ok(0);
    }
    let reaches_end = at + length == size;
    let aligned = length / block * block;
    // The end of a file need not be aligned, but both files must end there.
    let length = if reaches_end && aligned == length {
        length
    } else {
        aligned
    };
    if length > 0 {
        sys::clone_range(from, offset, length, into, at)?;
    }
    Ok(length)
}
