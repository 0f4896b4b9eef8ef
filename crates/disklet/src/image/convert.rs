//! `disklet image convert`.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use disklet_block::convert::{Before, Options, Packing, fitting_threads, to_qcow2, to_raw};
use disklet_block::device::{Caching, FileDevice, Size};
use disklet_block::image::Image;
use disklet_block::ops::{clone, create_raw};
use disklet_block::qcow2::{ClusterSize, Compression, NewImage};

use super::args::ConvertArgs;
use super::copied::Copied;
use super::create::NO_METADATA;
use super::open::{open, open_to_overwrite};
use super::options::{Compress, ImageFormat, Preallocate};
use super::replaced::Replaced;
use super::size::ByteCount;
use super::stream::Stream;
use super::{Answer, Failure, stream};
use disklet::progress::Progress;
use disklet_block::new_file::{Existing, NewFile};

pub(super) fn convert(args: &ConvertArgs) -> Result<Answer, Failure> {
    refuse(args)?;
    let copied = match Stream::of(args)? {
        Some(stream) => stream::convert(args, stream)?,
        None => convert_image(args)?,
    };
    Ok(Answer::yes(copied.told(args.output.output)))
}

/// What cannot be together.
fn refuse(args: &ConvertArgs) -> Result<(), Failure> {
    let sets_aside = args.preallocation != Preallocate::Off;
    let problem = match args.output_format {
        ImageFormat::Raw if args.compress.is_some() => "a raw image cannot be compressed",
        ImageFormat::Raw if args.preallocation == Preallocate::Metadata => NO_METADATA,
        ImageFormat::Raw if sets_aside && is_device(&args.to) => {
            "a block device has its space already; leave --preallocation out"
        }
        ImageFormat::Qcow2 if sets_aside => {
            "space cannot be set aside in a copy that is qcow2, only in a raw one or a new image (create)"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(problem))
}

fn convert_image(args: &ConvertArgs) -> Result<Copied, Failure> {
    let image = open(&args.source, &args.from)?;
    let size = image.size()?;
    if let Some(ByteCount(most)) = args.max_size
        && size > most
    {
        return Err(Failure::new(format!(
            "{}: the disk has {size} bytes, more than {most}",
            args.from.display()
        )));
    }
    let progress = Progress::new(Some(size), args.progress);
    let outcome = match args.output_format {
        ImageFormat::Raw if is_device(&args.to) => onto_device(args, &image, &progress),
        ImageFormat::Raw => into_file(&args.to, |file| fill_raw(args, &image, file, &progress)),
        ImageFormat::Qcow2 => to_new_qcow2(args, &image, &progress),
    };
    progress.end();
    outcome
}

/// Into a file that gets its name when it is complete.
pub(super) fn into_file(
    to: &Path,
    fill: impl FnOnce(&FileDevice) -> Result<Copied, Failure>,
) -> Result<Copied, Failure> {
    let name = to.display();
    let failed = |error: std::io::Error| Failure::new(format!("{name}: cannot be made: {error}"));
    let replaced = Replaced::at(to)?;
    let new = NewFile::create(&replaced.path, Existing::Replace).map_err(failed)?;
    let file = new.file().map_err(failed)?;
    replaced.pass_on(&file).map_err(failed)?;
    let device = FileDevice::new(file, name.to_string(), Caching::Direct)?;
    let copied = fill(&device)?;
    new.name().map_err(failed)?;
    Ok(copied)
}

fn fill_raw(
    args: &ConvertArgs,
    image: &Image,
    file: &FileDevice,
    progress: &Progress,
) -> Result<Copied, Failure> {
    if args.preallocation == Preallocate::Off {
        let cloned = clone(image, file, threads(args, image, file), progress)?;
        return Ok(Copied::Disk(cloned));
    }
    create_raw(file, image.size()?, args.preallocation.into())?;
    let options = Options {
        threads: threads(args, image, file),
        target: Before::KeptZeroes,
        // Shared blocks would take the place of those set aside.
        share: false,
    };
    Ok(Copied::written(to_raw(image, file, &options, progress)?))
}

fn onto_device(args: &ConvertArgs, image: &Image, progress: &Progress) -> Result<Copied, Failure> {
    let device = open_to_overwrite(&args.to)?;
    let (there, needed) = (device.size()?, image.size()?);
    if there < needed {
        return Err(Failure::new(format!(
            "{}: the device has {there} bytes, fewer than the {needed} of the disk",
            device.name()
        )));
    }
    let options = Options {
        threads: threads(args, image, &device),
        target: Before::Anything,
        share: false,
    };
    Ok(Copied::written(to_raw(image, &device, &options, progress)?))
}

fn to_new_qcow2(args: &ConvertArgs, image: &Image, progress: &Progress) -> Result<Copied, Failure> {
    let spec = NewImage {
        cluster: cluster(args.cluster_size)?,
        compression: match args.compress {
            Some(Compress::Zstd) => Compression::Zstd,
            Some(Compress::Zlib) | None => Compression::Zlib,
        },
        // As QEMU does; what is behind the end reads as zeroes.
        ..NewImage::of_size(image.size()?.next_multiple_of(512))
    };
    let packing = match args.compress {
        Some(_) => Packing::Packed,
        None => Packing::Plain,
    };
    let threads = args.threads.unwrap_or_else(|| cores().min(MOST_PACKING));
    into_file(&args.to, |file| {
        let report = to_qcow2(image, file, &spec, packing, threads, progress)?;
        Ok(Copied::written(report))
    })
}

/// What these make waits for its turn, and takes memory.
const MOST_PACKING: usize = 8;

fn threads(args: &ConvertArgs, image: &Image, target: &FileDevice) -> usize {
    args.threads
        .unwrap_or_else(|| fitting_threads(image, target))
}

pub(super) fn is_device(path: &Path) -> bool {
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
        Failure::usage(format!(
            "{} is no cluster size: a power of two from 512 to 2M",
            size.0
        ))
    })
}
