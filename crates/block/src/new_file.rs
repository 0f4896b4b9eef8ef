//! A file that appears under its name only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Whether an existing file may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It may.
    Replace,
    /// It is an error.
    Refuse,
}

/// A file without a name yet. However the program ends before [`NewFile::name`],
/// nothing is left of it.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    target: PathBuf,
    existing: Existing,
    /// The name it has meanwhile, where files cannot be without one.
    interim: Option<PathBuf>,
}

const O_TMPFILE: i32 = 0o20_200_000;

impl NewFile {
    /// A file that shall be at `target`, readable for all.
    pub fn create(target: &Path, existing: Existing) -> io::Result<Self> {
        Self::with_mode(target, existing, 0o644)
    }

    /// A file with these permissions, as far as the umask leaves them.
    pub fn with_mode(target: &Path, existing: Existing, mode: u32) -> io::Result<Self> {
        if existing == Existing::Refuse && target.symlink_metadata().is_ok() {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let directory = directory_of(target)?;
        let (file, interim) = match nameless(directory, mode) {
            Ok(file) => (file, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(_) => {
                let interim = interim_name(target);
                let mut options = OpenOptions::new();
                let file = options
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(&interim)?;
                (file, Some(interim))
            }
        };
        Ok(Self {
            file,
            target: target.to_owned(),
            existing,
            interim,
        })
    }

    /// Takes a file that has no name yet.
    #[must_use]
    pub fn of(nameless: File, target: &Path, existing: Existing) -> Self {
        Self {
            file: nameless,
            target: target.to_owned(),
            existing,
            interim: None,
        }
    }

    /// The open file.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name, durably. What was written must be durable
    /// already.
    pub fn name(mut self) -> io::Result<()> {
        let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match (self.interim.take(), self.existing) {
            (None, Existing::Refuse) => link_following(&nameless, &self.target)?,
            (None, Existing::Replace) => {
                let interim = interim_name(&self.target);
                link_following(&nameless, &interim)?;
                self.rename(&interim)?;
            }
            (Some(interim), Existing::Replace) => self.rename(&interim)?,
            (Some(interim), Existing::Refuse) => {
                let named = fs::hard_link(&interim, &self.target);
                let _ = fs::remove_file(&interim);
                named?;
            }
        }
        File::open(directory_of(&self.target)?)?.sync_all()
    }

    /// The interim name is taken back on failure.
    fn rename(&self, interim: &Path) -> io::Result<()> {
        fs::rename(interim, &self.target).inspect_err(|_| {
            let _ = fs::remove_file(interim);
        })
    }
}

/// Replaces a file by these bytes, durably and as a whole: at any time a reader
/// finds the old ones or the new.
pub fn replace_file(target: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let new = NewFile::with_mode(target, Existing::Replace, mode)?;
    (&new.file).write_all(bytes)?;
    new.file.sync_data()?;
    new.name()
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(interim) = &self.interim {
            let _ = fs::remove_file(interim);
        }
    }
}

/// A file that has no name and never gets one.
pub fn scratch_file(directory: &Path) -> io::Result<File> {
    match nameless(directory, 0o600) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        // Where files cannot be without a name, it is taken away at once.
        Err(_) => {
            let path = directory.join(format!(".disklet-{}.scratch", unlikely_number()));
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&path)?;
            fs::remove_file(path)?;
            Ok(file)
        }
    }
}

fn nameless(directory: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(mode)
        .custom_flags(O_TMPFILE)
        .open(directory)
}

/// The directory that a file is or will be in.
pub fn directory_of(target: &Path) -> io::Result<&Path> {
    match target.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(parent) => Ok(parent),
        None => Err(io::Error::from(io::ErrorKind::IsADirectory)),
    }
}

fn interim_name(target: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", unlikely_number()));
    target.with_file_name(name)
}

/// Nobody else's, whichever processes or machines write to the same directory:
/// ids of processes begin anew in every container.
fn unlikely_number() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// How much may be kept in a scratch file: most of what is free now, so that
/// others who use the filesystem keep some.
#[must_use]
pub fn scratch_room(scratch: &File) -> u64 {
    rustix::fs::fstatvfs(scratch).map_or(0, |stat| {
        stat.f_bavail.saturating_mul(stat.f_frsize) / 10 * 9
    })
}

/// A link to what a path of /proc leads to, rather than to that path itself.
fn link_following(from: &str, to: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_names_differ_within_a_process() {
        let names = [(); 2].map(|()| interim_name(Path::new("d/disk.raw")));
        assert_ne!(names[0], names[1]);
        for name in names {
            let name = name.to_str().unwrap().to_owned();
            assert!(name.starts_with("d/.disk.raw.") && name.ends_with(".partial"));
        }
    }

    #[test]
    fn a_scratch_file_has_a_limit() {
        let file = scratch_file(&std::env::temp_dir()).unwrap();
        let free = rustix::fs::fstatvfs(&file).unwrap();
        let room = scratch_room(&file);
        assert!(room > 0 && room < free.f_blocks * free.f_frsize);
    }
}
