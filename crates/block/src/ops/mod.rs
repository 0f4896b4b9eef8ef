//! What can be asked of images, beyond their bytes.

mod clone;
mod compare;
mod map;
mod measure;
mod raw;

pub use clone::{Cloned, Way, clone};
pub use compare::{Comparison, compare};
pub use map::{Extent, Extents, map};
pub use measure::{Measure, measure};
pub use raw::create_raw;
