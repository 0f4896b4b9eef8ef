//! xz: streams one after the other, with padding between them.

use liblzma::stream::{Action, Error as LzmaError, Status, Stream};

use super::{Codec, Step};
use crate::error::{Error, Result, corrupt, unsupported};

/// A dictionary of 32 MiB and what the decoder needs beside it.
const MEMORY: u64 = (32 << 20) + (1 << 20);

const MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

pub(super) struct Xz {
    state: State,
}

enum State {
    Within(Stream),
    /// Behind a stream, and so many bytes of padding.
    Behind(usize),
}

impl Xz {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            state: State::Within(decoder()?),
        })
    }

    /// For what follows a stream.
    pub(super) fn behind() -> Self {
        Self {
            state: State::Behind(0),
        }
    }

    /// Goes past padding, up to the next stream if there is one.
    fn between(&mut self, padding: usize, input: &[u8], last: bool) -> Result<Step> {
        let read = input.iter().take_while(|byte| **byte == 0).count();
        let padding = (padding + read) % 4;
        let next = &input[read..];
        let begins = next.len().min(MAGIC.len());
        let is_stream = next[..begins] == MAGIC[..begins];
        // Padding comes in fours, and a stream does not end in its magic.
        let is_odd = (last || begins > 0) && padding != 0;
        if !is_stream || is_odd || (last && (1..MAGIC.len()).contains(&begins)) {
            return Err(corrupt("something that is not xz follows the xz stream"));
        }
        self.state = match begins == MAGIC.len() {
            true => State::Within(decoder()?),
            false => State::Behind(padding),
        };
        Ok(Step { read, written: 0 })
    }
}

fn decoder() -> Result<Stream> {
    Stream::new_stream_decoder(MEMORY, 0).map_err(failure)
}

impl Codec for Xz {
    fn decode(&mut self, input: &[u8], output: &mut [u8], last: bool) -> Result<Step> {
        let stream = match &mut self.state {
            State::Within(stream) => stream,
            State::Behind(padding) => {
                let padding = *padding;
                let step = self.between(padding, input, last)?;
                return match self.state {
                    State::Within(_) if step.read == 0 => self.decode(input, output, last),
                    _ => Ok(step),
                };
            }
        };
        let before = (stream.total_in(), stream.total_out());
        let action = if last { Action::Finish } else { Action::Run };
        let status = stream.process(input, output, action).map_err(failure)?;
        let count = |after: u64, before: u64| usize::try_from(after - before).unwrap_or(0);
        let step = Step {
            read: count(stream.total_in(), before.0),
            written: count(stream.total_out(), before.1),
        };
        if status == Status::StreamEnd {
            // What it holds is given back before another begins.
            self.state = State::Behind(0);
        }
        Ok(step)
    }

    fn may_end(&self) -> bool {
        matches!(self.state, State::Behind(0))
    }
}

fn failure(error: LzmaError) -> Error {
    match error {
        LzmaError::MemLimit => unsupported("the xz stream needs a dictionary of more than 32 MiB"),
        LzmaError::Format => corrupt("this is not an xz stream"),
        other => corrupt(format!("the xz stream is damaged: {other}")),
    }
}
