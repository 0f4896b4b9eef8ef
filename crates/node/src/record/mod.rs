//! What is written down about a VM before anything is made for it.
//!
//! ```text
//!   vms/<uuid>/record.json     who it is, and what may be there because of it
//!   vms/<uuid>/lock            held by whoever works on it
//! ```
//!
//! The record comes first and goes last: whatever crashes in between, it says
//! what to look for. See docs/formats/vm-record.md.

mod change;
mod damage;
mod entry;
mod leased;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use disklet_block::new_file::replace_file;
use disklet_core::config::Config;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use uuid::Uuid;

use crate::failure::{Failure, Result, on};
use crate::interrupt;

pub(crate) use change::Change;
use damage::read;
pub(crate) use entry::{Made, Phase, Record};
pub(crate) use leased::Leased;

/// The records below a data directory.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    root: PathBuf,
    /// Where devices and files are shown, for advice only.
    shown: PathBuf,
}

/// A VM whose record cannot be read, by the name of its directory, and why.
pub(crate) type Unread = (Option<Uuid>, Failure);

/// A VM that nobody else works on meanwhile.
#[derive(Debug)]
pub(crate) struct Held {
    directory: PathBuf,
    shown: PathBuf,
    _lock: File,
}

impl Records {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            root: Path::new(&config.data_dir).join("vms"),
            shown: Path::new(&config.run_dir).join("vms"),
        }
    }

    /// Where a VM's plan is kept, for people to look at.
    pub(crate) fn plan_file(&self, uuid: Uuid) -> PathBuf {
        self.root.join(uuid.to_string()).join("plan.json")
    }

    /// When a VM was last prepared, or something about it changed: seconds since
    /// 1970.
    pub(crate) fn since(&self, uuid: Uuid) -> u64 {
        let record = self.root.join(uuid.to_string()).join("record.json");
        let changed = fs::metadata(record).and_then(|meta| meta.modified());
        let since_1970 = changed.map(|time| time.duration_since(UNIX_EPOCH));
        since_1970.map_or(0, |time| time.map_or(0, |time| time.as_secs()))
    }

    /// Whether somebody works on the VM now.
    pub(crate) fn is_held(&self, uuid: Uuid) -> bool {
        let path = self.root.join(uuid.to_string()).join("lock");
        File::open(path).is_ok_and(|lock| {
            // Shared: two who ask do not find each other.
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
        })
    }

    /// The directory of all VMs. Nobody else may look into it, nor take a lock
    /// that keeps us waiting.
    fn ensure_root(&self) -> Result<()> {
        let failed = |error| on(&self.root, "made", error);
        if !self.root.is_dir() {
            fs::create_dir_all(&self.root).map_err(failed)?;
            fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        }
        Ok(())
    }

    /// Keeps others from taking devices and pools until it is dropped: what
    /// two VMs share is looked at and written down under it.
    pub(crate) fn hold_shared_things(&self) -> Result<File> {
        self.ensure_root()?;
        let lock = File::open(&self.root).map_err(|error| on(&self.root, "locked", error))?;
        wait_for(&lock, &self.root)?;
        Ok(lock)
    }

    fn read(&self, directory: &Path) -> Result<Option<Record>> {
        read(directory).map_err(|damage| damage.explained(directory, &self.shown))
    }

    /// Waits until nobody else works on the VM.
    pub(crate) fn hold(&self, uuid: Uuid) -> Result<Held> {
        let directory = self.root.join(uuid.to_string());
        self.ensure_root()?;
        loop {
            fs::create_dir_all(&directory).map_err(|error| on(&directory, "made", error))?;
            let path = directory.join("lock");
            let lock = match File::create(&path) {
                Ok(lock) => lock,
                // Whoever removed the VM meanwhile took the directory along.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(on(&path, "written", error)),
            };
            wait_for(&lock, &path)?;
            // The lock of a VM that was removed while we waited is no lock.
            if same_file(&lock, &path) {
                return Ok(Held {
                    directory,
                    shown: self.shown.clone(),
                    _lock: lock,
                });
            }
        }
    }

    /// Removes what is left of VMs that have no record and that nobody works on.
    pub(crate) fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(uuid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if matches!(self.read(&entry.path()), Ok(None)) && !self.is_held(uuid) {
                let held = self.hold(uuid)?;
                if held.read()?.is_none() {
                    held.forget()?;
                }
            }
        }
        Ok(())
    }

    /// All records. What has no record is being made or removed.
    pub(crate) fn list(&self) -> Result<Vec<Record>> {
        let (records, unread) = self.list_with_unread()?;
        // One that is damaged must not keep us from all others.
        for (_, failure) in unread {
            let _ = writeln!(io::stderr(), "warning: {failure}");
        }
        Ok(records)
    }

    /// The same, and the VMs whose records cannot be read. Whoever asks what is in use
    /// must not take these for VMs that have nothing.
    pub(crate) fn list_with_unread(&self) -> Result<(Vec<Record>, Vec<Unread>)> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(on(&self.root, "read", error)),
        };
        let (mut records, mut unread) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.map_err(|error| on(&self.root, "read", error))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                match self.read(&entry.path()) {
                    Ok(record) => records.extend(record),
                    Err(failure) => {
                        let name = entry.file_name();
                        let uuid = name.to_str().and_then(|name| name.parse().ok());
                        unread.push((uuid, failure));
                    }
                }
            }
        }
        records.sort_by(|one: &Record, other| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        Ok((records, unread))
    }
}

impl Held {
    pub(crate) fn read(&self) -> Result<Option<Record>> {
        read(&self.directory).map_err(|damage| damage.explained(&self.directory, &self.shown))
    }

    /// Durable when it returns.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let path = self.directory.join("record.json");
        let text = serde_json::to_vec_pretty(record)
            .map_err(|error| Failure::new("the VM's record cannot be written").because(error))?;
        replace_file(&path, &text, 0o600).map_err(|error| on(&path, "written", error))
    }

    /// Forgets what is not there any more.
    pub(crate) fn forget_made(&self, gone: &[Made]) -> Result<()> {
        let Some(mut record) = self.read()? else {
            return Ok(());
        };
        let before = record.made.len();
        record.forget(gone);
        match record.made.len() == before {
            true => Ok(()),
            false => self.write(&record),
        }
    }

    /// Says that all of it is about to go. Where there is no room for that it goes
    /// all the same: that makes room, and whoever comes next makes it anew.
    pub(crate) fn mark_releasing(&self, record: &Record) -> Result<()> {
        let path = self.directory.join("record.json");
        let record = Record {
            phase: Phase::Releasing,
            ..record.clone()
        };
        let text = serde_json::to_vec_pretty(&record)
            .map_err(|error| Failure::new("the VM's record cannot be written").because(error))?;
        match replace_file(&path, &text, 0o600) {
            Err(error) if error.kind() != io::ErrorKind::StorageFull => {
                Err(on(&path, "written", error))
            }
            _ => Ok(()),
        }
    }

    /// Forgets the VM: the record first, so that a crash leaves no half.
    pub(crate) fn forget(self) -> Result<()> {
        let path = self.directory.join("record.json");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(on(&path, "removed", error));
            }
            _ => {}
        }
        fs::remove_dir_all(&self.directory).map_err(|error| on(&self.directory, "removed", error))
    }
}

/// Waits for a lock, and can be asked to stop.
fn wait_for(lock: &File, path: &Path) -> Result<()> {
    let mut told = false;
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if interrupt::asked() => return Err(Failure::cancelled()),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(on(path, "locked", error.into())),
        }
        if !told {
            told = true;
            let _ = writeln!(
                io::stderr(),
                "waiting for another command that works on this VM, or on what it shares with others"
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether an open file is the one that has this name.
pub(crate) fn same_file(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let open = open.metadata().map(identity).ok();
    open.is_some() && open == fs::metadata(path).map(identity).ok()
}
