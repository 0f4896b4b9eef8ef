//! Who may remove images, and when.
//!
//! ```text
//!   images/locks/store     shared: somebody relies on what the store holds
//!                          exclusive: somebody removes what nobody needs
//! ```
//!
//! An image is in use once the record of a VM that names it is durable. From
//! finding the image until then only the lock keeps it from being removed; so
//! whoever starts a VM holds it that long, and whoever removes images reads the
//! records under it.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::directories::For;
use super::{Store, StoreError};

/// While this is held, no image is removed.
#[derive(Debug)]
#[must_use = "images can be removed as soon as this is dropped"]
pub struct Reliance {
    _lock: File,
}

/// While this is held, nobody relies on images but by records of VMs and by
/// their names.
#[derive(Debug)]
pub struct Removal {
    _lock: File,
}

impl Store {
    /// Keeps all images from being removed. Hold it from looking an image up
    /// until the record of the VM that uses it is durable. Short: whoever wants
    /// to remove images waits.
    pub fn rely(&self) -> Result<Reliance, StoreError> {
        let (lock, path) = self.lock_file()?;
        wait_for(&lock, &path, FlockOperation::LockShared)?;
        Ok(Reliance { _lock: lock })
    }

    /// Waits until nobody relies on images; `waiting` is told if that takes
    /// time.
    pub fn to_remove(&self, waiting: impl FnOnce()) -> Result<Removal, StoreError> {
        let (lock, path) = self.lock_file()?;
        let at_once = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        if at_once.is_err() {
            waiting();
            wait_for(&lock, &path, FlockOperation::LockExclusive)?;
        }
        Ok(Removal { _lock: lock })
    }

    /// It is never removed, so that all lock the same file.
    fn lock_file(&self) -> Result<(File, PathBuf), StoreError> {
        let path = self.directory("locks", For::Owner)?.join("store");
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let lock = opened.map_err(|error| StoreError::on(&path, "opened", error))?;
        Ok((lock, path))
    }
}

fn wait_for(lock: &File, path: &Path, operation: FlockOperation) -> Result<(), StoreError> {
    loop {
        match rustix::fs::flock(lock, operation) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => {
                return outcome.map_err(|error| StoreError::on(path, "locked", error.into()));
            }
        }
    }
}
