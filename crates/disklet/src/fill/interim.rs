//! The file that is filled before the disk of a volume has its name.
//!
//! It is beside the disk, so that naming it is one step, and has a name that nobody
//! takes for a disk, so that an upload goes on after a crash.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use disklet_block::new_file::directory_of;

use super::Before;

/// The kernel's, for whoever does not want to be led elsewhere.
const O_NOFOLLOW: i32 = 0o400_000;

/// Where it is, and where it goes.
#[derive(Debug, Clone)]
pub(super) struct Interim {
    path: PathBuf,
    target: PathBuf,
}

impl Interim {
    /// Of the disk at a path.
    pub(super) fn of(target: &Path, id: &str) -> Self {
        Self {
            path: target.with_file_name(name(target, id)),
            target: target.to_owned(),
        }
    }

    /// A new one. Whatever has the name already is not ours.
    pub(super) fn create(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.mode(0o600).open(&self.path)?;
        // After a power cut, what the journal tells of is there.
        self.settle()?;
        Ok(file)
    }

    /// The one of before, if it is as long as it has to be.
    pub(super) fn reopen(&self, least: u64) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(O_NOFOLLOW);
        let file = options.open(&self.path)?;
        let meta = file.metadata()?;
        match meta.is_file() && meta.nlink() == 1 && meta.len() >= least {
            true => Ok(file),
            false => Err(io::Error::other("is not the file that was filled")),
        }
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes it what it will be, durably, but for its name.
    pub(super) fn finish(file: &File) -> io::Result<()> {
        // As other tools leave disk images: the group of the volume may write.
        file.set_permissions(Permissions::from_mode(0o660))?;
        file.sync_all()
    }

    /// Gives the disk its name, durably; done again after a crash, it changes nothing.
    pub(super) fn name(&self, before: Before) -> io::Result<()> {
        match before {
            Before::Nothing => self.link()?,
            Before::Anything => self.rename()?,
        }
        self.settle()
    }

    fn link(&self) -> io::Result<()> {
        match fs::hard_link(&self.path, &self.target) {
            Err(error) if !self.is_named() => Err(error),
            _ => self.remove(),
        }
    }

    fn rename(&self) -> io::Result<()> {
        match fs::rename(&self.path, &self.target) {
            Err(error) if !self.is_named() => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the disk has its name, by us or by whoever did this before.
    fn is_named(&self) -> bool {
        let number = |path: &Path| fs::symlink_metadata(path).map(|it| (it.dev(), it.ino()));
        match (number(&self.path), number(&self.target)) {
            (Ok(interim), Ok(target)) => interim == target,
            (Err(_), Ok(_)) => true,
            _ => false,
        }
    }

    fn settle(&self) -> io::Result<()> {
        File::open(directory_of(&self.target)?)?.sync_all()
    }
}

/// The name of the file that becomes a disk.
pub(super) fn name(target: &Path, id: &str) -> String {
    let disk = target.file_name().unwrap_or_default().to_string_lossy();
    format!(".{disk}.{id}.upload")
}

/// Nobody else's, in whichever directory.
pub(super) fn unlikely_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}
