//! Arguments that several commands of `disklet image` share, and their values.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use disklet_block::device::Access;
use disklet_block::image::Format;
use disklet_block::qcow2::Preallocation;
use disklet_block::stream::Wrapping;

/// How to open an image that exists, with what lies below it.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) chain: ChainArgs,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// What an image is.
#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Format of the image
    #[arg(short, long, value_enum, required_unless_present = "trust_magic")]
    pub(crate) format: Option<ImageFormat>,
    /// Take the format from the image's first bytes. Safe only for an image
    /// that no guest has ever written, such as one that you have just made or
    /// downloaded
    #[arg(long, conflicts_with = "format")]
    pub(crate) trust_magic: bool,
}

/// What an image may name.
#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    /// Open files that the image names, if they are below this directory; may
    /// be given several times. Without it such images are refused
    #[arg(long, value_name = "DIR")]
    pub(crate) allow_below: Vec<PathBuf>,
}

/// What others may do meanwhile.
#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// Read the image even if somebody, such as a running VM, is writing to it;
    /// what is read may be half old and half new
    #[arg(short = 'U', long)]
    pub(crate) force_share: bool,
}

impl ShareArgs {
    pub(super) fn access(&self) -> Access {
        if self.force_share {
            Access::ReadAnyway
        } else {
            Access::Read
        }
    }
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
    /// For programs, with the field names of qemu-img where it has some
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImageFormat {
    /// Nothing around the bytes
    Raw,
    /// QEMU's copy-on-write format
    Qcow2,
}

impl From<ImageFormat> for Format {
    fn from(format: ImageFormat) -> Self {
        match format {
            ImageFormat::Raw => Self::Raw,
            ImageFormat::Qcow2 => Self::Qcow2,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compress {
    /// Readable for every QEMU
    Zlib,
    /// Smaller and faster; QEMU 5.1 and later
    Zstd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preallocate {
    /// None
    Off,
    /// Every cluster has its place in the file, which is sparse (qcow2)
    Metadata,
    /// The filesystem sets it aside
    Falloc,
    /// It is written with zeroes
    Full,
}

impl From<Preallocate> for Preallocation {
    fn from(wanted: Preallocate) -> Self {
        match wanted {
            Preallocate::Off => Self::Off,
            Preallocate::Metadata => Self::Metadata,
            Preallocate::Falloc => Self::Falloc,
            Preallocate::Full => Self::Full,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unwrap {
    /// Nothing
    None,
    /// gzip
    Gz,
    /// xz
    Xz,
    /// zstd
    Zst,
}

impl From<Unwrap> for Wrapping {
    fn from(wanted: Unwrap) -> Self {
        match wanted {
            Unwrap::None => Self::Plain,
            Unwrap::Gz => Self::Gzip,
            Unwrap::Xz => Self::Xz,
            Unwrap::Zst => Self::Zstd,
        }
    }
}
