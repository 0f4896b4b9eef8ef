//! The marks of an upload, which are written into its journal.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use disklet_block::device::HeldBack;
use disklet_block::error::{Error, Result};
use disklet_block::image::Format;
use disklet_block::stream::{Keeper, Mark};

use super::journal::{Filling, Journal, State};
use super::volume::{Standing, standing};

/// A mark is made after so much of the disk, or so much time, whichever is first; and
/// never for less than the least, which a device's beginning is part of.
const STEP: u64 = 256 << 20;
const BETWEEN: Duration = Duration::from_secs(2);
const LEAST: u64 = 1 << 20;

/// Keeps marks.
pub(super) struct Marks<'m> {
    journal: &'m Journal,
    /// How much of the upload came before.
    before: u64,
    held: Option<&'m HeldBack<'m>>,
    standing: &'m Mutex<Standing>,
    now: Mutex<Now>,
}

struct Now {
    filling: Filling,
    since: Instant,
    /// Whether the beginning of a device is in the journal, which does not change once it
    /// has come.
    has_beginning: bool,
}

impl<'m> Marks<'m> {
    pub(super) fn new(
        journal: &'m Journal,
        filling: Filling,
        held: Option<&'m HeldBack<'m>>,
        standing: &'m Mutex<Standing>,
    ) -> Self {
        let now = Now {
            since: Instant::now(),
            has_beginning: filling.taken > 0,
            filling,
        };
        Self {
            journal,
            before: now.filling.taken,
            held,
            standing,
            now: Mutex::new(now),
        }
    }

    /// What the journal says in the end.
    pub(super) fn last(&self) -> Filling {
        self.now().filling.clone()
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State) {
        let mut shared = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = standing(Some(state));
    }
}

impl Keeper for Marks<'_> {
    fn learns(&self, format: Format) -> Result<()> {
        let mut now = self.now();
        now.filling.is_raw = Some(format == Format::Raw);
        self.publish(&State::Filling(now.filling.clone()));
        Ok(())
    }

    fn wants(&self, mark: &Mark) -> bool {
        let now = self.now();
        let new = mark.disk.saturating_sub(now.filling.disk);
        new >= STEP || (new >= LEAST && now.since.elapsed() >= BETWEEN)
    }

    fn keep(&self, mark: &Mark) -> Result<()> {
        let unkept = |error: io::Error| Error::io("the journal cannot be written", error);
        let mut now = self.now();
        // Of a device, nothing counts before its beginning is known.
        if mark.disk.saturating_sub(now.filling.disk) < LEAST {
            return Ok(());
        }
        if let Some(held) = self.held
            && !now.has_beginning
        {
            let beginning = held.beginning();
            self.journal.write_beginning(&beginning).map_err(unkept)?;
            now.has_beginning = true;
        }
        let filling = Filling {
            is_raw: Some(true),
            taken: self.before + mark.taken,
            disk: mark.disk,
            hash: mark.followed.clone(),
            ..now.filling.clone()
        };
        let state = State::Filling(filling.clone());
        self.journal.write(&state).map_err(unkept)?;
        self.publish(&state);
        now.filling = filling;
        now.since = Instant::now();
        Ok(())
    }
}
