//! xz: streams one after the other, with padding between them.

use liblzma::stream::{Action, CONCATENATED, Error as LzmaError, Status, Stream};

use super::{Codec, Step};
use crate::error::{Error, Result, corrupt, limit};

/// A dictionary of 32 MiB and what the decoder needs beside it.
const MEMORY: u64 = (32 << 20) + (1 << 20);

pub(super) struct Xz {
    stream: Stream,
    ended: bool,
}

impl Xz {
    pub(super) fn new() -> Result<Self> {
        let stream = Stream::new_stream_decoder(MEMORY, CONCATENATED).map_err(failure)?;
        Ok(Self {
            stream,
            ended: false,
        })
    }
}

impl Codec for Xz {
    fn decode(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Result<Step> {
        if self.ended {
            return Ok(Step {
                read: 0,
                written: 0,
            });
        }
        let before = (self.stream.total_in(), self.stream.total_out());
        // Only with the last bytes is it known that no further stream follows.
        let action = if last { Action::Finish } else { Action::Run };
        let status = self
            .stream
            .process(input, output, action)
            .map_err(failure)?;
        self.ended = status == Status::StreamEnd;
        let count = |after: u64, before: u64| usize::try_from(after - before).unwrap_or(0);
        Ok(Step {
            read: count(self.stream.total_in(), before.0),
            written: count(self.stream.total_out(), before.1),
        })
    }

    fn may_end(&self) -> bool {
        self.ended
    }
}

fn failure(error: LzmaError) -> Error {
    match error {
        LzmaError::MemLimit => limit("the xz stream needs a dictionary of more than 32 MiB"),
        LzmaError::Format => corrupt("this is not an xz stream, or something else follows it"),
        other => corrupt(format!("the xz stream is damaged: {other}")),
    }
}
