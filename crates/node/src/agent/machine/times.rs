//! When something has to be done without being told.

use std::time::{Duration, Instant};

use disklet_core::launch::grace::of_guest;

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
    /// When that was, unless its launcher was told more than once: who asks twice is in a
    /// hurry.
    pub(super) asked: Option<Instant>,
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
    /// The servers of the guest's disks are asked.
    pub(super) ask: Option<Instant>,
    /// The VM object has changed, or something about its disks did not work.
    pub(super) follow: Option<Instant>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            force: None,
            asked: None,
            press: None,
            retry: None,
            settle: None,
            settled: false,
            patience: ROOM_AGAIN,
            look: None,
            tell: None,
            ask: None,
            follow: None,
        }
    }
}

impl Times {
    /// A launcher was told to end, and leaves its guest so long. Its pod knows better how
    /// long it has, if somebody deletes it.
    pub(super) fn stop(&mut self, launchers: Duration, pods: Option<Duration>) {
        let now = Instant::now();
        match self.force {
            None => {
                self.asked = Some(now);
                self.force = Some(now + pods.map_or(launchers, of_guest));
            }
            Some(force) => {
                self.asked = None;
                self.force = Some(force.min(now + launchers));
            }
        }
    }

    /// How long its pod has is known only now, or is otherwise than it was.
    pub(super) fn has_until(&mut self, pods: Option<Duration>) {
        if let (Some(asked), Some(grace)) = (self.asked, pods) {
            self.force = Some(asked + of_guest(grace));
        }
    }

    /// A disk is full. Where nobody can look whether there is room, one can only try.
    pub(super) fn disk_full(&mut self) {
        self.settled = false;
        if self.settle.take().is_some() {
            self.patience = (self.patience * 2).min(ROOM_SELDOM);
        }
        let patience = self.patience;
        self.retry.get_or_insert(Instant::now() + patience);
    }

    /// The guest runs, after a disk `was_full` or not: whether it only goes on to see
    /// whether it can.
    pub(super) fn is_settling(&mut self, was_full: bool) -> bool {
        self.retry = None;
        if was_full && !std::mem::take(&mut self.settled) {
            self.settle.get_or_insert(Instant::now() + SETTLED);
            return true;
        }
        self.patience = ROOM_AGAIN;
        false
    }

    /// It is time to see whether it can.
    pub(super) fn settle_now(&mut self) {
        self.settle = None;
        self.settled = true;
    }

    /// How long until the next of them.
    pub(super) fn next(&self) -> Option<Duration> {
        let own = [self.force, self.press, self.retry, self.settle];
        let others = [self.look, self.tell, self.ask, self.follow];
        let next = own.into_iter().chain(others).flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_that_a_disk_is_full_is_as_the_first() {
        let mut times = Times::default();
        for _ in 0..9 {
            times.disk_full();
            assert!(times.is_settling(true));
        }
        times.disk_full();
        assert_eq!(times.patience, ROOM_SELDOM);
        assert!(times.is_settling(true));
        times.settle_now();
        assert!(!times.is_settling(true));
        assert_eq!(times.patience, ROOM_AGAIN);
        assert_eq!(times.retry, None);
    }

    #[test]
    fn a_guest_has_the_time_that_its_pod_has() {
        let seconds = Duration::from_secs;
        let left = |times: &Times| {
            let force = times.force.unwrap();
            force
                .saturating_duration_since(Instant::now())
                .as_secs_f32()
                .round()
        };
        let mut times = Times::default();
        times.stop(seconds(25), None);
        assert_eq!(left(&times), 25.0);
        // Whoever deletes the pod leaves it more, and then less.
        for (pods, guests) in [(600, 595.0), (4, 2.0), (40, 35.0)] {
            times.has_until(Some(seconds(pods)));
            assert_eq!(left(&times), guests);
        }
        times.stop(seconds(5), Some(seconds(40)));
        assert_eq!(left(&times), 5.0);
        times.has_until(Some(seconds(40)));
        assert_eq!(left(&times), 5.0);
        let mut times = Times::default();
        times.stop(seconds(1), Some(seconds(40)));
        assert_eq!(left(&times), 35.0);
    }

    #[test]
    fn a_guest_that_is_stopped_just_as_it_settles_has_to_settle_again() {
        let mut times = Times::default();
        times.disk_full();
        assert!(times.is_settling(true));
        times.settle_now();
        times.disk_full();
        assert!(times.is_settling(true));
    }
}
