//! Where bytes live: small capabilities, one trait each.
//!
//! ```text
//!      Size   ReadAt   Extents      WriteAt   WriteZeroes   SetAside   Discard   Resize   Flush
//!        \      |        /             \          |            |          |        |      /
//!         +--- Source --+               +--------------------- Target --------------------+
//!                 files, block devices, memory; decoded images (Source only)
//! ```
//!
//! Methods take `&self`: a device is shared by threads that work on different
//! ranges. No method has a default body: a forgotten flush or discard would
//! lose data silently.

mod file;
mod held;
mod lock;
mod memory;
mod part;

pub use file::{Caching, FileDevice};
pub use held::{HELD, HeldBack};
pub use lock::Access;
pub use memory::{Fault, MemoryDevice, Request};
pub use part::Part;

use std::fs::File;

use crate::error::Result;

/// Knows how large it is.
pub trait Size {
    /// In bytes.
    fn size(&self) -> Result<u64>;
}

/// Can be read at any offset.
pub trait ReadAt {
    /// Fills the buffer. Reading beyond the end is an error, not a short read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
}

/// Knows which of its parts read as zeroes without being read.
pub trait Extents {
    /// The extent that begins at `offset`, which is inside the device. It ends
    /// at the device's end at the latest and is never empty.
    fn extent_at(&self, offset: u64) -> Result<Extent>;
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// How long it is.
    pub length: u64,
    /// Whether it certainly reads as zeroes.
    pub zero: bool,
}

/// Can be written at any offset.
pub trait WriteAt {
    /// Writes the whole buffer. Writing beyond the end is an error.
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()>;
}

/// Can make a range read as zeroes.
pub trait WriteZeroes {
    /// Afterwards the range reads as zeroes. `keep` says whether its space has
    /// to stay allocated.
    fn write_zeroes(&self, offset: u64, length: u64, keep: Allocation) -> Result<()>;
}

/// What becomes of the space behind zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// It may be given back.
    Free,
    /// It stays.
    Keep,
}

/// Can be told that a range is not needed any more.
pub trait Discard {
    /// Afterwards the range reads as anything. It is a hint: a device that
    /// cannot do it does nothing.
    fn discard(&self, offset: u64, length: u64) -> Result<()>;
}

/// Can set space aside for what will be written.
pub trait SetAside {
    /// What the range reads as stays the same. Returns whether some of it may have space
    /// now: a device for which writing would not be faster afterwards does nothing.
    fn set_aside(&self, offset: u64, length: u64) -> bool;
}

/// Can change its size.
pub trait Resize {
    /// New bytes read as zeroes.
    fn resize(&self, size: u64) -> Result<()>;
}

/// Can make what was written durable.
pub trait Flush {
    /// When it returns, everything written before survives a crash.
    fn flush(&self) -> Result<()>;
}

/// May share its blocks with another file, on filesystems that can.
pub trait Shareable {
    /// The file whose blocks these are, offset for offset; absent if there is
    /// none.
    fn shareable_file(&self) -> Option<&File>;
}

/// What can be read: files, devices, decoded images.
pub trait Source: Size + ReadAt + Extents + Shareable + Send + Sync {}
impl<T: Size + ReadAt + Extents + Shareable + Send + Sync> Source for T {}

/// What can be filled.
pub trait Target:
    Size + WriteAt + WriteZeroes + SetAside + Discard + Flush + Shareable + Send + Sync
{
}
impl<T: Size + WriteAt + WriteZeroes + SetAside + Discard + Flush + Shareable + Send + Sync> Target
    for T
{
}
