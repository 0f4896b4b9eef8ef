//! A file that appears under its name only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Whether an existing file may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Replace,
    Refuse,
}

/// A file without a name yet. However the program ends before [`NewFile::name`],
/// nothing is left of it.
pub(super) struct NewFile {
    file: File,
    target: PathBuf,
    existing: Existing,
    /// The name it has meanwhile, where files cannot be without one.
    interim: Option<PathBuf>,
}

const O_TMPFILE: i32 = 0o20_200_000;

impl NewFile {
    pub(super) fn create(target: &Path, existing: Existing) -> io::Result<Self> {
        if existing == Existing::Refuse && target.symlink_metadata().is_ok() {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let directory = directory_of(target)?;
        let (file, interim) = match nameless(directory, 0o644) {
            Ok(file) => (file, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(_) => {
                let interim = interim_name(target);
                let mut options = OpenOptions::new();
                let file = options
                    .read(true)
                    .write(true)
                    .create_new(true)
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

    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name, durably.
    pub(super) fn name(mut self) -> io::Result<()> {
        let interim = match self.interim.take() {
            Some(interim) => interim,
            None => {
                let interim = interim_name(&self.target);
                let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                link_following(&nameless, &interim)?;
                interim
            }
        };
        // From here on a leftover has a name; it is taken back on failure.
        let named = match self.existing {
            Existing::Replace => fs::rename(&interim, &self.target),
            Existing::Refuse => fs::hard_link(&interim, &self.target),
        };
        if named.is_err() || self.existing == Existing::Refuse {
            let _ = fs::remove_file(&interim);
        }
        named?;
        File::open(directory_of(&self.target)?)?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(interim) = &self.interim {
            let _ = fs::remove_file(interim);
        }
    }
}

/// A file that has no name and never gets one.
pub(super) fn scratch_file(directory: &Path) -> io::Result<File> {
    match nameless(directory, 0o600) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        // Where files cannot be without a name, it is taken away at once.
        Err(_) => {
            let path = directory.join(format!(".disklet-{}.scratch", std::process::id()));
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
pub(super) fn directory_of(target: &Path) -> io::Result<&Path> {
    match target.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(parent) => Ok(parent),
        None => Err(io::Error::from(io::ErrorKind::IsADirectory)),
    }
}

fn interim_name(target: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    target.with_file_name(name)
}

/// A link to what a path of /proc leads to, rather than to that path itself.
fn link_following(from: &str, to: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
}
