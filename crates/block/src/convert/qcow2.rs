//! Copying a disk into a new qcow2 image.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::budget::{self, MOST_WAITING};
use super::order::InOrder;
use super::packer::Packer;
use super::planner::{CHUNK, Planner, Zeroes};
use super::reader::ChunkReader;
use super::{Report, Tally, Watch, on_threads};
use crate::device::Size;
use crate::error::{Result, invalid};
use crate::image::Image;
use crate::qcow2::{Compression, GuestOffset, NewFile, NewImage, Writer};
use crate::zero::is_zero;

/// Whether clusters are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// They are written as they are.
    Plain,
    /// They are packed where that makes them smaller.
    Packed,
}

/// Clusters that are ready to be written. Their bytes lie in a buffer that is
/// used again, so that no more of them exist than can wait.
#[derive(Default)]
struct Chunk {
    clusters: Vec<Cluster>,
    bytes: Vec<u8>,
}

struct Cluster {
    guest: GuestOffset,
    packing: Packing,
    /// Where in the chunk's bytes it ends; it begins where the one before ends.
    end: usize,
}

/// Copies the whole disk into a new image in an empty file, and makes it
/// durable. Zeroes are left out, so the image has nothing below it. There are
/// fewer threads than asked for if memory has no room for their buffers.
pub fn to_qcow2(
    image: &Image,
    file: &dyn NewFile,
    spec: &NewImage,
    packing: Packing,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Report> {
    let size = image.size()?;
    if spec.size < size || spec.backing.is_some() {
        return Err(invalid("the new image does not fit the disk"));
    }
    debug_assert!(CHUNK.is_multiple_of(spec.cluster.bytes()));
    let tally = Tally::default();
    let planner = Planner::new(image, size, Zeroes::Skip, None, watch, &tally);
    let packed_as = (packing == Packing::Packed).then_some(spec.compression);
    let threads = budget::packing(threads, image, spec.cluster, packed_as);
    let waiting = (2 * threads).min(MOST_WAITING);
    let order = InOrder::new(Writer::new(file, spec)?, waiting);
    let spare = Mutex::default();
    on_threads(threads, || {
        let alarm = Alarm(|| {
            planner.fail();
            order.fail();
        });
        Worker::new(image, spec, packed_as, &tally, &spare).run(&planner, &order)?;
        alarm.disarm();
        Ok(())
    })?;
    image.demand_whole()?;
    order.into_sink().finish()?;
    Ok(tally.report())
}

/// Goes off however a thread fails, be it by a panic: the others must not wait
/// for what it will never bring.
struct Alarm<F: Fn()>(F);

impl<F: Fn()> Alarm<F> {
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<F: Fn()> Drop for Alarm<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

struct Worker<'c> {
    reader: ChunkReader<'c>,
    packer: Option<Packer>,
    cluster: usize,
    tally: &'c Tally,
    /// Chunks that were written.
    spare: &'c Mutex<Vec<Chunk>>,
}

impl<'c> Worker<'c> {
    fn new(
        image: &'c Image,
        spec: &NewImage,
        packed_as: Option<Compression>,
        tally: &'c Tally,
        spare: &'c Mutex<Vec<Chunk>>,
    ) -> Self {
        Self {
            reader: ChunkReader::new(image),
            packer: packed_as.map(Packer::new),
            cluster: spec.cluster.buffer_len(),
            tally,
            spare,
        }
    }

    fn run(mut self, planner: &Planner<'_>, order: &InOrder<Chunk, Writer<'_>>) -> Result<()> {
        let spare = self.spare;
        while let Some((number, range)) = planner.next()? {
            let chunk = self.prepare(&range)?;
            order.put(number, chunk, |writer, chunk| {
                chunk.write(writer)?;
                lock(spare).push(chunk);
                Ok(())
            })?;
            planner.done(range.end - range.start);
        }
        Ok(())
    }

    /// Reads a chunk and packs its clusters.
    fn prepare(&mut self, range: &Range<u64>) -> Result<Chunk> {
        // A chunk may begin within a cluster, where zeroes end; the cluster
        // is written whole.
        let cluster = self.cluster as u64;
        let whole = range.start / cluster * cluster..range.end;
        let bytes = self.reader.read(&whole)?;
        let mut chunk = lock(self.spare).pop().unwrap_or_default();
        chunk.clear();
        for (index, piece) in bytes.chunks(self.cluster).enumerate() {
            let length = piece.len() as u64;
            if is_zero(piece) {
                self.tally.zero.fetch_add(length, Ordering::Relaxed);
                continue;
            }
            self.tally.written.fetch_add(length, Ordering::Relaxed);
            let guest = GuestOffset(whole.start + index as u64 * cluster);
            match pack(self.packer.as_mut(), piece, self.cluster) {
                Some(packed) => chunk.push(guest, Packing::Packed, packed),
                None => chunk.push(guest, Packing::Plain, piece),
            }
        }
        Ok(chunk)
    }
}

/// The last cluster of a disk may be shorter; packed, it is a whole one.
fn pack<'p>(packer: Option<&'p mut Packer>, piece: &[u8], cluster: usize) -> Option<&'p [u8]> {
    let packer = packer?;
    if piece.len() == cluster {
        return packer.pack(piece);
    }
    let mut whole = piece.to_vec();
    whole.resize(cluster, 0);
    packer.pack(&whole)
}

impl Chunk {
    fn clear(&mut self) {
        self.clusters.clear();
        self.bytes.clear();
        // At once: growing would take twice as much for a while.
        self.bytes.reserve(usize::try_from(CHUNK).unwrap_or(0));
    }

    fn push(&mut self, guest: GuestOffset, packing: Packing, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.clusters.push(Cluster {
            guest,
            packing,
            end: self.bytes.len(),
        });
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<()> {
        let mut start = 0;
        for cluster in &self.clusters {
            let bytes = &self.bytes[start..cluster.end];
            start = cluster.end;
            match cluster.packing {
                Packing::Plain => writer.put_data(cluster.guest, bytes)?,
                Packing::Packed => writer.put_packed(cluster.guest, bytes)?,
            }
        }
        Ok(())
    }
}

fn lock(spare: &Mutex<Vec<Chunk>>) -> MutexGuard<'_, Vec<Chunk>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}
