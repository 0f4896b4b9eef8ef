//! What a user has typed, on its way to the guest.
//!
//! While a guest does not read, libvirt keeps whoever sends waiting, asked or
//! not. So a thread of its own waits, and all others go on; nor does anything but
//! the console depend on its connection.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use virt::stream::Stream;

/// What stream calls return when they would have to wait.
pub(super) const WOULD_WAIT: isize = -2;

/// How much may be on its way.
const MOST: usize = 1 << 20;

/// How much is sent at once.
const PIECE: usize = 1024;

pub(super) struct Feed {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: VecDeque<u8>,
    /// Some more are just being sent.
    sending: bool,
    /// Something was sent.
    used: bool,
    /// Nobody takes any more.
    failed: bool,
    /// No more will come.
    ended: bool,
}

impl Feed {
    /// One, and the thread that sends.
    pub(super) fn begin(stream: Stream) -> (Arc<Self>, JoinHandle<()>) {
        let feed = Arc::new(Self {
            waiting: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&feed);
        let sender = std::thread::spawn(move || own.send_all(&stream));
        (feed, sender)
    }

    /// Has these sent; how many there was room for.
    pub(super) fn take(&self, bytes: &[u8]) -> usize {
        let mut waiting = self.waiting();
        let taken = bytes.len().min(MOST - waiting.bytes.len());
        waiting.bytes.extend(&bytes[..taken]);
        self.changed.notify_all();
        taken
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting().bytes.len() >= MOST
    }

    /// Whether all is sent.
    pub(super) fn is_done(&self) -> bool {
        let waiting = self.waiting();
        waiting.bytes.is_empty() && !waiting.sending
    }

    /// Whether anything was sent.
    pub(super) fn was_used(&self) -> bool {
        self.waiting().used
    }

    pub(super) fn has_failed(&self) -> bool {
        self.waiting().failed
    }

    /// Sends no more than what is being sent.
    pub(super) fn end(&self) {
        self.waiting().ended = true;
        self.changed.notify_all();
    }

    fn send_all(&self, stream: &Stream) {
        while let Some(piece) = self.next_piece() {
            let sent = send(stream, &piece);
            let mut waiting = self.waiting();
            waiting.sending = false;
            if !sent {
                waiting.failed = true;
                return;
            }
        }
    }

    fn next_piece(&self) -> Option<Vec<u8>> {
        let mut waiting = self.waiting();
        loop {
            if waiting.ended {
                return None;
            }
            if !waiting.bytes.is_empty() {
                break;
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let length = waiting.bytes.len().min(PIECE);
        (waiting.used, waiting.sending) = (true, true);
        Some(waiting.bytes.drain(..length).collect())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        let waiting = self.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends all of it; whether that worked.
fn send(stream: &Stream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match stream.send(bytes) {
            Ok(WOULD_WAIT) => std::thread::sleep(Duration::from_millis(20)),
            Ok(length) => bytes = &bytes[usize::try_from(length).unwrap_or(0).min(bytes.len())..],
            Err(_) => return false,
        }
    }
    true
}
