//! When a server is asked again, and after how long.

use std::io;
use std::time::{Duration, Instant};

use super::Client;
use super::answer::Answer;
use super::client::Rest;
use crate::pull::{Observer, PullError, PullErrorKind};
use crate::report::with_causes;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// A server that cannot answer now is asked again; one that cannot be reached
/// at all is told of at once: more often than not the name is wrong.
pub(super) fn first_answer(
    client: &Client,
    rest: Option<Rest<'_>>,
    retries: u32,
    observer: &dyn Observer,
) -> Result<Answer, PullError> {
    let mut tries = 0;
    loop {
        match client.get(rest) {
            // The file is shorter than what we have of it.
            Err(error) if error.kind() == PullErrorKind::Changed && rest.is_some() => {
                return client.get(None);
            }
            Err(error)
                if error.kind() == PullErrorKind::Busy
                    && tries < retries
                    && !observer.cancelled() =>
            {
                observer.notice(&format!("{}; trying again", with_causes(&error)));
                tries += 1;
                pause(tries, observer);
            }
            outcome => return outcome,
        }
    }
}

/// Waits, longer each time.
pub(super) fn pause(attempt: u32, observer: &dyn Observer) {
    let times = 1 << attempt.saturating_sub(1).min(16);
    let end = Instant::now() + (FIRST_PAUSE * times).min(LONGEST_PAUSE);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if observer.cancelled() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// How a connection was lost, in a user's words.
pub(super) fn in_words(error: &io::Error) -> String {
    let timeout = |error: &ureq::Error| matches!(error, ureq::Error::Timeout(_));
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    if inner.is_some_and(timeout) || error.kind() == io::ErrorKind::TimedOut {
        "nothing came any more".to_owned()
    } else if error.kind() == io::ErrorKind::UnexpectedEof {
        "the connection was lost".to_owned()
    } else {
        format!("the connection was lost ({error})")
    }
}
