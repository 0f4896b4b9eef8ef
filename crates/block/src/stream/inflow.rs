//! A thread that reads and unwraps, so that placing and unpacking go on
//! meanwhile.

use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::decode::{Decoder, Unwrap};
use crate::error::Result;

/// How much is handed over at once, and how often that is held in memory.
const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 3;

struct Chunk {
    bytes: Vec<u8>,
    length: usize,
}

/// The unwrapped bytes, as they come.
pub(super) struct Inflow {
    full: Receiver<Result<Chunk>>,
    empty: SyncSender<Vec<u8>>,
    current: Option<Chunk>,
    /// How much of the current chunk has been taken.
    taken: usize,
}

impl Inflow {
    /// Reads the stream on a thread of its own while `work` takes from it.
    pub(super) fn run<T>(
        stream: impl Read + Send,
        unwrap: Unwrap,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let (give_full, full) = sync_channel(CHUNKS);
        let (empty, take_empty) = sync_channel(CHUNKS);
        for _ in 0..CHUNKS {
            // There is room for as many, so that this cannot fail.
            let _ = empty.try_send(vec![0; CHUNK]);
        }
        std::thread::scope(|scope| {
            scope.spawn(move || pump(stream, unwrap, &give_full, &take_empty));
            let mut inflow = Self {
                full,
                empty,
                current: None,
                taken: 0,
            };
            // The inflow ends with this block, and the thread with it.
            work(&mut inflow)
        })
    }

    /// Fills the buffer; it stays shorter only at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let Some(chunk) = &self.current else {
                match self.full.recv() {
                    Ok(chunk) => self.current = Some(chunk?),
                    Err(_) => break,
                }
                self.taken = 0;
                continue;
            };
            let rest = &chunk.bytes[self.taken..chunk.length];
            let length = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + length].copy_from_slice(&rest[..length]);
            filled += length;
            self.taken += length;
            if length == rest.len()
                && let Some(chunk) = self.current.take()
            {
                // The thread may have ended.
                let _ = self.empty.try_send(chunk.bytes);
            }
        }
        Ok(filled)
    }
}

fn pump(
    stream: impl Read,
    unwrap: Unwrap,
    full: &SyncSender<Result<Chunk>>,
    empty: &Receiver<Vec<u8>>,
) {
    let mut decoder = match Decoder::new(stream, unwrap) {
        Ok(decoder) => decoder,
        Err(error) => {
            let _ = full.send(Err(error));
            return;
        }
    };
    for mut bytes in empty {
        let chunk = match decoder.read(&mut bytes) {
            Ok(0) => return,
            Ok(length) => Ok(Chunk { bytes, length }),
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        if full.send(chunk).is_err() || failed {
            return;
        }
    }
}
