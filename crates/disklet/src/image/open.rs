//! Opening images as arguments say.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use disklet_block::device::{Access, Caching, FileDevice, ReadAt, Size};
use disklet_block::error::{Error, ErrorKind, Result as BlockResult};
use disklet_block::gate::{BelowDirectories, Gate, NoImplicitFiles, Role};
use disklet_block::image::{Format, Image, MAGIC_REACH};

use super::Failure;
use super::options::{ChainArgs, FormatArgs, ImageFormat, SourceArgs};

/// Opens an image with what lies below it, for reading.
pub(super) fn open(source: &SourceArgs, path: &Path) -> Result<Image, Failure> {
    open_as(source, source.format.format, path)
}

pub(super) fn open_as(
    source: &SourceArgs,
    format: Option<ImageFormat>,
    path: &Path,
) -> Result<Image, Failure> {
    let access = source.share.access();
    let file = open_file(path, access)?;
    let format = match format {
        Some(format) => format.into(),
        None => by_magic(&file)?,
    };
    let gate = LockingGate::new(&source.chain, access)?;
    Image::open(file, format, &gate).map_err(reading_failed)
}

/// Opens a file for reading and keeps others from writing to it.
pub(super) fn open_file(path: &Path, access: Access) -> Result<FileDevice, Failure> {
    refuse_pipe(path)?;
    let file = FileDevice::open(path, Caching::Buffered)?;
    file.lock(access).map_err(reading_failed)?;
    Ok(file)
}

/// A pipe has no beginning to go back to; only `convert` can do without.
fn refuse_pipe(path: &Path) -> Result<(), Failure> {
    let kind = path.metadata().map(|meta| meta.file_type());
    if !kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device() || kind.is_socket()) {
        return Ok(());
    }
    let failure = Failure::new(format!(
        "{}: is neither a file nor a block device",
        path.display()
    ));
    Err(failure.with_help(
        "convert reads an image out of a pipe if it is named -, as in: … | disklet image convert -f qcow2 -O raw - disk.raw",
    ))
}

/// Opens a file or device to be changed, by nobody else meanwhile.
pub(super) fn open_to_change(path: &Path, caching: Caching) -> Result<FileDevice, Failure> {
    let file = FileDevice::open_writable(path, caching)?;
    file.lock(Access::Change)
        .map_err(|error| failed(error, "stop the VM or program that uses it first"))?;
    Ok(file)
}

/// Opens a block device that shall be overwritten.
pub(super) fn open_to_overwrite(path: &Path) -> Result<FileDevice, Failure> {
    let help = "unmount it, or stop the VM or program that uses it first";
    let device = FileDevice::open_exclusive(path, Caching::Direct);
    let device = device.map_err(|error| failed(error, help))?;
    device
        .lock(Access::Change)
        .map_err(|error| failed(error, help))?;
    Ok(device)
}

fn reading_failed(error: Error) -> Failure {
    let help = "stop the VM or program that uses it, or read what is there now with --force-share";
    failed(error, help)
}

/// With help for images that are in use.
fn failed(error: Error, help: &str) -> Failure {
    let is_busy = error.kind() == ErrorKind::Busy;
    let failure = Failure::from(error);
    if is_busy {
        failure.with_help(help)
    } else {
        failure
    }
}

/// The format of an open file.
pub(super) fn format_of(args: &FormatArgs, file: &FileDevice) -> Result<Format, Failure> {
    match args.format {
        Some(format) => Ok(format.into()),
        None => by_magic(file),
    }
}

/// What the first bytes say; only asked if the user trusts them.
fn by_magic(file: &FileDevice) -> Result<Format, Failure> {
    Format::by_magic(&first_bytes(file)?).map_err(|error| error.of(file.name()).into())
}

/// As many as any magic needs, if there are so many.
pub(super) fn first_bytes(file: &FileDevice) -> Result<Vec<u8>, Failure> {
    let mut start = [0; MAGIC_REACH];
    let length = usize::try_from(file.size()?).map_or(start.len(), |size| size.min(start.len()));
    file.read_at(&mut start[..length], 0)?;
    Ok(start[..length].to_vec())
}

/// Opens what images name as far as the user allows it, and keeps others from
/// writing to it.
pub(super) struct LockingGate {
    below: Option<BelowDirectories>,
    access: Access,
}

impl LockingGate {
    pub(super) fn new(chain: &ChainArgs, access: Access) -> Result<Self, Failure> {
        let mut directories = Vec::new();
        for directory in &chain.allow_below {
            directories.push(directory.canonicalize().map_err(|error| {
                Failure::new(format!("--allow-below {}: {error}", directory.display()))
            })?);
        }
        let below = (!directories.is_empty())
            .then(|| BelowDirectories::new(directories, Caching::Buffered));
        Ok(Self { below, access })
    }
}

impl Gate for LockingGate {
    fn open(&self, name: &str, role: Role, image: &FileDevice) -> BlockResult<FileDevice> {
        let file = match &self.below {
            Some(below) => below.open(name, role, image),
            None => NoImplicitFiles.open(name, role, image),
        }?;
        file.lock(self.access)?;
        Ok(file)
    }
}
