//! Reading chunks of a disk, compressed clusters and all.

use std::ops::Range;

use super::planner::CHUNK;
use crate::error::Result;
use crate::image::{Image, Place};
use crate::qcow2::{CompressedCluster, Compression, Qcow2, Unpacker};
use crate::sys::AlignedBuffer;

/// Reads chunks; each thread has one, with its buffers.
pub(super) struct ChunkReader<'c> {
    image: &'c Image,
    chunk: AlignedBuffer,
    packed: Packed<'c>,
}

/// Compressed clusters that wait to be unpacked. Those of a chunk lie beside
/// each other in the file, as a rule, and are read in one go.
#[derive(Default)]
struct Packed<'c> {
    waiting: Vec<Waiting<'c>>,
    bytes: Vec<u8>,
    cluster: Vec<u8>,
    unpacker: Option<(Compression, Unpacker)>,
}

struct Waiting<'c> {
    image: &'c Qcow2,
    cluster: CompressedCluster,
    within: usize,
    into: Range<usize>,
}

impl<'c> ChunkReader<'c> {
    pub(super) fn new(image: &'c Image) -> Self {
        Self {
            image,
            chunk: AlignedBuffer::zeroed(usize::try_from(CHUNK).unwrap_or(1 << 20)),
            packed: Packed::default(),
        }
    }

    /// Reads a chunk of the disk.
    pub(super) fn read(&mut self, chunk: &Range<u64>) -> Result<&[u8]> {
        let mut at = chunk.start;
        while at < chunk.end {
            let located = self.image.locate(at, chunk.end - at)?;
            let into = within(chunk, at, located.length);
            match located.place {
                Place::Nowhere | Place::Zero { .. } => self.chunk[into].fill(0),
                Place::Plain { device, offset } => {
                    read_to_end(device, &mut self.chunk[into], offset)?;
                }
                Place::Packed {
                    image,
                    cluster,
                    within,
                } => self.packed.waiting.push(Waiting {
                    image,
                    cluster,
                    within: usize::try_from(within).unwrap_or(0),
                    into,
                }),
            }
            at += located.length;
        }
        self.packed.unpack_into(&mut self.chunk)?;
        let length = usize::try_from(chunk.end - chunk.start).unwrap_or(0);
        Ok(&self.chunk[..length])
    }
}

/// A device that ends within an image's last cluster reads as zeroes there,
/// also where a run of subclusters begins behind its end. What lies further
/// out was not mapped.
fn read_to_end(device: &dyn crate::device::Source, into: &mut [u8], offset: u64) -> Result<()> {
    let size = device.size()?;
    let there = size.saturating_sub(offset).min(into.len() as u64);
    let (present, absent) = into.split_at_mut(usize::try_from(there).unwrap_or(0));
    if !present.is_empty() {
        device.read_at(present, offset)?;
    }
    absent.fill(0);
    Ok(())
}

fn within(chunk: &Range<u64>, at: u64, length: u64) -> Range<usize> {
    let start = usize::try_from(at - chunk.start).unwrap_or(0);
    start..start + usize::try_from(length).unwrap_or(0)
}

/// Packed clusters further apart than this are read one by one. Those of a
/// chunk take less, as a rule.
pub(super) const MOST_AT_ONCE: u64 = CHUNK;

impl Packed<'_> {
    fn unpack_into(&mut self, chunk: &mut [u8]) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = &waiting[..];
        while let Some(first) = rest.first() {
            let together = rest
                .iter()
                .take_while(|next| fits_with(first, next))
                .count()
                .max(1);
            let (now, later) = rest.split_at(together);
            self.unpack_together(now, chunk)?;
            rest = later;
        }
        self.waiting = waiting;
        self.waiting.clear();
        Ok(())
    }

    fn unpack_together(&mut self, clusters: &[Waiting<'_>], chunk: &mut [u8]) -> Result<()> {
        let Some(first) = clusters.first() else {
            return Ok(());
        };
        let image = first.image;
        let start = clusters
            .iter()
            .map(|next| next.cluster.offset.0)
            .min()
            .unwrap_or(0);
        let ends = clusters
            .iter()
            .map(|next| next.cluster.offset.0 + next.cluster.length);
        let span = CompressedCluster {
            offset: crate::qcow2::HostOffset(start),
            length: ends.max().unwrap_or(0) - start,
        };
        image.read_packed(span, &mut self.bytes)?;
        let compression = image.header().compression;
        if self
            .unpacker
            .as_ref()
            .is_none_or(|(of, _)| *of != compression)
        {
            self.unpacker = Some((compression, Unpacker::new(compression)));
        }
        let Some((_, unpacker)) = &mut self.unpacker else {
            return Ok(());
        };
        let size = image.header().cluster.buffer_len();
        for next in clusters {
            let from = usize::try_from(next.cluster.offset.0 - start).unwrap_or(0);
            let length = usize::try_from(next.cluster.length).unwrap_or(0);
            let to = (from + length).min(self.bytes.len());
            let packed = self.bytes.get(from..to).unwrap_or_default();
            let outcome = if next.into.len() == size {
                unpacker.unpack(packed, &mut chunk[next.into.clone()])
            } else {
                self.cluster.resize(size, 0);
                let outcome = unpacker.unpack(packed, &mut self.cluster);
                let piece = next.within..next.within + next.into.len();
                chunk[next.into.clone()].copy_from_slice(&self.cluster[piece]);
                outcome
            };
            outcome.map_err(|error| error.of(image.name()))?;
        }
        Ok(())
    }
}

fn fits_with(first: &Waiting<'_>, next: &Waiting<'_>) -> bool {
    let start = first.cluster.offset.0;
    let end = next.cluster.offset.0.saturating_add(next.cluster.length);
    std::ptr::eq(first.image, next.image)
        && next.cluster.offset.0 >= start
        && end - start <= MOST_AT_ONCE
}
