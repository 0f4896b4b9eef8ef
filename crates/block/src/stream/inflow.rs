//! A thread that reads and unwraps, so that placing and unpacking go on
//! meanwhile.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::decode::{Decoder, Restart};
use super::parts::{ALIGNED, Mark};
use crate::error::Result;

/// How much is handed over at once, and how often that is held in memory.
const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 3;

struct Chunk {
    bytes: Vec<u8>,
    length: usize,
    restart: Option<Restart>,
}

/// The unwrapped bytes, as they come.
pub(super) struct Inflow {
    full: Receiver<Result<Chunk>>,
    empty: SyncSender<Vec<u8>>,
    current: Option<Chunk>,
    /// How much of the current chunk has been taken.
    taken: usize,
    /// How many bytes have been taken of all chunks before.
    passed: u64,
    /// Where a decoder can begin, of the chunks that have come.
    marks: VecDeque<Mark>,
}

impl Inflow {
    /// Reads the stream on a thread of its own, by a decoder that is made there, while
    /// `work` takes from it.
    pub(super) fn run<'f, R: Read + Send, T>(
        decoder: impl FnOnce() -> Result<Decoder<'f, R>> + Send,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let (give_full, full) = sync_channel(CHUNKS);
        let (empty, take_empty) = sync_channel(CHUNKS);
        for _ in 0..CHUNKS {
            // There is room for as many, so that this cannot fail.
            let _ = empty.try_send(vec![0; CHUNK]);
        }
        std::thread::scope(|scope| {
            scope.spawn(move || pump(decoder, &give_full, &take_empty));
            let mut inflow = Self {
                full,
                empty,
                current: None,
                taken: 0,
                passed: 0,
                marks: VecDeque::new(),
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
                    Ok(chunk) => {
                        let mut chunk = chunk?;
                        self.note(chunk.restart.take());
                        self.current = Some(chunk);
                    }
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
                self.passed += chunk.length as u64;
                // The thread may have ended.
                let _ = self.empty.try_send(chunk.bytes);
            }
        }
        Ok(filled)
    }

    fn note(&mut self, restart: Option<Restart>) {
        let Some(restart) = restart else { return };
        let disk = self.passed + restart.within as u64;
        if disk.is_multiple_of(ALIGNED) {
            self.marks.push_back(Mark {
                taken: restart.taken,
                disk,
                followed: restart.followed,
            });
        }
    }

    /// The last mark of those within so many unwrapped bytes; it and those before are
    /// forgotten.
    pub(super) fn mark_within(&mut self, bytes: u64) -> Option<Mark> {
        let mut last = None;
        while self.marks.front().is_some_and(|mark| mark.disk <= bytes) {
            last = self.marks.pop_front();
        }
        last
    }
}

fn pump<'f, R: Read>(
    decoder: impl FnOnce() -> Result<Decoder<'f, R>>,
    full: &SyncSender<Result<Chunk>>,
    empty: &Receiver<Vec<u8>>,
) {
    let mut decoder = match decoder() {
        Ok(decoder) => decoder,
        Err(error) => {
            let _ = full.send(Err(error));
            return;
        }
    };
    for mut bytes in empty {
        let chunk = match decoder.read(&mut bytes) {
            Ok(0) => return,
            Ok(length) => Ok(Chunk {
                bytes,
                length,
                restart: decoder.restart(),
            }),
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        if full.send(chunk).is_err() || failed {
            return;
        }
    }
}
