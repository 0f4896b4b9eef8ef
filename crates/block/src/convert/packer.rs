//! Packing clusters.

use zlib_rs::{Deflate, DeflateFlush, Status};
use zstd_safe::CCtx;

use crate::qcow2::{ClusterSize, Compression};

/// QEMU inflates with a window of 4 KiB and cannot read clusters that reach
/// further back.
const ZLIB_WINDOW_BITS: u8 = 12;

/// Within a percent of the size that QEMU's zlib reaches, at less than half of
/// its time. (Level 1 of the library fails with a window this small.)
const ZLIB_LEVEL: i32 = 5;

/// Two percent larger than QEMU's level 3, at two thirds of its time.
const ZSTD_LEVEL: i32 = 1;

/// What the libraries keep between clusters, and more than that.
const STATE: u64 = 1 << 20;

/// Packs clusters; each thread has one.
pub(super) struct Packer {
    codec: Codec,
    out: Vec<u8>,
}

enum Codec {
    Zlib(Box<Deflate>),
    Zstd(CCtx<'static>),
}

impl Packer {
    pub(super) fn new(compression: Compression) -> Self {
        let codec = match compression {
            Compression::Zlib => {
                Codec::Zlib(Box::new(Deflate::new(ZLIB_LEVEL, false, ZLIB_WINDOW_BITS)))
            }
            Compression::Zstd => Codec::Zstd(CCtx::create()),
        };
        Self {
            codec,
            out: Vec::new(),
        }
    }

    /// How much memory one takes.
    pub(super) fn memory(compression: Compression, cluster: ClusterSize) -> u64 {
        let out = match compression {
            Compression::Zlib => most_deflated(cluster.buffer_len()),
            Compression::Zstd => cluster.buffer_len(),
        };
        out as u64 + STATE
    }

    /// The packed cluster, or nothing if it would not become smaller.
    pub(super) fn pack(&mut self, cluster: &[u8]) -> Option<&[u8]> {
        let length = match &mut self.codec {
            Codec::Zlib(deflate) => {
                self.out.resize(most_deflated(cluster.len()), 0);
                deflate.reset();
                let status = deflate.compress(cluster, &mut self.out, DeflateFlush::Finish);
                match status {
                    Ok(Status::StreamEnd) => usize::try_from(deflate.total_out()).ok()?,
                    _ => return None,
                }
            }
            Codec::Zstd(context) => {
                self.out.resize(cluster.len(), 0);
                context
                    .compress(&mut self.out[..], cluster, ZSTD_LEVEL)
                    .ok()?
            }
        };
        (length < cluster.len()).then(|| &self.out[..length])
    }
}

/// What deflate makes of bytes at worst: nine bits of each, and some around
/// every 16 thousand. It is given room for that even where it will not pay. Of
/// a stream that is cut short and reset, the library (0.6.8) does not give back
/// the buffer that was pending, and panics once nothing is left of it.
fn most_deflated(length: usize) -> usize {
    length + length / 8 + length / 64 + 64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qcow2::Unpacker;

    #[test]
    fn packed_clusters_come_back() {
        for compression in [Compression::Zlib, Compression::Zstd] {
            let mut packer = Packer::new(compression);
            let mut unpacker = Unpacker::new(compression);
            for bits in [9, 12, 16, 21] {
                let cluster: Vec<u8> = (0..1usize << bits)
                    .map(|n| u8::try_from(n / 7 % 251).unwrap())
                    .collect();
                let packed = packer.pack(&cluster).unwrap().to_vec();
                assert!(packed.len() < cluster.len());
                let mut back = vec![0; cluster.len()];
                unpacker.unpack(&packed, &mut back).unwrap();
                assert!(back == cluster);
            }
        }
    }

    /// However much of it comes.
    #[test]
    fn noise_is_not_packed() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .take(1 << 18)
        .collect();
        for compression in [Compression::Zlib, Compression::Zstd] {
            for bits in [9, 12, 14, 16, 18] {
                let mut packer = Packer::new(compression);
                for cluster in noise.chunks(1 << bits).take(200) {
                    assert_eq!(packer.pack(cluster), None);
                }
            }
        }
    }
}
