//! How QEMU treats a disk's host side, chosen by what the disk is.

use super::{Disk, DiskSource};

/// Whose cache holds what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// The host's page cache is passed by.
    None,
    /// Writes rest in a cache until the guest flushes.
    Writeback,
}

/// How requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// By asynchronous requests; needs the page cache passed by.
    Native,
    /// By a pool of threads.
    Threads,
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
    /// The settings for a disk.
    #[must_use]
    pub fn of(disk: &Disk) -> Self {
        let discard = !disk.read_only;
        match &disk.source {
            // Only read: nothing has to reach a disk, and the page cache may
            // serve other readers too.
            DiskSource::File { .. } if disk.read_only => Self {
                cache: Cache::Writeback,
                io: None,
                discard,
            },
            // Many VMs read one image below their overlays: with the page
            // cache passed by, each would read it from the disk again. Flushes
            // still reach the disk. Requests that allocate clusters or fill
            // holes block in the kernel, so they go to threads.
            DiskSource::File { .. } => Self {
                cache: Cache::Writeback,
                io: Some(Io::Threads),
                discard,
            },
            // A whole device belongs to one guest, whose own page cache is
            // enough; nothing allocates on the way, so asynchronous requests
            // never block.
            DiskSource::Block { .. } => Self {
                cache: Cache::None,
                io: Some(Io::Native),
                discard,
            },
            // librbd has a cache of its own, switched by this setting; it
            // holds writes back only once the guest has shown that it flushes.
            DiskSource::Rbd { .. } => Self {
                cache: Cache::Writeback,
                io: None,
                discard,
            },
        }
    }
}
