//! A root disk on a device of its own: filled from an image once, kept since.
//!
//! ```text
//!   0        4 KiB            1 MiB                               end
//!   | header | nothing        | the guest's disk ...              |
//! ```
//!
//! The header says which image the disk came from and whether it is complete.
//! It says `filling` durably before the first byte of the disk changes, and
//! `complete` after the last one is durable; so whatever is cut off in between
//! is filled again, and what is complete is never touched unasked. See
//! docs/formats/root-device.md.

mod fill;
mod header;
#[cfg(test)]
mod tests;

pub use fill::{Behind, demand_room, fill, is_unused};
pub use header::{Found, ImageHash, look};

/// Where the disk begins: aligned for any device.
pub const DATA_OFFSET: u64 = 1 << 20;
