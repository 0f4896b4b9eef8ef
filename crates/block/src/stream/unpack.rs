//! Unpacking clusters whose packed length is not known exactly.
//!
//! L2 tables count in sectors, and the next packed cluster begins within the
//! last one. Where a packing really ends tells whether anything unknown lies
//! between two clusters, so decoders are used that say it.

use zlib_rs::{Inflate, InflateFlush};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::error::{Result, corrupt};
use crate::qcow2::Compression;

/// A packed cluster is at most 2 MiB when unpacked; a larger window could only
/// cost memory.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;

const ZLIB_WINDOW: u8 = 15;

pub(super) enum Unpacker {
    Zlib(Box<Inflate>),
    Zstd(DCtx<'static>),
}

impl Unpacker {
    pub(super) fn new(compression: Compression) -> Self {
        match compression {
            Compression::Zlib => Self::Zlib(Box::new(Inflate::new(false, ZLIB_WINDOW))),
            Compression::Zstd => {
                let mut context = DCtx::create();
                // Refused only for values out of range, which this is not.
                let _ = context.set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG));
                Self::Zstd(context)
            }
        }
    }

    /// Unpacks one cluster, which must fill `cluster` exactly. Returns how
    /// many of the packed bytes that took.
    pub(super) fn unpack(&mut self, packed: &[u8], cluster: &mut [u8]) -> Result<usize> {
        let (read, written) = match self {
            Self::Zlib(inflate) => inflate_cluster(inflate, packed, cluster)?,
            Self::Zstd(context) => unzstd_cluster(context, packed, cluster)?,
        };
        if written != cluster.len() {
            return Err(corrupt("a compressed cluster is shorter than a cluster"));
        }
        Ok(read)
    }
}

fn inflate_cluster(
    inflate: &mut Inflate,
    packed: &[u8],
    cluster: &mut [u8],
) -> Result<(usize, usize)> {
    inflate.reset(false);
    inflate
        .decompress(packed, cluster, InflateFlush::Finish)
        .map_err(|_| corrupt("a compressed cluster cannot be unpacked"))?;
    let count = |n: u64| usize::try_from(n).unwrap_or(0);
    Ok((count(inflate.total_in()), count(inflate.total_out())))
}

fn unzstd_cluster(
    context: &mut DCtx<'static>,
    packed: &[u8],
    cluster: &mut [u8],
) -> Result<(usize, usize)> {
    let failed = |_| corrupt("a compressed cluster cannot be unpacked");
    context
        .reset(zstd_safe::ResetDirective::SessionOnly)
        .map_err(failed)?;
    let mut input = InBuffer::around(packed);
    let mut output = OutBuffer::around(cluster);
    loop {
        let (read, written) = (input.pos(), output.pos());
        let outcome = context.decompress_stream(&mut output, &mut input);
        // With the cluster complete, what follows need not be a frame.
        if outcome.is_err() && output.pos() == output.capacity() {
            break;
        }
        let rest = outcome.map_err(failed)?;
        let stuck = input.pos() == read && output.pos() == written;
        if rest == 0 || stuck {
            break;
        }
    }
    Ok((input.pos(), output.pos()))
}
