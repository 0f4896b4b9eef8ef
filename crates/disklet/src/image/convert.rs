//! `disklet image convert`.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use disklet_block::convert::{Before, Options, Packing, Report, to_qcow2, to_raw};
use disklet_block::device::{Caching, FileDevice, Resize, Size};
use disklet_block::image::Image;
use disklet_block::qcow2::{ClusterSize, Compression, NewImage};
use disklet_core::units::ByteSize;

use super::args::{Compress, ImageFormat, Progress as WantedProgress, SourceArgs};
use super::new_file::{Existing, NewFile};
use super::progress::Progress;
use super::size::ByteCount;
use super::{Answer, Failure, open};

/// What is to be converted into what.
pub(super) struct Wanted<'w> {
    pub(super) source: &'w SourceArgs,
    pub(super) format: ImageFormat,
    pub(super) compress: Option<Compress>,
    pub(super) cluster_size: ByteCount,
    pub(super) threads: Option<usize>,
    pub(super) progress: WantedProgress,
    pub(super) from: &'w Path,
    pub(super) to: &'w Path,
}

pub(super) fn convert(wanted: &Wanted<'_>) -> Result<Answer, Failure> {
    if wanted.compress.is_some() && wanted.format == ImageFormat::Raw {
        return Err(Failure::new("a raw image cannot be compressed").with_code(2));
    }
    let image = open(wanted.source, wanted.from)?;
    let progress = Progress::new(image.size()?, wanted.progress);
    let outcome = match wanted.format {
        ImageFormat::Raw if is_device(wanted.to) => onto_device(wanted, &image, &progress),
        ImageFormat::Raw => into_file(wanted, |device| {
            device.resize(image.size()?)?;
            let options = options(wanted, Before::Zeroes);
            Ok(to_raw(&image, device, &options, &progress)?)
        }),
        ImageFormat::Qcow2 => {
            let spec = NewImage {
                cluster: cluster(wanted.cluster_size)?,
                compression: match wanted.compress {
                    Some(Compress::Zstd) => Compression::Zstd,
                    Some(Compress::Zlib) | None => Compression::Zlib,
                },
                ..NewImage::of_size(image.size()?)
            };
            let packing = match wanted.compress {
                Some(_) => Packing::Packed,
                None => Packing::Plain,
            };
            into_file(wanted, |device| {
                let threads = wanted.threads.unwrap_or_else(cores);
                Ok(to_qcow2(
                    &image, device, &spec, packing, threads, &progress,
                )?)
            })
        }
    };
    progress.end();
    Ok(Answer::Text(told(&outcome?)))
}

/// Into a file that gets its name when it is complete.
fn into_file(
    wanted: &Wanted<'_>,
    fill: impl FnOnce(&FileDevice) -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    let name = wanted.to.display();
    let failed = |error: std::io::Error| Failure::new(format!("{name}: cannot be made: {error}"));
    let new = NewFile::create(wanted.to, Existing::Replace).map_err(failed)?;
    let device = FileDevice::new(
        new.file().map_err(failed)?,
        name.to_string(),
        Caching::Direct,
    )?;
    let report = fill(&device)?;
    new.name().map_err(failed)?;
    Ok(report)
}

fn onto_device(wanted: &Wanted<'_>, image: &Image, progress: &Progress) -> Result<Report, Failure> {
    let device = FileDevice::open_writable(wanted.to, Caching::Direct)?;
    let options = options(wanted, Before::Anything);
    Ok(to_raw(image, &device, &options, progress)?)
}

fn options(wanted: &Wanted<'_>, target: Before) -> Options {
    Options {
        // Requests that pass the page cache by wait for the disk; more of them
        // than there are cores keep it busy.
        threads: wanted.threads.unwrap_or_else(|| cores().max(8)),
        target,
        share: true,
    }
}

fn is_device(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.file_type().is_block_device())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A cluster size from the command line.
pub(super) fn cluster(size: ByteCount) -> Result<ClusterSize, Failure> {
    let bits = size.0.is_power_of_two().then(|| size.0.trailing_zeros());
    bits.and_then(ClusterSize::from_bits).ok_or_else(|| {
        Failure::new(format!(
            "{} is no cluster size: a power of two from 512 to 2M",
            size.0
        ))
        .with_code(2)
    })
}

fn told(report: &Report) -> String {
    let size = |bytes| ByteSize::from_bytes(bytes).to_string();
    format!(
        "written: {}, shared with the source: {}, zeroes: {}\n",
        size(report.written),
        size(report.shared),
        size(report.zero)
    )
}
