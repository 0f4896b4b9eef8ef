//! The directories of the store, and who may enter them.
//!
//! Root's images are for all users of the machine to read, whatever root's umask
//! is. What is coming, and all locks, are their owner's alone: a lock can be
//! taken by whoever can open its file, and would hold the owner up.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{Store, StoreError};

/// Who may enter a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Whoever its owner lets.
    All,
    /// Nobody but its owner.
    Owner,
}

impl Store {
    /// A directory of the store, made if it is missing.
    pub(super) fn directory(&self, name: &str, whom: For) -> Result<PathBuf, StoreError> {
        let path = self.root.join(name);
        let made = match whom {
            For::All => make(&path),
            For::Owner => make(&self.root).and_then(|()| make_private(&path)),
        };
        made.map_err(|error| StoreError::on(&path, "made", error))?;
        Ok(path)
    }
}

/// With all that lacks above it.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) if rustix::process::geteuid().is_root() => {
            fs::set_permissions(path, Permissions::from_mode(0o755))
        }
        Ok(()) => Ok(()),
        Err(error) => there_already(path, error),
    }
}

/// One that others could enter, as earlier versions made it, is closed.
fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) => there_already(path, error)?,
    }
    let mode = fs::metadata(path)?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, Permissions::from_mode(0o700)),
    }
}

/// Somebody else may have made it meanwhile.
fn there_already(path: &Path, error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::AlreadyExists if path.is_dir() => Ok(()),
        io::ErrorKind::AlreadyExists => Err(io::ErrorKind::NotADirectory.into()),
        _ => Err(error),
    }
}
