//! How much space a copy of a disk would take.

use super::map::map;
use crate::device::Size;
use crate::error::Result;
use crate::image::{Format, Image};
use crate::qcow2::ClusterSize;

/// What a copy takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// With what the disk has now, not packed.
    pub required: u64,
    /// Once every byte has been written.
    pub fully_allocated: u64,
}

/// Measures a copy of a disk in a format.
pub fn measure(image: &Image, format: Format, cluster: ClusterSize) -> Result<Measure> {
    let size = image.size()?;
    match format {
        Format::Raw => Ok(Measure {
            required: size,
            fully_allocated: size,
        }),
        Format::Qcow2 => {
            let mut used = 0;
            // The first cluster that has not been counted yet.
            let mut next = 0;
            for extent in map(image)? {
                let extent = extent?;
                if extent.zero {
                    continue;
                }
                let first = (extent.start / cluster.bytes()).max(next);
                let end = (extent.start + extent.length).div_ceil(cluster.bytes());
                used += end.saturating_sub(first);
                next = end;
            }
            Ok(Measure {
                required: file_size(size, used, cluster),
                fully_allocated: file_size(size, cluster.count_for(size), cluster),
            })
        }
    }
}

/// The size of an image with so many data clusters. Its tables are counted for
/// the whole disk, as QEMU does: they come with the first write anyway.
fn file_size(size: u64, data: u64, cluster: ClusterSize) -> u64 {
    let l2_entries = cluster.bytes() / 8;
    let l2 = cluster.count_for(size).div_ceil(l2_entries);
    let l1 = cluster.count_for(l2 * 8).max(1);
    let known = 1 + l1 + l2 + data;
    let per_block = cluster.bytes() / 2;
    let (mut blocks, mut table) = (0, 0);
    loop {
        let wanted = (known + blocks + table).div_ceil(per_block);
        let wanted_table = cluster.count_for(wanted * 8);
        if (wanted, wanted_table) == (blocks, table) {
            return (known + blocks + table) * cluster.bytes();
        }
        (blocks, table) = (wanted, wanted_table);
    }
}
