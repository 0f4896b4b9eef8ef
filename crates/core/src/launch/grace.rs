//! Of the time that a pod has to end, what its guest may have.

use std::time::Duration;

/// What remains for the end by force and for releasing.
const FOR_FORCE: Duration = Duration::from_secs(5);

/// Of a pod's grace, what its guest may have.
#[must_use]
pub fn of_guest(grace: Duration) -> Duration {
    grace - FOR_FORCE.min(grace / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn force_has_five_seconds_or_half() {
        for (pod, guest) in [(30, 25), (3600, 3595), (10, 5), (4, 2), (0, 0)] {
            let seconds = Duration::from_secs;
            assert_eq!(of_guest(seconds(pod)), seconds(guest));
        }
    }
}
