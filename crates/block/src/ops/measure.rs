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
    /// Besides, if bitmaps are copied; absent where there can be none.
    pub bitmaps: Option<u64>,
}

/// Measures a copy of a disk in a format.
pub fn measure(image: &Image, format: Format, cluster: ClusterSize) -> Result<Measure> {
    let size = image.size()?;
    match format {
        Format::Raw => Ok(Measure {
            required: size,
            fully_allocated: size,
            bitmaps: None,
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
                bitmaps: bitmap_size(image, cluster)?,
            })
        }
    }
}

/// What the bitmaps of an image take in a copy, as QEMU counts: each with its
/// table, and their directory.
fn bitmap_size(image: &Image, cluster: ClusterSize) -> Result<Option<u64>> {
    let Image::Qcow2(image) = image else {
        return Ok(None);
    };
    if image.header().version < 3 {
        return Ok(None);
    }
    let (mut clusters, mut directory) = (0, 0);
    for bitmap in image.bitmaps()?.iter().filter(|bitmap| !bitmap.in_use) {
        let bits = image.header().size.div_ceil(bitmap.granularity);
        let data = cluster.count_for(bits.div_ceil(8));
        clusters += data + cluster.count_for(data * 8);
        directory += (24 + bitmap.name.len() as u64).next_multiple_of(8);
    }
    clusters += cluster.count_for(directory);
    Ok(Some(clusters * cluster.bytes()))
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
