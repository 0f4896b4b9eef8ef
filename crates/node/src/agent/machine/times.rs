//! When something has to be done without being told.

use std::time::{Duration, Instant};

/// How often the power button is pressed.
pub(super) const PRESS_AGAIN: Duration = Duration::from_secs(3);
/// How often it is looked whether there is room again, at first.
pub(super) const ROOM_AGAIN: Duration = Duration::from_secs(5);
/// And at last, where nobody can look.
pub(super) const ROOM_SELDOM: Duration = Duration::from_secs(60);
/// A guest that goes on for so long has room.
pub(super) const SETTLED: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Times {
    /// The guest has been asked to switch itself off, and has until then.
    pub(super) force: Option<Instant>,
    /// It is asked again.
    pub(super) press: Option<Instant>,
    /// A disk was full: there may be room by then.
    pub(super) retry: Option<Instant>,
    /// The guest goes on after that: by then it shows whether it can.
    pub(super) settle: Option<Instant>,
    /// It can.
    pub(super) settled: bool,
    /// How long to wait for room.
    pub(super) patience: Duration,
    /// libvirt did not say how the guest is: it may then.
    pub(super) look: Option<Instant>,
    /// The status was not taken: somebody may take it then.
    pub(super) tell: Option<Instant>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            force: None,
            press: None,
            retry: None,
            settle: None,
            settled: false,
            patience: ROOM_AGAIN,
            look: None,
            tell: None,
        }
    }
}

impl Times {
    /// How long until the next of them.
    pub(super) fn next(&self) -> Option<Duration> {
        let own = [self.force, self.press, self.retry, self.settle];
        let others = [self.look, self.tell];
        let next = own.into_iter().chain(others).flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}
