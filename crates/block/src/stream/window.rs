//! The bytes of a stream that are looked at now.

use super::inflow::Inflow;
use crate::error::Result;
use crate::sys::AlignedBuffer;

/// Four of the largest clusters; memory that is not used is not taken.
const CAPACITY: usize = 8 << 20;
/// What is used of it with small clusters, and to begin with: the largest
/// cluster, which a header can take.
const USUAL: usize = 2 << 20;

/// A stretch of the stream.
pub(super) struct Window {
    buffer: AlignedBuffer,
    filled: usize,
    used: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            buffer: AlignedBuffer::zeroed(CAPACITY),
            filled: 0,
            used: USUAL,
        }
    }
}

impl Window {
    /// Whoever looks needs so many bytes at once, and some more to make
    /// progress in larger steps.
    pub(super) fn make_room_for(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(CAPACITY);
        self.used = (bytes + bytes / 3).clamp(USUAL, CAPACITY);
    }

    /// Reads behind what is there. Returns whether the stream has ended.
    pub(super) fn fill(&mut self, inflow: &mut Inflow) -> Result<bool> {
        let room = &mut self.buffer[self.filled..self.used];
        let wanted = room.len();
        let read = inflow.read(room)?;
        self.filled += read;
        Ok(read < wanted)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Drops bytes from the front.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.buffer.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }
}
