//! Copies chunks to a raw target.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::planner::Planner;
use super::reader::ChunkReader;
use super::rooms::Rooms;
use super::{Before, Tally};
use crate::device::{Allocation, Target};
use crate::error::Result;
use crate::image::Image;
use crate::zero::data_runs;

/// One thread's share of a copy.
pub(super) struct Worker<'c> {
    reader: ChunkReader<'c>,
    writer: ChunkWriter<'c>,
}

struct ChunkWriter<'c> {
    target: &'c dyn Target,
    before: Before,
    tally: &'c Tally,
    rooms: Option<&'c Rooms<'c>>,
}

impl<'c> Worker<'c> {
    pub(super) fn new(
        image: &'c Image,
        target: &'c dyn Target,
        before: Before,
        tally: &'c Tally,
        rooms: Option<&'c Rooms<'c>>,
    ) -> Self {
        Self {
            reader: ChunkReader::new(image),
            writer: ChunkWriter {
                target,
                before,
                tally,
                rooms,
            },
        }
    }

    pub(super) fn run(mut self, planner: &Planner<'_>) -> Result<()> {
        let outcome = self.copy_all(planner);
        if outcome.is_err() {
            planner.fail();
        }
        outcome
    }

    fn copy_all(&mut self, planner: &Planner<'_>) -> Result<()> {
        while let Some((_, chunk)) = planner.next()? {
            let bytes = self.reader.read(&chunk)?;
            self.writer.write(&chunk, bytes)?;
            planner.done(chunk.end - chunk.start);
        }
        Ok(())
    }
}

impl ChunkWriter<'_> {
    fn write(&self, chunk: &Range<u64>, bytes: &[u8]) -> Result<()> {
        let mut at = 0;
        for run in data_runs(bytes) {
            self.zero(chunk.start + at as u64, (run.start - at) as u64)?;
            let offset = chunk.start + run.start as u64;
            self.target.write_at(&bytes[run.clone()], offset)?;
            self.tally
                .written
                .fetch_add(run.len() as u64, Ordering::Relaxed);
            at = run.end;
        }
        self.zero(chunk.start + at as u64, (bytes.len() - at) as u64)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<()> {
        self.tally.zero.fetch_add(length, Ordering::Relaxed);
        match self.before {
            Before::Zeroes | Before::KeptZeroes => {
                if let Some(rooms) = self.rooms.filter(|_| length > 0) {
                    rooms.leave_empty(offset..offset + length);
                }
                Ok(())
            }
            Before::Anything => self.target.write_zeroes(offset, length, Allocation::Free),
        }
    }
}
