//! Putting what threads finish in any order back into the order of the disk.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// Takes numbered pieces from many threads and hands them on in order.
pub(super) struct InOrder<T, S> {
    state: Mutex<State<T, S>>,
    moved: Condvar,
    /// How many pieces may wait; more would only cost memory.
    most: usize,
}

struct State<T, S> {
    next: u64,
    waiting: BTreeMap<u64, T>,
    sink: S,
    failed: bool,
}

impl<T, S> InOrder<T, S> {
    pub(super) fn new(sink: S, most: usize) -> Self {
        Self {
            state: Mutex::new(State {
                next: 0,
                waiting: BTreeMap::new(),
                sink,
                failed: false,
            }),
            moved: Condvar::new(),
            most,
        }
    }

    /// Takes a piece, and hands on what has become next in line. Waits while
    /// too much waits already, unless this piece is the one waited for.
    pub(super) fn put(
        &self,
        number: u64,
        piece: T,
        mut hand_on: impl FnMut(&mut S, T) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.lock();
        while number != state.next && state.waiting.len() >= self.most && !state.failed {
            state = self
                .moved
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.failed {
            return Err(Error::new(
                ErrorKind::Cancelled,
                "another thread has failed",
            ));
        }
        state.waiting.insert(number, piece);
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let next = state.next;
            let Some(piece) = state.waiting.remove(&next) else {
                break;
            };
            state.next += 1;
            outcome = hand_on(&mut state.sink, piece);
        }
        state.failed |= outcome.is_err();
        drop(state);
        self.moved.notify_all();
        outcome
    }

    /// Ends the waiting of others: a piece will never come.
    pub(super) fn fail(&self) {
        self.lock().failed = true;
        self.moved.notify_all();
    }

    /// Gives back what took the pieces.
    pub(super) fn into_sink(self) -> S {
        self.state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .sink
    }

    fn lock(&self) -> MutexGuard<'_, State<T, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_out_in_order_from_many_threads() {
        let order = InOrder::new(Vec::new(), 2);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let order = &order;
                scope.spawn(move || {
                    for number in (thread..100).step_by(4) {
                        order
                            .put(number, number, |sink: &mut Vec<u64>, piece| {
                                sink.push(piece);
                                Ok(())
                            })
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(order.into_sink(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_failure_ends_the_waiting() {
        let order: InOrder<u64, ()> = InOrder::new((), 1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                order.put(5, 5, |(), _| Ok(())).unwrap();
                order.put(6, 6, |(), _| Ok(()))
            });
            while order.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            order.fail();
            waiting.join().unwrap().unwrap_err();
        });
    }
}
