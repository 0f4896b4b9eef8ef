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
mod check;
mod cluster;
mod compressed;
mod entry;
mod extension;
mod header;
mod image;
mod listing;
mod prealloc;
mod refcount;
mod resize;
mod spec;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

pub use check::{CheckReport, Problem, Verdict, check, check_within};
pub use cluster::{ClusterSize, GuestOffset, HostOffset};
pub use compressed::Unpacker;
pub use entry::{CompressedCluster, Mapping};
pub(crate) use entry::{L2Entry, SubclusterState, l2_table};
pub use header::{Compression, DataFile, Header, MAGIC};
pub use image::Qcow2;
pub use listing::{BitmapInfo, Overview, SnapshotInfo};
pub use prealloc::{Preallocation, create};
pub(crate) use prealloc::{set_aside, write_zeroes};
pub use resize::{Beyond, ImageFile, ResizeOptions, resize};
pub use spec::{Backing, NewImage};
pub use writer::{NewFile, Writer};
