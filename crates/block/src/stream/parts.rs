//! Where a raw disk that comes as a stream can be taken up again.
//!
//! ```text
//!   stream   ....frame|frame|frame|fra         restartable where a frame ends
//!   disk     ....data  data  data  da          and what came before is durable
//!                           ^ mark
//! ```

use super::Wrapping;
use crate::error::Result;
use crate::image::Format;

/// A place that a stream can be taken up at: all of the disk before it is durable, and
/// the bytes that follow can be unwrapped without those before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// How many bytes of the stream lie before, of those that came this time.
    pub taken: u64,
    /// How many bytes of the disk lie before.
    pub disk: u64,
    /// What the [`Follower`] had to say here.
    pub followed: Vec<u8>,
}

/// Whoever keeps marks, so that the stream can be taken up again.
pub trait Keeper: Sync {
    /// What comes is known now. Nothing has been written yet, and nothing is if this fails.
    fn learns(&self, format: Format) -> Result<()>;
    /// Whether what the disk has up to here shall be made durable now. It is asked often.
    fn wants(&self, mark: &Mark) -> bool;
    /// All before the mark is durable.
    fn keep(&self, mark: &Mark) -> Result<()>;
}

/// Whoever looks at a stream while it is taken in, such as a hash.
pub trait Follower: Send {
    /// The next bytes of the stream.
    fn took(&mut self, bytes: &[u8]);
    /// What is known after the bytes so far.
    fn state(&self) -> Vec<u8>;
}

/// A stream of which a part has come before, or only a part may come.
pub struct Parts<'p> {
    /// How much of the disk is there. What comes goes on behind it, is raw, and is wrapped
    /// like this.
    pub before: Option<(u64, Wrapping)>,
    /// Looks at the bytes that come now.
    pub follower: &'p mut dyn Follower,
    /// Keeps marks.
    pub keeper: &'p dyn Keeper,
}

impl std::fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("before", &self.before)
            .finish_non_exhaustive()
    }
}

/// Marks begin at such places of the disk, which suit every device.
pub(super) const ALIGNED: u64 = 4096;
