//! How QEMU treats a disk's host side, chosen by what the disk is unless the
//! user chooses.

use super::{Layer, Location};
use crate::source::Network;

/// Whose cache holds what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// The host's page cache is passed by.
    None,
    /// Writes rest in a cache until the guest flushes.
    Writeback,
    /// Writes are done when the storage has them; reads are cached.
    Writethrough,
    /// Writes are done when the storage has them; nothing is cached.
    Directsync,
    /// Flushes are ignored: a crash of the host loses data.
    Unsafe,
}

impl Cache {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Writeback,
        Self::Writethrough,
        Self::Directsync,
        Self::Unsafe,
    ];

    /// As libvirt writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Writeback => "writeback",
            Self::Writethrough => "writethrough",
            Self::Directsync => "directsync",
            Self::Unsafe => "unsafe",
        }
    }

    /// Whether the page cache is passed by.
    #[must_use]
    pub fn is_direct(self) -> bool {
        matches!(self, Self::None | Self::Directsync)
    }
}

/// How requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// By asynchronous requests; needs the page cache passed by.
    Native,
    /// By a pool of threads.
    Threads,
    /// By a ring that is shared with the kernel.
    IoUring,
}

impl Io {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Native, Self::Threads, Self::IoUring];

    /// As libvirt writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Threads => "threads",
            Self::IoUring => "io_uring",
        }
    }
}

/// The settings of a disk's `<driver>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Caching.
    pub cache: Cache,
    /// Request path; network disks have none.
    pub io: Option<Io>,
    /// A guest's discards reach the storage.
    pub discard: bool,
}

impl Tuning {
    /// The settings for a disk that QEMU opens there.
    #[must_use]
    pub fn of(top: &Layer, read_only: bool) -> Self {
        let discard = !read_only;
        let (cache, io) = match &top.at {
            // Only read: nothing has to reach a disk, and the page cache may
            // serve other readers too.
            Location::File(_) if read_only => (Cache::Writeback, None),
            // Many VMs read one image below their overlays: with the page
            // cache passed by, each would read it from the disk again. Flushes
            // still reach the disk. Requests that allocate clusters or fill
            // holes block in the kernel, so they go to threads.
            Location::File(_) => (Cache::Writeback, Some(Io::Threads)),
            // A whole device belongs to one guest, whose own page cache is
            // enough; nothing allocates on the way, so asynchronous requests
            // never block.
            Location::Block { .. } => (Cache::None, Some(Io::Native)),
            // librbd has a cache of its own, switched by this setting; it
            // holds writes back only once the guest has shown that it flushes.
            Location::Network {
                network: Network::Rbd(_),
                ..
            } => (Cache::Writeback, None),
            // The others have no cache on this side.
            Location::Network { .. } => (Cache::None, None),
        };
        Self { cache, io, discard }
    }
}
