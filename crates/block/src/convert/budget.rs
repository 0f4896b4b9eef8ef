//! How many threads may work: as many as memory has room for, since what a
//! thread holds depends on the size of clusters, and all of it together must
//! stay below a limit.

use super::packer::Packer;
use super::planner::CHUNK;
use super::reader::MOST_AT_ONCE;
use crate::device::FileDevice;
use crate::image::Image;
use crate::qcow2::{ClusterSize, Compression};

/// What tables and buffers may take. The program itself takes 15 MiB more; all
/// in all a process shall stay below 96 MiB.
const MEMORY: u64 = 72 << 20;

/// Chunks that are ready before their turn. More of them would not make the
/// one writer faster, however many threads there are.
pub(super) const MOST_WAITING: usize = 8;

/// Each holds a few MiB; with so many, however many cores there are, memory
/// stays low.
const MOST_THREADS: usize = 16;

/// How many threads copy an image to a target fastest. Requests that pass the page
/// cache by wait for the disk: more of them than there are cores keep it busy, and more
/// than that keep each other waiting. Where there may be something to unpack, others do
/// so meanwhile. Memory is never waited for.
#[must_use]
pub fn fitting_threads(image: &Image, target: &FileDevice) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (each, least) = match (target.in_memory(), image.largest_cluster()) {
        (true, _) => (1, 1),
        (false, None) => (2, 4),
        (false, Some(_)) => (2, 8),
    };
    (cores * each).clamp(least, MOST_THREADS)
}

/// How many of the threads that were asked for copy a disk.
pub(super) fn copying(threads: usize, image: &Image) -> usize {
    fitting(threads, image.table_bytes(), reading(image))
}

/// How many of the threads that were asked for make clusters of a new image;
/// what they have made waits for its turn.
pub(super) fn packing(
    threads: usize,
    image: &Image,
    cluster: ClusterSize,
    packed_as: Option<Compression>,
) -> usize {
    let packer = packed_as.map_or(0, |compression| Packer::memory(compression, cluster));
    let waiting = MOST_WAITING as u64 * CHUNK;
    // What the writer gathers, and its table in memory and as bytes.
    let writer = CHUNK + 2 * cluster.bytes();
    fitting(
        threads,
        image.table_bytes() + waiting + writer,
        reading(image) + packer + CHUNK,
    )
}

/// What a thread needs to read a chunk: the chunk, and where there may be
/// packed clusters what was packed, and a cluster of which only a part is
/// needed.
fn reading(image: &Image) -> u64 {
    let cluster = image.largest_cluster().map_or(0, ClusterSize::bytes);
    let packed = if cluster == 0 { 0 } else { MOST_AT_ONCE };
    // An entry of a table can claim two clusters for one.
    CHUNK + packed.max(2 * cluster) + cluster
}

fn fitting(threads: usize, shared: u64, each: u64) -> usize {
    let fitting = MEMORY.saturating_sub(shared) / each;
    usize::try_from(fitting)
        .unwrap_or(1)
        .clamp(1, threads.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_as_fit_and_at_least_one() {
        assert_eq!(fitting(64, 0, MEMORY / 20), 20);
        assert_eq!(fitting(16, 0, MEMORY / 20), 16);
        assert_eq!(fitting(0, 0, 1), 1);
        assert_eq!(fitting(8, MEMORY + 1, 1), 1);
    }
}
