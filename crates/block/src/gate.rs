//! Which files an image may lead to.
//!
//! An image can name others: a backing file, a data file. Whoever opens one
//! must say through a gate what becomes of such names. There is no gate that
//! opens everything, and no default.

use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::device::{Caching, FileDevice};
use crate::error::{Error, ErrorKind, Result};

/// What a file would be to the image that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What the image was laid over.
    Backing,
    /// Where the image keeps its data.
    Data,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Backing => "backing file",
            Self::Data => "data file",
        }
    }
}

/// Decides on files that images name.
pub trait Gate {
    /// Opens the file that an image names, or refuses.
    fn open(&self, name: &str, role: Role) -> Result<FileDevice>;
}

/// Opens nothing: for images from outside.
#[derive(Debug, Clone, Copy)]
pub struct NoImplicitFiles;

impl Gate for NoImplicitFiles {
    fn open(&self, name: &str, role: Role) -> Result<FileDevice> {
        Err(forbidden(
            name,
            role,
            "an image from outside may not name other files",
        ))
    }
}

/// Opens files below given directories only, and through no link that leads
/// out of them.
#[derive(Debug, Clone)]
pub struct BelowDirectories {
    directories: Vec<PathBuf>,
    caching: Caching,
}

impl BelowDirectories {
    /// A gate for our own volume directories and image store.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>, caching: Caching) -> Self {
        Self {
            directories: directories.into_iter().collect(),
            caching,
        }
    }
}

impl Gate for BelowDirectories {
    fn open(&self, name: &str, role: Role) -> Result<FileDevice> {
        let path = Path::new(name);
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !path.is_absolute() || !plain {
            return Err(forbidden(
                name,
                role,
                "it is not an absolute path without \"..\"",
            ));
        }
        for directory in &self.directories {
            if let Ok(below) = path.strip_prefix(directory) {
                return self.open_below(directory, below, name, role);
            }
        }
        Err(forbidden(
            name,
            role,
            "it is outside the directories of this image",
        ))
    }
}

impl BelowDirectories {
    fn open_below(
        &self,
        directory: &Path,
        below: &Path,
        name: &str,
        role: Role,
    ) -> Result<FileDevice> {
        let failed = |error: rustix::io::Errno| {
            Error::io(
                format!("the {} cannot be opened", role.name()),
                error.into(),
            )
            .of(name)
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, Mode::empty()).map_err(failed)?;
        let file = rustix::fs::openat2(
            root,
            below,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        )
        .map_err(failed)?;
        FileDevice::new(file.into(), name, self.caching)
    }
}

fn forbidden(name: &str, role: Role, why: &str) -> Error {
    // The name comes from the image: it is shown, but not with control
    // characters.
    let shown: String = name
        .chars()
        .take(200)
        .flat_map(char::escape_debug)
        .collect();
    Error::new(
        ErrorKind::Forbidden,
        format!("the image names the {} \"{shown}\": {why}", role.name()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("disklet-gate-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn nothing_opens_for_images_from_outside() {
        let refused = NoImplicitFiles
            .open("/etc/passwd", Role::Backing)
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Forbidden);
        assert!(refused.to_string().contains("/etc/passwd"));
    }

    #[test]
    fn files_open_below_their_directories_only() {
        let directory = scratch("below");
        fs::write(directory.join("base"), b"x").unwrap();
        symlink("base", directory.join("inside")).unwrap();
        symlink("/etc/passwd", directory.join("outside")).unwrap();
        let gate = BelowDirectories::new([directory.clone()], Caching::Buffered);
        let name = |file: &str| directory.join(file).display().to_string();
        gate.open(&name("base"), Role::Backing).unwrap();
        gate.open(&name("inside"), Role::Backing).unwrap();
        for bad in [
            &name("outside"),
            &name("../x"),
            "base",
            "/etc/passwd",
            "",
            "nbd://x",
            "json:{}",
        ] {
            gate.open(bad, Role::Data).unwrap_err();
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
