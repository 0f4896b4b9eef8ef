//! The system's store below a user's: read, and never changed.
//!
//! ```text
//!   images/sha256/<digest> --> <systemDataDir>/images/sha256/<digest>
//! ```
//!
//! What a user's VM stands on has a path of the user's own, which is a link. If
//! root removes the image, a later pull puts a file there, and the VM goes on.
//! See docs/decisions/0019-the-systems-images.md.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use disklet_core::config::Config;
use disklet_core::facts::{Facts, ImageFact};
use disklet_core::names::Sha256;

use super::directories::For;
use super::{Store, StoreError};

impl Store {
    /// The store of a configuration: with the system's below it, if there is
    /// one.
    #[must_use]
    pub fn configured(config: &Config) -> Self {
        let system = config.system_data_dir.as_deref();
        let system = system.filter(|directory| *directory != config.data_dir);
        Self {
            system: system.map(|directory| Box::new(Self::of(directory))),
            ..Self::of(&config.data_dir)
        }
    }

    /// The system's store, if this one is a user's.
    #[must_use]
    pub fn system(&self) -> Option<&Self> {
        self.system.as_deref()
    }

    /// What a name stands for in the system's store. What the user cannot read
    /// there, the user cannot mend either: it is as good as absent.
    pub(super) fn find_in_system(&self, name: &str) -> Option<ImageFact> {
        let system = self.system()?;
        let (fact, _) = system.find_with_source(name).ok().flatten()?;
        is_readable(&system.disk(&fact.digest)).then_some(fact)
    }

    /// Has images that were found in the system's store in this one, as links.
    /// Hold [`Store::rely`], or they may be swept away again.
    pub fn borrow_images(&self, found: &Facts) -> Result<(), StoreError> {
        for image in found.images.values() {
            self.borrow(&image.digest)?;
        }
        Ok(())
    }

    /// Has a disk of the system's in this store, unless it is there anyway;
    /// whether it is there now.
    pub(super) fn borrow(&self, digest: &Sha256) -> Result<bool, StoreError> {
        let path = self.disk(digest);
        if path.exists() {
            return Ok(true);
        }
        let Some(theirs) = self.readable_in_system(digest) else {
            return Ok(false);
        };
        self.directory("sha256", For::All)?;
        link(&theirs, &path).map_err(|error| StoreError::on(&path, "made", error))?;
        Ok(true)
    }

    fn readable_in_system(&self, digest: &Sha256) -> Option<PathBuf> {
        let theirs = self.system()?.disk(digest);
        is_readable(&theirs).then_some(theirs)
    }

    /// Whether a disk is only a link into the system's store.
    pub(super) fn is_borrowed(&self, digest: &Sha256) -> bool {
        self.disk(digest).is_symlink()
    }
}

/// Another link that leads nowhere gives way.
fn link(to: &Path, path: &Path) -> io::Result<()> {
    match symlink(to, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        outcome => return outcome,
    }
    // Somebody else may have made the same one meanwhile.
    if path.exists() {
        return Ok(());
    }
    fs::remove_file(path)?;
    symlink(to, path)
}

fn is_readable(disk: &Path) -> bool {
    let meta = File::open(disk).and_then(|open| open.metadata());
    meta.is_ok_and(|meta| meta.is_file())
}
