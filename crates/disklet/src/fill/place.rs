//! Where the disk of a volume goes.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use disklet_block::device::{Access, Caching, FileDevice, HELD, ReadAt, Size};
use disklet_block::error::{Error as BlockError, ErrorKind};
use disklet_block::new_file::directory_of;

use super::interim;
use super::{FillError, FillErrorKind};

/// The file that is the disk of a filesystem volume.
const DISK_IMAGE: &str = "disk.img";

/// What filesystems put there themselves.
const OF_FILESYSTEMS: [&str; 1] = ["lost+found"];

/// What may be there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing: what is there is left alone.
    Nothing,
    /// Anything: it is given up.
    Anything,
}

/// A place for a disk.
#[derive(Debug)]
pub(super) enum Place {
    /// A file that is not there yet, or one that is given up and that nobody uses, nor
    /// begins to as long as it is held.
    File(PathBuf, Option<FileDevice>),
    /// A device that nobody else has open.
    Device(FileDevice),
}

impl Place {
    pub(super) fn find(target: &Path, before: Before) -> Result<Self, FillError> {
        Self::find_around(target, before, None)
    }

    /// Where an upload with this id may have left a file.
    pub(super) fn find_around(
        target: &Path,
        before: Before,
        id: Option<&str>,
    ) -> Result<Self, FillError> {
        match fs::metadata(target).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_block_device() => device(target, before).map(Self::Device),
            Ok(kind) if kind.is_dir() => volume(target, before, id),
            Ok(kind) if kind.is_file() => file(target, before),
            Ok(_) => {
                let what = format!("{}: is neither a file nor a device", target.display());
                Err(FillError::new(FillErrorKind::Target, what))
            }
            Err(_) => file(target, before),
        }
    }
}

impl Place {
    /// The file that is the disk of a target; nothing if that is a device.
    pub(super) fn path(target: &Path) -> Option<PathBuf> {
        match fs::metadata(target).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_block_device() => None,
            Ok(kind) if kind.is_dir() => Some(target.join(DISK_IMAGE)),
            _ => Some(target.to_owned()),
        }
    }
}

/// A volume that is mounted: nothing else is in it.
fn volume(directory: &Path, before: Before, id: Option<&str>) -> Result<Place, FillError> {
    let disk = directory.join(DISK_IMAGE);
    let ours = id.map(|id| interim::name(&disk, id));
    let failed = |error| unusable(directory, error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let is_expected = |known: &str| name == known;
        let is_ours = ours.as_deref().is_some_and(is_expected);
        if !is_ours && !is_expected(DISK_IMAGE) && !OF_FILESYSTEMS.into_iter().any(is_expected) {
            let what = format!(
                "{}: holds {} already",
                directory.display(),
                name.to_string_lossy().escape_debug()
            );
            return Err(FillError::new(FillErrorKind::Occupied, what)
                .help("a volume with a disk holds nothing else: take an empty one"));
        }
    }
    file(&disk, before)
}

fn file(path: &Path, before: Before) -> Result<Place, FillError> {
    let directory = directory_of(path).map_err(|error| unusable(path, error))?;
    if !directory.is_dir() {
        let what = format!("{}: there is no such directory", directory.display());
        return Err(FillError::new(FillErrorKind::Target, what));
    }
    match fs::symlink_metadata(path).map(|meta| meta.file_type()) {
        Ok(kind) if !kind.is_file() => {
            let what = format!("{}: is a link, or no file", path.display());
            Err(FillError::new(FillErrorKind::Target, what).help("name the file itself"))
        }
        Ok(_) if before == Before::Nothing => Err(occupied(path, "is there already")),
        Ok(_) => Ok(Place::File(path.to_owned(), Some(given_up(path)?))),
        Err(_) => Ok(Place::File(path.to_owned(), None)),
    }
}

/// What is given up must not be somebody's disk: they would go on with a file that has
/// no name any more.
fn given_up(path: &Path) -> Result<FileDevice, FillError> {
    let failed = |error| unlocked(path, error, "stop the VM or program that uses it first");
    let old = FileDevice::open_writable(path, Caching::Buffered).map_err(failed)?;
    old.lock(Access::Change).map_err(failed)?;
    Ok(old)
}

/// A device whose beginning is empty has no disk, or one that was never complete.
fn device(path: &Path, before: Before) -> Result<FileDevice, FillError> {
    let help = "unmount it, or stop the VM or program that uses it first";
    let failed = |error| unlocked(path, error, help);
    let device = FileDevice::open_exclusive(path, Caching::Direct).map_err(failed)?;
    device.lock(Access::Change).map_err(failed)?;
    let size = device.size().map_err(failed)?;
    let held = usize::try_from(size.min(HELD)).unwrap_or(0);
    let mut beginning = vec![0; held];
    device.read_at(&mut beginning, 0).map_err(failed)?;
    let is_empty = beginning.iter().all(|byte| *byte == 0);
    match is_empty || before == Before::Anything {
        true => Ok(device),
        false => Err(occupied(path, "has data in it already")),
    }
}

fn unlocked(path: &Path, error: BlockError, help: &str) -> FillError {
    let kind = match error.kind() {
        ErrorKind::Busy => FillErrorKind::Busy,
        _ => FillErrorKind::Target,
    };
    FillError::new(kind, format!("{}: cannot be filled", path.display()))
        .because(error)
        .help(help)
}

fn occupied(path: &Path, how: &str) -> FillError {
    let what = format!("{}: {how}", path.display());
    FillError::new(FillErrorKind::Occupied, what).help("--replace gives up what is there")
}

fn unusable(path: &Path, error: std::io::Error) -> FillError {
    let what = format!("{}: cannot be used", path.display());
    FillError::new(FillErrorKind::Target, what).because(error)
}
