//! What can be asked of images, beyond their bytes.

mod compare;
mod map;
mod measure;

pub use compare::{Comparison, compare};
pub use map::{Extent, Extents, map};
pub use measure::{Measure, measure};
