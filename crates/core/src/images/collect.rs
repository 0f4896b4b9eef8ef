//! Which images a node gives up when it gets full: those that nobody has used for
//! longest, and no more than it has to.

use std::time::Duration;

use crate::names::Sha256;

/// When images that no VM uses are given up. The defaults are the kubelet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageGc {
    /// From so many percent of the store's filesystem on, some go; 100: never.
    pub high_percent: u8,
    /// Down to so many.
    pub low_percent: u8,
    /// After so long without a use they go, whatever room there is.
    pub max_age: Option<Duration>,
}

impl Default for ImageGc {
    fn default() -> Self {
        Self {
            high_percent: 85,
            low_percent: 80,
            max_age: None,
        }
    }
}

impl ImageGc {
    /// What was used a moment ago is about to be used again.
    pub const MIN_AGE: Duration = Duration::from_mins(2);

    /// How many bytes are to be freed, if the filesystem is fuller than it may be.
    #[must_use]
    pub fn excess(&self, room: Room) -> Option<u64> {
        let part = |percent: u8| u128::from(room.size) * u128::from(percent) / 100;
        let used = u128::from(room.size.saturating_sub(room.free));
        let excess = used.saturating_sub(part(self.low_percent));
        let is_over = self.high_percent < 100 && used >= part(self.high_percent);
        let is_over = is_over && room.size > 0;
        is_over.then(|| u64::try_from(excess).unwrap_or(u64::MAX))
    }

    /// Which of these go, if so many bytes are to be freed.
    #[must_use]
    pub fn chosen(&self, mut unused: Vec<Unused>, excess: Option<u64>) -> Vec<Unused> {
        unused.retain(|image| image.since >= Self::MIN_AGE);
        unused.sort_by_key(|image| (std::cmp::Reverse(image.since), image.digest));
        let mut left = excess.unwrap_or(0);
        unused.retain(|image| {
            let is_old = self.max_age.is_some_and(|most| image.since > most);
            let goes = is_old || left > 0;
            if goes {
                left = left.saturating_sub(image.bytes);
            }
            goes
        });
        unused
    }
}

/// The room on a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub size: u64,
    /// What can still be written.
    pub free: u64,
}

/// An image that nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unused {
    /// Which.
    pub digest: Sha256,
    /// What it takes.
    pub bytes: u64,
    /// For how long.
    pub since: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    fn image(number: u8, hours: u64) -> Unused {
        Unused {
            digest: Sha256::from_bytes([number; 32]),
            bytes: 10,
            since: Duration::from_secs(hours * HOUR),
        }
    }

    fn went(gc: ImageGc, excess: Option<u64>, unused: &[Unused]) -> Vec<u8> {
        let chosen = gc.chosen(unused.to_vec(), excess);
        chosen.iter().map(|image| image.digest.bytes()[0]).collect()
    }

    #[test]
    fn room_is_made_from_the_high_mark_down_to_the_low_one() {
        let gc = ImageGc::default();
        let excess = |free| gc.excess(Room { size: 1000, free });
        assert_eq!(excess(1000), None);
        assert_eq!(excess(151), None);
        assert_eq!(excess(150), Some(50));
        assert_eq!(excess(0), Some(200));
        assert_eq!(gc.excess(Room { size: 0, free: 0 }), None);
        let never = ImageGc {
            high_percent: 100,
            ..gc
        };
        assert_eq!(never.excess(Room { size: 9, free: 0 }), None);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_no_more_than_has_to() {
        let unused = [image(1, 3), image(2, 9), image(3, 6), image(4, 0)];
        let gc = ImageGc::default();
        assert_eq!(went(gc, None, &unused), [] as [u8; 0]);
        assert_eq!(went(gc, Some(11), &unused), [2, 3]);
        // What was used a moment ago stays.
        assert_eq!(went(gc, Some(1000), &unused), [2, 3, 1]);
    }

    #[test]
    fn what_is_too_old_goes_in_any_case() {
        let gc = ImageGc {
            max_age: Some(Duration::from_secs(5 * HOUR)),
            ..ImageGc::default()
        };
        let unused = [image(1, 3), image(2, 9), image(3, 6)];
        assert_eq!(went(gc, None, &unused), [2, 3]);
        assert_eq!(went(gc, Some(21), &unused), [2, 3, 1]);
    }
}
