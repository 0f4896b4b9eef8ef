//! The arguments of `disklet image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::options::{
    ChainArgs, Compress, FormatArgs, ImageFormat, OutputArgs, Preallocate, ShareArgs, SourceArgs,
    Unwrap,
};
use super::size::{ByteCount, NewSize};
use disklet::progress::ProgressForm;

/// Work with disk images: look at them, make, convert, check and compare them
///
/// The format of an image is stated with --format. A disk that a guest could
/// write must never be opened by what its first bytes say: a guest can write a
/// qcow2 header onto its raw disk that names any file of the host.
///
/// Images are locked as QEMU locks them: one that a VM is writing is not read,
/// and no VM starts on one that is being changed.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    Info(InfoArgs),
    Create(CreateArgs),
    Convert(ConvertArgs),
    Resize(ResizeArgs),
    Check(CheckArgs),
    Map(MapArgs),
    Compare(CompareArgs),
    Measure(MeasureArgs),
}

/// Show what an image is
///
/// Files that it names are told, and not opened.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The image
    pub(crate) file: PathBuf,
}

/// Make a new image
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Format of the new image
    #[arg(short, long, value_enum)]
    pub(crate) format: ImageFormat,
    /// Bytes of a cluster (qcow2)
    #[arg(long, default_value = "64K", value_name = "SIZE")]
    pub(crate) cluster_size: ByteCount,
    /// What space to set aside
    #[arg(long, value_enum, default_value_t = Preallocate::Off, value_name = "MODE")]
    pub(crate) preallocation: Preallocate,
    /// Lay it over this image (qcow2); named in the image as given here
    #[arg(short, long, value_name = "FILE", requires = "backing_format")]
    pub(crate) backing: Option<PathBuf>,
    /// Format of the image below
    #[arg(short = 'F', long, value_enum, value_name = "FORMAT")]
    pub(crate) backing_format: Option<ImageFormat>,
    /// The new file; it must not exist
    pub(crate) file: PathBuf,
    /// Size of the disk, such as 10G; the size of the image below if absent
    pub(crate) size: Option<ByteCount>,
}

/// Copy a disk into a new image
///
/// On filesystems that can, the copy of a disk in a file shares its blocks with
/// the source.
///
/// An image out of a pipe, or one inside gzip, xz or zstd, is converted as it
/// comes, to a raw disk. If its tables come late, its data is kept in a file
/// without a name meanwhile.
#[derive(Debug, Args)]
#[command(after_long_help = CONVERT_EXAMPLES)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// What the image is wrapped in [default: none, or with --trust-magic what
    /// its first bytes say]
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) unwrap: Option<Unwrap>,
    /// Refuse a disk that is larger than this
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<ByteCount>,
    /// Where to keep data whose place is not known yet, of an image out of a
    /// pipe [default: beside the new file; /var/tmp for a block device]
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// Format of the new image
    #[arg(short = 'O', long, value_enum, value_name = "FORMAT")]
    pub(crate) output_format: ImageFormat,
    /// Pack clusters (qcow2)
    #[arg(short, long, value_enum, value_name = "KIND")]
    pub(crate) compress: Option<Compress>,
    /// Bytes of a cluster (qcow2)
    #[arg(long, default_value = "64K", value_name = "SIZE")]
    pub(crate) cluster_size: ByteCount,
    /// What space to set aside (raw)
    #[arg(long, value_enum, default_value_t = Preallocate::Off, value_name = "MODE")]
    pub(crate) preallocation: Preallocate,
    /// Threads that work, at most 64, and at most as many as have room in 96 MiB
    /// of memory [default: by what the target is]
    #[arg(short, long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// How to tell how far it has come
    #[arg(long, value_enum, default_value_t = ProgressForm::Auto)]
    pub(crate) progress: ProgressForm,
    /// The image to copy; - for standard input
    pub(crate) from: PathBuf,
    /// The new file, replaced if it exists; or a block device
    pub(crate) to: PathBuf,
}

const CONVERT_EXAMPLES: &str = "\
Examples:
  disklet image convert -f qcow2 -O raw disk.qcow2 disk.raw
  disklet image convert -f raw -O qcow2 -c zstd disk.raw disk.qcow2
  curl https://example.com/disk.qcow2 | disklet image convert -f qcow2 -O raw - /dev/vg/disk
  disklet image convert -f raw --unwrap xz -O raw disk.img.xz disk.raw";

/// Make the disk in an image larger or smaller
///
/// What is in the disk, partitions and filesystems, stays as it is: make it
/// smaller there before, and larger afterwards. The disk of a running VM is not
/// touched: QEMU itself has to resize it.
#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) chain: ChainArgs,
    /// Let the disk become smaller; what lies beyond is lost
    #[arg(long)]
    pub(crate) shrink: bool,
    /// The image
    pub(crate) file: PathBuf,
    /// The new size, such as 10G; with + or - so much more or less
    #[arg(allow_hyphen_values = true, value_name = "SIZE|+SIZE|-SIZE")]
    pub(crate) size: NewSize,
}

/// Find out whether an image is sound
///
/// The image's own tables are compared with each other; its data is not read,
/// and images below it are not looked at. Nothing is repaired.
///
/// Exit code 0: sound; 1: it could not be checked, or wrong usage; 2: corrupt;
/// 3: space is lost, nothing else; 63: images of this format have nothing that
/// could be checked.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The image
    pub(crate) file: PathBuf,
}

/// Show where the bytes of a disk are
#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The image
    pub(crate) file: PathBuf,
}

/// Say whether two disks have the same bytes
///
/// Exit code 0: the same; 1: they differ; 2: it cannot be said, or wrong usage.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Format of the second image [default: that of the first]
    #[arg(short = 'F', long, value_enum, value_name = "FORMAT")]
    pub(crate) second_format: Option<ImageFormat>,
    /// Disks of different sizes differ, even if the rest is zeroes
    #[arg(short, long)]
    pub(crate) strict: bool,
    /// The one
    pub(crate) first: PathBuf,
    /// The other
    pub(crate) second: PathBuf,
}

/// Say how much space a copy would take
///
/// It is told for clusters that are not packed. How small they become is known
/// only once they have been packed, so that a packed copy takes at most about
/// as much; qemu-img measures the same.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Format of the copy
    #[arg(short = 'O', long, value_enum, value_name = "FORMAT")]
    pub(crate) output_format: ImageFormat,
    /// The image
    pub(crate) file: PathBuf,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=64) => Ok(threads),
        _ => Err("a number from 1 to 64 is expected".to_owned()),
    }
}
