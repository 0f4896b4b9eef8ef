//! Copying a disk into a new qcow2 image.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::order::InOrder;
use super::packer::Packer;
use super::planner::{CHUNK, Planner, Zeroes};
use super::reader::ChunkReader;
use super::{Report, Tally, Watch, on_threads};
use crate::device::Size;
use crate::error::{Result, invalid};
use crate::image::Image;
use crate::qcow2::{GuestOffset, NewFile, NewImage, Writer};
use crate::zero::is_zero;

/// Whether clusters are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// They are written as they are.
    Plain,
    /// They are packed where that makes them smaller.
    Packed,
}

/// Chunks that are ready before their turn. They are 2 MiB each, and more of
/// them would not make the one writer faster, however many threads there are.
const MOST_WAITING: usize = 8;

/// A cluster that is ready to be written.
enum Cluster {
    Plain(Vec<u8>),
    Packed(Vec<u8>),
}

type Chunk = Vec<(GuestOffset, Cluster)>;

/// Copies the whole disk into a new image in an empty file, and makes it
/// durable. Zeroes are left out, so the image has nothing below it.
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
    let waiting = (2 * threads.max(1)).min(MOST_WAITING);
    let order = InOrder::new(Writer::new(file, spec)?, waiting);
    on_threads(threads, || {
        let alarm = Alarm(|| {
            planner.fail();
            order.fail();
        });
        Worker::new(image, spec, packing, &tally).run(&planner, &order)?;
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
}

impl<'c> Worker<'c> {
    fn new(image: &'c Image, spec: &NewImage, packing: Packing, tally: &'c Tally) -> Self {
        Self {
            reader: ChunkReader::new(image),
            packer: (packing == Packing::Packed).then(|| Packer::new(spec.compression)),
            cluster: spec.cluster.buffer_len(),
            tally,
        }
    }

    fn run(mut self, planner: &Planner<'_>, order: &InOrder<Chunk, Writer<'_>>) -> Result<()> {
        while let Some((number, range)) = planner.next()? {
            let chunk = self.prepare(&range)?;
            order.put(number, chunk, write)?;
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
        let mut chunk = Vec::new();
        for (index, piece) in bytes.chunks(self.cluster).enumerate() {
            let length = piece.len() as u64;
            if is_zero(piece) {
                self.tally.zero.fetch_add(length, Ordering::Relaxed);
                continue;
            }
            self.tally.written.fetch_add(length, Ordering::Relaxed);
            let guest = GuestOffset(whole.start + index as u64 * cluster);
            chunk.push((guest, pack(self.packer.as_mut(), piece, self.cluster)));
        }
        Ok(chunk)
    }
}

/// The last cluster of a disk may be shorter; packed, it is a whole one.
fn pack(packer: Option<&mut Packer>, piece: &[u8], cluster: usize) -> Cluster {
    let packed = packer.and_then(|packer| {
        if piece.len() == cluster {
            return packer.pack(piece).map(<[u8]>::to_vec);
        }
        let mut whole = piece.to_vec();
        whole.resize(cluster, 0);
        packer.pack(&whole).map(<[u8]>::to_vec)
    });
    packed.map_or_else(|| Cluster::Plain(piece.to_vec()), Cluster::Packed)
}

fn write(writer: &mut Writer<'_>, chunk: Chunk) -> Result<()> {
    for (guest, cluster) in chunk {
        match cluster {
            Cluster::Plain(bytes) => writer.put_data(guest, &bytes)?,
            Cluster::Packed(bytes) => writer.put_packed(guest, &bytes)?,
        }
    }
    Ok(())
}
