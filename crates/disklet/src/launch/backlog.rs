//! What the guest has written and nobody has read yet.
//!
//! It has an end: when it is full, the guest waits. When nothing at all was
//! read for a while, the reader is taken for dead: the guest goes on, and
//! what it wrote first is lost. How much that was is told to a reader who
//! comes back.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The console's.
#[derive(Debug)]
pub(super) struct Backlog {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    lost: u64,
    /// Nothing was read for so long that nobody waits for the reader.
    stuck: bool,
    /// The reader is gone, or nothing will come any more.
    closed: bool,
    /// The reader has taken something that it has not written yet.
    writing: bool,
}

/// A piece of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// So many bytes are missing here.
    Lost(u64),
    /// The next bytes.
    Bytes(Vec<u8>),
}

impl Backlog {
    /// For so many bytes, and a reader that moves in such a time.
    pub(super) fn new(most: usize, patience: Duration) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            most,
            patience,
        }
    }

    /// Puts bytes in, and waits for space as long as somebody reads.
    pub(super) fn put(&self, mut bytes: &[u8]) {
        let mut state = self.lock();
        while !bytes.is_empty() && !state.closed {
            let space = self.most - state.bytes.len();
            if space > 0 {
                let (now, later) = bytes.split_at(space.min(bytes.len()));
                state.bytes.extend(now);
                bytes = later;
                self.changed.notify_all();
            } else if state.stuck {
                let excess = bytes.len().min(self.most);
                state.bytes.drain(..excess);
                state.lost += excess as u64;
            } else {
                state = self.wait_for_space(state);
            }
        }
    }

    fn wait_for_space<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let full = |state: &mut State| state.bytes.len() >= self.most && !state.closed;
        let (mut state, waited) = self
            .changed
            .wait_timeout_while(state, self.patience, full)
            .unwrap_or_else(PoisonError::into_inner);
        state.stuck |= waited.timed_out();
        state
    }

    /// The next piece; waits for one. None when the end has come.
    pub(super) fn take(&self, most: usize) -> Option<Piece> {
        let state = self.lock();
        let idle = |state: &mut State| state.bytes.is_empty() && state.lost == 0 && !state.closed;
        let mut state = self
            .changed
            .wait_while(state, idle)
            .unwrap_or_else(PoisonError::into_inner);
        state.stuck = false;
        let piece = match std::mem::take(&mut state.lost) {
            0 if state.bytes.is_empty() => return None,
            0 => {
                let end = most.min(state.bytes.len());
                Piece::Bytes(state.bytes.drain(..end).collect())
            }
            lost => Piece::Lost(lost),
        };
        state.writing = true;
        self.changed.notify_all();
        Some(piece)
    }

    /// The piece that was taken is where it belongs.
    pub(super) fn written(&self) {
        self.lock().writing = false;
        self.changed.notify_all();
    }

    /// Nobody reads any more: all that comes is dropped.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.writing = false;
        state.bytes = VecDeque::new();
        self.changed.notify_all();
    }

    /// Waits until everything is written, or for so long.
    pub(super) fn drained(&self, time: Duration) -> bool {
        let busy = |state: &mut State| {
            !state.closed && (state.writing || state.lost > 0 || !state.bytes.is_empty())
        };
        let (_state, waited) = self
            .changed
            .wait_timeout_while(self.lock(), time, busy)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(20);

    fn bytes(piece: Option<Piece>) -> Vec<u8> {
        match piece {
            Some(Piece::Bytes(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn comes_out_as_it_went_in() {
        let backlog = Backlog::new(8, PATIENCE);
        backlog.put(b"abc");
        backlog.put(b"def");
        assert_eq!(bytes(backlog.take(4)), b"abcd");
        assert_eq!(bytes(backlog.take(4)), b"ef");
    }

    #[test]
    fn a_writer_waits_for_a_reader_that_moves() {
        let backlog = Backlog::new(8, Duration::from_secs(60));
        let sent: Vec<u8> = (0..=255).collect();
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| backlog.put(&sent));
            while seen.len() < sent.len() {
                seen.extend(bytes(backlog.take(3)));
                backlog.written();
            }
        });
        assert_eq!(seen, sent);
    }

    #[test]
    fn without_a_reader_the_oldest_goes_and_is_counted() {
        let backlog = Backlog::new(8, PATIENCE);
        backlog.put(b"0123456789");
        backlog.put(b"abcd");
        assert_eq!(backlog.take(100), Some(Piece::Lost(6)));
        assert_eq!(bytes(backlog.take(100)), b"6789abcd");
        let long: Vec<u8> = (0..100).collect();
        backlog.put(&long);
        assert_eq!(backlog.take(100), Some(Piece::Lost(92)));
        assert_eq!(bytes(backlog.take(100)), &long[92..]);
    }

    #[test]
    fn a_dead_reader_is_waited_for_once() {
        let backlog = Backlog::new(8, Duration::from_millis(200));
        backlog.put(b"01234567");
        let start = std::time::Instant::now();
        for _ in 0..50 {
            backlog.put(b"x");
        }
        assert!(start.elapsed() < Duration::from_secs(2));
        assert_eq!(backlog.take(100), Some(Piece::Lost(50)));
    }

    #[test]
    fn drained_means_written() {
        let backlog = Backlog::new(8, PATIENCE);
        backlog.put(b"a");
        assert!(!backlog.drained(PATIENCE));
        backlog.take(8);
        assert!(!backlog.drained(PATIENCE));
        backlog.written();
        assert!(backlog.drained(PATIENCE));
    }

    #[test]
    fn what_nobody_can_read_is_dropped() {
        let backlog = Backlog::new(8, Duration::from_secs(60));
        backlog.put(b"a");
        backlog.close();
        backlog.put(b"0123456789");
        assert!(backlog.drained(PATIENCE));
        assert_eq!(backlog.take(8), None);
    }
}
