//! QEMU's copy-on-write format, versions 2 and 3.
//!
//! ```text
//!   guest offset --L1--> L2 table --entry--> zero | data at host offset
//!                                             | compressed | ask the backing file
//! ```
//!
//! `header`, `entry` and `tables` are bytes to values and touch no file;
//! `image` reads through them.

mod append;
mod cluster;
mod compressed;
mod entry;
mod extension;
mod header;
mod image;
mod listing;
mod spec;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

pub use cluster::{ClusterSize, GuestOffset, HostOffset};
pub use compressed::Unpacker;
pub use entry::{CompressedCluster, Mapping};
pub use header::{Compression, DataFile, Header, MAGIC};
pub use image::Qcow2;
pub use listing::{BitmapInfo, SnapshotInfo};
pub use spec::{Backing, NewImage};
pub use writer::{NewFile, Writer};
