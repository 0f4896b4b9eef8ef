//! The arguments of `disklet image`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::size::ByteCount;

/// Work with disk images: look at them, make, convert and compare them
///
/// The format of an image is stated with --format. A disk that a guest could
/// write must never be opened by what its first bytes say: a guest can write a
/// qcow2 header onto its raw disk that names any file of the host.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Show what an image is
    Info {
        #[command(flatten)]
        source: SourceArgs,
        #[command(flatten)]
        output: OutputArgs,
        /// The image
        file: PathBuf,
    },
    /// Make a new image
    Create {
        /// Format of the new image
        #[arg(short, long, value_enum)]
        format: ImageFormat,
        /// Bytes of a cluster (qcow2)
        #[arg(long, default_value = "64K", value_name = "SIZE")]
        cluster_size: ByteCount,
        /// Lay it over this image (qcow2); named in the image as given here
        #[arg(short, long, value_name = "FILE", requires = "backing_format")]
        backing: Option<PathBuf>,
        /// Format of the image below
        #[arg(short = 'F', long, value_enum, value_name = "FORMAT")]
        backing_format: Option<ImageFormat>,
        /// The new file; it must not exist
        file: PathBuf,
        /// Size of the disk, such as 10G; the size of the image below if absent
        size: Option<ByteCount>,
    },
    /// Copy a disk into a new image
    Convert {
        #[command(flatten)]
        source: SourceArgs,
        /// Format of the new image
        #[arg(short = 'O', long, value_enum, value_name = "FORMAT")]
        output_format: ImageFormat,
        /// Pack clusters (qcow2)
        #[arg(short, long, value_enum, value_name = "KIND")]
        compress: Option<Compress>,
        /// Bytes of a cluster (qcow2)
        #[arg(long, default_value = "64K", value_name = "SIZE")]
        cluster_size: ByteCount,
        /// Threads that work [default: by what the target is]
        #[arg(short, long, value_name = "N")]
        threads: Option<usize>,
        /// How to tell how far it has come
        #[arg(long, value_enum, default_value_t = Progress::Auto)]
        progress: Progress,
        /// The image to copy
        from: PathBuf,
        /// The new file, replaced if it exists; or a block device
        to: PathBuf,
    },
    /// Show where the bytes of a disk are
    Map {
        #[command(flatten)]
        source: SourceArgs,
        #[command(flatten)]
        output: OutputArgs,
        /// The image
        file: PathBuf,
    },
    /// Say whether two disks have the same bytes
    ///
    /// Exit code 0: the same; 1: they differ; 2: wrong usage; 3: it cannot be
    /// said.
    Compare {
        #[command(flatten)]
        source: SourceArgs,
        /// Format of the second image [default: that of the first]
        #[arg(short = 'F', long, value_enum, value_name = "FORMAT")]
        second_format: Option<ImageFormat>,
        /// Disks of different sizes differ, even if the rest is zeroes
        #[arg(short, long)]
        strict: bool,
        /// The one
        first: PathBuf,
        /// The other
        second: PathBuf,
    },
    /// Say how much space a copy would take
    Measure {
        #[command(flatten)]
        source: SourceArgs,
        #[command(flatten)]
        output: OutputArgs,
        /// Format of the copy
        #[arg(short = 'O', long, value_enum, value_name = "FORMAT")]
        output_format: ImageFormat,
        /// The image
        file: PathBuf,
    },
}

/// How to open an image that exists.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Format of the image
    #[arg(short, long, value_enum, required_unless_present = "trust_magic")]
    pub(crate) format: Option<ImageFormat>,
    /// Take the format from the image's first bytes. Safe only for an image
    /// that no guest has ever written, such as one that you have just made or
    /// downloaded
    #[arg(long, conflicts_with = "format")]
    pub(crate) trust_magic: bool,
    /// Open files that the image names, if they are below this directory; may
    /// be given several times. Without it such images are refused
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_below: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Human)]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Human,
    /// With the field names of qemu-img
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImageFormat {
    /// Nothing around the bytes
    Raw,
    /// QEMU's copy-on-write format
    Qcow2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compress {
    /// Readable for every QEMU
    Zlib,
    /// Smaller and faster; QEMU 5.1 and later
    Zstd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// A bar on a terminal, else nothing
    Auto,
    /// A JSON object a line, on standard error
    Json,
    /// Nothing
    None,
}
