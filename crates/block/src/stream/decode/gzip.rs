//! gzip: members one after the other, each with its own checksum.

use zlib_rs::{Inflate, InflateFlush, Status};

use super::{Codec, Step};
use crate::error::{Result, corrupt};

/// The largest window, with a gzip header and trailer, both checked.
const GZIP_WINDOW: u8 = 16 + 15;

pub(super) struct Gzip {
    inflate: Inflate,
    /// How much of the member has been read.
    read: u64,
    members: u64,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            inflate: Inflate::new(true, GZIP_WINDOW),
            read: 0,
            members: 0,
        }
    }

    /// For what follows a member.
    pub(super) fn behind() -> Self {
        Self {
            members: 1,
            ..Self::new()
        }
    }

    fn failure(&self) -> crate::error::Error {
        // Up to its second byte a member is known by its magic only.
        if self.read < 2 && self.members > 0 {
            return corrupt("something that is not gzip follows the gzip stream");
        }
        corrupt("the gzip stream is damaged")
    }
}

impl Codec for Gzip {
    fn decode(&mut self, input: &[u8], output: &mut [u8], _last: bool) -> Result<Step> {
        if input.is_empty() && self.read == 0 {
            return Ok(Step {
                read: 0,
                written: 0,
            });
        }
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let status = self
            .inflate
            .decompress(input, output, InflateFlush::NoFlush)
            .map_err(|_| self.failure())?;
        let count = |after: u64, before: u64| usize::try_from(after - before).unwrap_or(0);
        let step = Step {
            read: count(self.inflate.total_in(), before.0),
            written: count(self.inflate.total_out(), before.1),
        };
        self.read += step.read as u64;
        if status == Status::StreamEnd {
            self.inflate = Inflate::new(true, GZIP_WINDOW);
            self.read = 0;
            self.members += 1;
        }
        Ok(step)
    }

    fn may_end(&self) -> bool {
        self.read == 0 && self.members > 0
    }
}
