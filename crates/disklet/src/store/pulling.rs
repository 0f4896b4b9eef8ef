//! Who is taking an image in, and what of it has come already.
//!
//! ```text
//!   images/locks/<hash>            locked while the image of that name comes in
//!   images/pulling/<hash>.part     the beginning of its file, as it was sent
//!   images/pulling/<hash>.json     of which file, and how much of it is durable
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use disklet_core::names::Sha256;
use rustix::fs::FlockOperation;

use super::directories::For;
use super::remove::remove;
use super::usage::entries;
use super::{Deed, Gone, Store, StoreError};

/// While this is held, nobody else takes in an image of that name.
#[derive(Debug)]
pub struct Pulling {
    _lock: File,
    lock_path: PathBuf,
    stem: PathBuf,
    /// Somebody else was at it before.
    pub waited: bool,
}

impl Store {
    /// Waits until nobody else takes in an image of that name; `waiting` is
    /// told if somebody does.
    pub fn pulling(&self, name: &str, waiting: impl FnOnce()) -> Result<Pulling, StoreError> {
        let hash = Self::hash(name);
        let stem = self.directory("pulling", For::Owner)?.join(&hash);
        let path = self.directory("locks", For::Owner)?.join(&hash);
        let mut waiting = Some(waiting);
        loop {
            let failed = |error| StoreError::on(&path, "locked", error);
            let lock = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if let Some(waiting) = waiting.take() {
                        waiting();
                    }
                    match rustix::fs::flock(&lock, FlockOperation::LockExclusive) {
                        Err(rustix::io::Errno::INTR) => continue,
                        outcome => outcome.map_err(|error| failed(error.into()))?,
                    }
                }
                Err(error) => return Err(failed(error.into())),
            }
            // Whoever had it may have removed it when it was done.
            if is_same(&lock, &path) {
                return Ok(Pulling {
                    _lock: lock,
                    lock_path: path,
                    stem,
                    waited: waiting.is_none(),
                });
            }
        }
    }

    /// Removes what interrupted pulls have left. Pulls at work are left alone.
    pub(super) fn sweep_pulls(&self, deed: Deed) -> Result<Vec<Gone>, StoreError> {
        let locks = self.directory("locks", For::Owner)?;
        let mut by_name: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in entries(&locks)? {
            if let Some(hash) = hash_of(&path) {
                by_name.insert(hash, Vec::new());
            }
        }
        for path in entries(&self.root.join("pulling"))? {
            if let Some(hash) = hash_of(&path) {
                by_name.entry(hash).or_default().push(path);
            }
        }
        let mut gone = Vec::new();
        for (hash, paths) in by_name {
            let lock = locks.join(hash);
            let Some(_idle) = lock_idle(&lock) else {
                continue;
            };
            let mut freed = 0;
            for path in &paths {
                freed += remove(path, deed)?;
            }
            remove(&lock, deed)?;
            if !paths.is_empty() {
                let what = "what has come of an interrupted pull".to_owned();
                gone.push(Gone { what, freed });
            }
        }
        Ok(gone)
    }
}

/// Whose file it is: a lock, a part, a note, or one about to become a note.
fn hash_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix('.').unwrap_or(name);
    let hash = name.split('.').next()?;
    Sha256::parse_hex(hash).map(|hash| hash.to_string())
}

/// The lock of a pull that nobody is at.
fn lock_idle(path: &Path) -> Option<File> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .ok()?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    is_same(&lock, path).then_some(lock)
}

impl Pulling {
    /// Where the file's beginning is, and what is known about it.
    pub(crate) fn partial(&self) -> [PathBuf; 2] {
        ["part", "json"].map(|ending| self.stem.with_extension(ending))
    }

    /// There is nothing to go on with: the lock goes as well. Those who wait
    /// for it find another.
    pub(crate) fn finish(self) {
        let [part, note] = self.partial();
        if !part.exists() && !note.exists() {
            let _ = fs::remove_file(self.lock_path);
        }
    }
}

fn is_same(open: &File, path: &Path) -> bool {
    let identity = |meta: io::Result<fs::Metadata>| meta.map(|it| (it.dev(), it.ino())).ok();
    let open = identity(open.metadata());
    open.is_some() && open == identity(fs::metadata(path))
}
