//! Unpacking compressed clusters.

use libdeflater::Decompressor;
use zstd_safe::DCtx;

use super::header::Compression;
use crate::error::{Result, corrupt};

/// A packed cluster is at most 2 MiB when unpacked; whoever packs with a larger
/// window does not mean a cluster.
const MAX_ZSTD_WINDOW_LOG: u8 = 23;

/// Unpacks clusters; each thread has one, since the libraries keep state.
pub struct Unpacker {
    codec: Codec,
}

enum Codec {
    Zlib(Decompressor),
    Zstd(DCtx<'static>),
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.codec {
            Codec::Zlib(_) => "Unpacker(zlib)",
            Codec::Zstd(_) => "Unpacker(zstd)",
        })
    }
}

impl Unpacker {
    /// For clusters that are packed so.
    #[must_use]
    pub fn new(compression: Compression) -> Self {
        let codec = match compression {
            Compression::Zlib => Codec::Zlib(Decompressor::new()),
            Compression::Zstd => Codec::Zstd(DCtx::create()),
        };
        Self { codec }
    }

    /// Unpacks one cluster, which must fill `cluster` exactly. What follows
    /// the packed bytes in their last sector is not looked at.
    pub fn unpack(&mut self, packed: &[u8], cluster: &mut [u8]) -> Result<()> {
        let length = match &mut self.codec {
            Codec::Zlib(inflater) => inflater
                .deflate_decompress(packed, cluster)
                .map_err(|_| corrupt("a compressed cluster cannot be unpacked"))?,
            Codec::Zstd(context) => unpack_zstd(context, packed, cluster)?,
        };
        if length != cluster.len() {
            return Err(corrupt("a compressed cluster is shorter than a cluster"));
        }
        Ok(())
    }
}

/// In one go, which needs no window besides the cluster. A frame says where it
/// ends; what follows it is padding.
fn unpack_zstd(context: &mut DCtx<'static>, packed: &[u8], cluster: &mut [u8]) -> Result<usize> {
    let failed = |_| corrupt("a compressed cluster cannot be unpacked");
    if window_log(packed) > MAX_ZSTD_WINDOW_LOG {
        return Err(corrupt(
            "a compressed cluster claims a window much larger than a cluster",
        ));
    }
    let length = zstd_safe::find_frame_compressed_size(packed).map_err(failed)?;
    let frame = packed.get(..length).unwrap_or(packed);
    context.decompress(cluster, frame).map_err(failed)
}

/// The window that a frame claims; 0 if it is as large as what is packed.
fn window_log(frame: &[u8]) -> u8 {
    const SINGLE_SEGMENT: u8 = 1 << 5;
    match frame {
        [_, _, _, _, descriptor, window, ..] if descriptor & SINGLE_SEGMENT == 0 => {
            10 + (window >> 3)
        }
        _ => 0,
    }
}
