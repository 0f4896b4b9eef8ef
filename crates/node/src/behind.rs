//! What is behind devices: a loop device is another name of a file or a device.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use disklet::manifests::device_number;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::executor::Host;

/// What a disk of the machine is in the end, whatever names lead there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ground {
    /// By its number.
    Device(String),
    /// By its filesystem's number and its inode.
    File(u64, u64),
    /// A file that cannot be found any more, by the name that it had.
    Lost(PathBuf),
}

/// Loop devices over loop devices: nobody has so many.
const MOST_LAYERS: usize = 32;

impl Ground {
    /// Of a device, by its number.
    pub(crate) fn of_device(host: Host<'_>, number: &str) -> Self {
        let mut number = number.to_owned();
        for _ in 0..MOST_LAYERS {
            match file_behind(&number).map(|file| Self::at(host, &file)) {
                None => break,
                Some(Self::Device(below)) => number = below,
                Some(file) => return file,
            }
        }
        Self::Device(number)
    }

    /// Of a path of the machine.
    pub(crate) fn at(host: Host<'_>, path: &Path) -> Self {
        let open = host.open(path, OFlags::PATH | OFlags::NOFOLLOW);
        match open.ok().and_then(|open| open.metadata().ok()) {
            Some(meta) => Self::of(&meta),
            None => Self::Lost(path.to_owned()),
        }
    }

    /// Of what was looked at.
    pub(crate) fn of(meta: &fs::Metadata) -> Self {
        match meta.file_type().is_block_device() {
            true => Self::Device(device_number(meta.rdev()).to_string()),
            false => Self::File(meta.dev(), meta.ino()),
        }
    }

    /// Whether whoever writes to one writes to the other: both are one, or one is
    /// a partition of the other, by whatever names.
    pub(crate) fn overlaps(&self, other: &Self, host: Host<'_>) -> bool {
        self == other || self.is_within(other, host) || other.is_within(self, host)
    }

    fn is_within(&self, other: &Self, host: Host<'_>) -> bool {
        let mut part = self.clone();
        for _ in 0..MOST_LAYERS {
            let Some(disk) = part.disk() else { break };
            part = Self::of_device(host, &disk);
            if part == *other {
                return true;
            }
        }
        false
    }

    fn disk(&self) -> Option<String> {
        match self {
            Self::Device(number) => disk_of(number),
            Self::File(..) | Self::Lost(_) => None,
        }
    }
}

/// The file or device that a loop device was attached to, as the kernel names it.
pub(crate) fn file_behind(number: &str) -> Option<PathBuf> {
    let name = format!("/sys/dev/block/{number}/loop/backing_file");
    let name = fs::read(name).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
}

/// The number of the disk that a device is a partition of.
pub(crate) fn disk_of(number: &str) -> Option<String> {
    let device = Path::new("/sys/dev/block").join(number);
    if !device.join("partition").exists() {
        return None;
    }
    let disk = fs::canonicalize(device).ok()?.parent()?.join("dev");
    Some(fs::read_to_string(disk).ok()?.trim().to_owned())
}

/// A loop device that is attached to something.
#[derive(Debug)]
pub(crate) struct Loop {
    /// Below `/dev`.
    pub(crate) name: String,
    pub(crate) number: String,
    pub(crate) is_read_only: bool,
}

impl Loop {
    /// All that show this.
    pub(crate) fn over(ground: &Ground, host: Host<'_>) -> Vec<Self> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let loops = devices.filter_map(|device| {
            let about = |file: &str| fs::read_to_string(device.path().join(file)).ok();
            let number = about("dev")?.trim().to_owned();
            file_behind(&number)?;
            Some(Self {
                name: device.file_name().to_string_lossy().into_owned(),
                is_read_only: about("ro")?.trim() == "1",
                number,
            })
        });
        loops
            .filter(|it| Ground::of_device(host, &it.number) == *ground)
            .collect()
    }

    /// Whether it is mounted, or part of something else.
    pub(crate) fn is_claimed(&self, host: Host<'_>) -> bool {
        let path = Path::new("/dev").join(&self.name);
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK;
        matches!(host.open(&path, flags), Err(Errno::BUSY))
    }
}
