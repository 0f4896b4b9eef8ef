//! What is to be done with the bytes of a stream, as values.

use crate::error::Result;

/// One thing to do. Actions of one image never contradict each other on the
/// disk, so their order matters only between parking and fetching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'b> {
    /// These bytes belong on the disk.
    Write {
        /// Where on the disk.
        guest: u64,
        /// As they are in the stream.
        bytes: &'b [u8],
    },
    /// This is a packed cluster.
    Unpack {
        /// Where on the disk it belongs.
        guest: u64,
        /// How much of the unpacked cluster belongs there.
        length: u64,
        /// The packed bytes, and perhaps some that follow them.
        packed: &'b [u8],
    },
    /// The disk reads as zeroes here.
    Zero {
        /// Where on the disk.
        guest: u64,
        /// For how long.
        length: u64,
    },
    /// Nobody knows yet what these bytes are.
    Park {
        /// Where they are in the file, and in the scratch.
        host: u64,
        /// The bytes.
        bytes: &'b [u8],
    },
    /// Parked bytes belong on the disk.
    Fetch {
        /// Where on the disk.
        guest: u64,
        /// Where they are parked.
        host: u64,
        /// How many they are.
        length: u64,
    },
    /// A packed cluster was parked.
    FetchPacked {
        /// Where on the disk it belongs.
        guest: u64,
        /// How much of the unpacked cluster belongs there.
        length: u64,
        /// Where it is parked.
        host: u64,
        /// How many bytes the packed cluster takes at most.
        packed: u64,
    },
}

/// Carries actions out. Returns, for a packed cluster, how many bytes its
/// packing really takes; the number means nothing for other actions.
pub type Carry<'c> = dyn FnMut(Action<'_>) -> Result<u64> + 'c;

/// Joins neighbouring actions into larger ones.
pub(super) struct Joiner<'b, 'c> {
    bytes: &'b [u8],
    /// Where the bytes begin in the file.
    base: u64,
    write: Option<Run>,
    park: Option<Run>,
    zero: Option<Run>,
    carry: &'c mut Carry<'c>,
}

#[derive(Clone, Copy)]
struct Run {
    guest: u64,
    host: u64,
    length: u64,
}

impl Run {
    fn joins(&self, next: &Self) -> bool {
        self.guest + self.length == next.guest && self.host + self.length == next.host
    }
}

impl<'b, 'c> Joiner<'b, 'c> {
    pub(super) fn new(bytes: &'b [u8], base: u64, carry: &'c mut Carry<'c>) -> Self {
        Self {
            bytes,
            base,
            write: None,
            park: None,
            zero: None,
            carry,
        }
    }

    /// Bytes of the chunk go to the disk.
    pub(super) fn write(&mut self, guest: u64, host: u64, length: u64) -> Result<()> {
        let run = Run {
            guest,
            host,
            length,
        };
        match join(&mut self.write, run) {
            Some(done) => self.emit_write(done),
            None => Ok(()),
        }
    }

    /// Bytes of the chunk are parked.
    pub(super) fn park(&mut self, host: u64, length: u64) -> Result<()> {
        let run = Run {
            guest: host,
            host,
            length,
        };
        match join(&mut self.park, run) {
            Some(done) => self.emit_park(done),
            None => Ok(()),
        }
    }

    pub(super) fn zero(&mut self, guest: u64, length: u64) -> Result<()> {
        let run = Run {
            guest,
            host: guest,
            length,
        };
        match join(&mut self.zero, run) {
            Some(done) => self.emit_zero(done),
            None => Ok(()),
        }
    }

    /// Anything that cannot be joined.
    pub(super) fn carry(&mut self, action: Action<'_>) -> Result<u64> {
        (self.carry)(action)
    }

    /// Emits what waits to become larger.
    pub(super) fn finish(mut self) -> Result<()> {
        if let Some(run) = self.write.take() {
            self.emit_write(run)?;
        }
        if let Some(run) = self.park.take() {
            self.emit_park(run)?;
        }
        match self.zero.take() {
            Some(run) => self.emit_zero(run),
            None => Ok(()),
        }
    }

    /// Bytes of the chunk, by their place in the file.
    pub(super) fn bytes(&self, host: u64, length: u64) -> &'b [u8] {
        let start = usize::try_from(host - self.base).unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let rest = self.bytes.get(start..).unwrap_or_default();
        &rest[..length.min(rest.len())]
    }

    fn emit_write(&mut self, run: Run) -> Result<()> {
        let bytes = self.bytes(run.host, run.length);
        let guest = run.guest;
        (self.carry)(Action::Write { guest, bytes }).map(drop)
    }

    fn emit_park(&mut self, run: Run) -> Result<()> {
        let bytes = self.bytes(run.host, run.length);
        let host = run.host;
        (self.carry)(Action::Park { host, bytes }).map(drop)
    }

    fn emit_zero(&mut self, run: Run) -> Result<()> {
        let Run { guest, length, .. } = run;
        (self.carry)(Action::Zero { guest, length }).map(drop)
    }
}

/// Adds to the waiting run, or replaces it and returns it.
fn join(waiting: &mut Option<Run>, next: Run) -> Option<Run> {
    match waiting {
        Some(run) if run.joins(&next) => {
            run.length += next.length;
            None
        }
        _ => waiting.replace(next),
    }
}
