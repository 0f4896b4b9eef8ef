//! Unpacking compressed clusters.

use libdeflater::Decompressor;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::header::Compression;
use crate::error::{Result, corrupt};

/// A packed cluster is at most 2 MiB when unpacked; a larger window could only
/// cost memory.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;

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
            Compression::Zstd => {
                let mut context = DCtx::create();
                // Refused only for values out of range, which this is not.
                let _ = context.set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG));
                Codec::Zstd(context)
            }
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

fn unpack_zstd(context: &mut DCtx<'static>, packed: &[u8], cluster: &mut [u8]) -> Result<usize> {
    let failed = |_| corrupt("a compressed cluster cannot be unpacked");
    context
        .reset(zstd_safe::ResetDirective::SessionOnly)
        .map_err(failed)?;
    let mut input = InBuffer::around(packed);
    let mut output = OutBuffer::around(cluster);
    while output.pos() < output.capacity() {
        let (read, written) = (input.pos(), output.pos());
        let rest = context
            .decompress_stream(&mut output, &mut input)
            .map_err(failed)?;
        let stuck = input.pos() == read && output.pos() == written;
        if rest == 0 || stuck {
            break;
        }
    }
    Ok(output.pos())
}
