//! What is known about bytes of the file that are still to come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::piece::Piece;

/// How many pieces may be awaited at once: 3 MiB, and as much as 16 full
/// tables of an image with usual clusters, each cluster elsewhere.
const MOST: usize = 1 << 17;

/// A piece of the disk whose bytes are still to come, in its smallest form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Awaited {
    host: u64,
    guest: u64,
    length: u32,
    /// Nothing for plain bytes.
    packed: u32,
}

/// Pieces in the order in which they will come.
#[derive(Debug)]
pub(super) struct Expected {
    heap: BinaryHeap<Reverse<Awaited>>,
    most: usize,
}

impl Default for Expected {
    fn default() -> Self {
        Self::at_most(MOST)
    }
}

impl Expected {
    pub(super) fn at_most(most: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            most,
        }
    }

    /// How many more pieces can be awaited.
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.heap.len())
    }

    /// Zeroes are not awaited.
    pub(super) fn push(&mut self, piece: Piece) {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (host, guest, length, packed) = match piece {
            Piece::Zero { .. } => return,
            Piece::Plain {
                guest,
                host,
                length,
            } => (host, guest, length, 0),
            Piece::Packed {
                guest,
                host,
                packed,
                length,
            } => (host, guest, length, packed),
        };
        self.heap.push(Reverse(Awaited {
            host,
            guest,
            length: small(length),
            packed: small(packed),
        }));
    }

    /// The next piece that begins before an offset of the file.
    pub(super) fn pop_before(&mut self, end: u64) -> Option<Piece> {
        let next = self.heap.peek().filter(|next| next.0.host < end)?.0;
        self.heap.pop();
        Some(next.into())
    }

    /// Where the next piece begins in the file.
    pub(super) fn next_host(&self) -> Option<u64> {
        self.heap.peek().map(|next| next.0.host)
    }
}

impl From<Awaited> for Piece {
    fn from(awaited: Awaited) -> Self {
        let Awaited { host, guest, .. } = awaited;
        let length = awaited.length.into();
        match awaited.packed {
            0 => Self::Plain {
                guest,
                host,
                length,
            },
            packed => Self::Packed {
                guest,
                host,
                packed: packed.into(),
                length,
            },
        }
    }
}
