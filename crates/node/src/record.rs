//! What is written down about a VM before anything is made for it.
//!
//! ```text
//!   vms/<uuid>/record.json     who it is, and what may be there because of it
//!   vms/<uuid>/lock            held by whoever works on it
//! ```
//!
//! The record comes first and goes last: whatever crashes in between, it says
//! what to look for. See docs/formats/vm-record.md.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use disklet_block::new_file::replace_file;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::failure::{Failure, Result, on};

/// A VM of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// What may be there because of it, in the order of making.
    pub(crate) made: Vec<Made>,
}

/// Something that was made for a VM, or was about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum Made {
    /// A file.
    File { path: PathBuf },
    /// A domain.
    Domain { uuid: Uuid },
}

const VERSION: u32 = 1;

impl Record {
    pub(crate) fn new(namespace: String, name: String, uuid: Uuid, made: Vec<Made>) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            version: VERSION,
            namespace,
            name,
            uuid,
            created: since_1970.map_or(0, |time| time.as_secs()),
            made,
        }
    }
}

/// The records below a data directory.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    root: PathBuf,
}

/// A VM that nobody else works on meanwhile.
#[derive(Debug)]
pub(crate) struct Held {
    directory: PathBuf,
    _lock: File,
}

impl Records {
    pub(crate) fn of(data_dir: &str) -> Self {
        Self {
            root: Path::new(data_dir).join("vms"),
        }
    }

    /// Waits until nobody else works on the VM.
    pub(crate) fn hold(&self, uuid: Uuid) -> Result<Held> {
        let directory = self.root.join(uuid.to_string());
        loop {
            fs::create_dir_all(&directory).map_err(|error| on(&directory, "made", error))?;
            let path = directory.join("lock");
            let lock = match File::create(&path) {
                Ok(lock) => lock,
                // Whoever removed the VM meanwhile took the directory along.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(on(&path, "written", error)),
            };
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)
                .map_err(|error| on(&path, "locked", error.into()))?;
            // The lock of a VM that was removed while we waited is no lock.
            if same_file(&lock, &path) {
                return Ok(Held {
                    directory,
                    _lock: lock,
                });
            }
        }
    }

    /// All records. What has no record is being made or removed.
    pub(crate) fn list(&self) -> Result<Vec<Record>> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(on(&self.root, "read", error)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| on(&self.root, "read", error))?;
            records.extend(read(&entry.path())?);
        }
        records.sort_by(|one: &Record, other| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        Ok(records)
    }
}

impl Held {
    pub(crate) fn read(&self) -> Result<Option<Record>> {
        read(&self.directory)
    }

    /// Durable when it returns.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let path = self.directory.join("record.json");
        let text = serde_json::to_vec_pretty(record)
            .map_err(|error| Failure::new("the VM's record cannot be written").because(error))?;
        replace_file(&path, &text, 0o600).map_err(|error| on(&path, "written", error))
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

fn read(directory: &Path) -> Result<Option<Record>> {
    let path = directory.join("record.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(on(&path, "read", error)),
    };
    let record: Record = serde_json::from_slice(&text).map_err(|error| {
        Failure::new(format!("{}: is not the record of a VM", path.display())).because(error)
    })?;
    if record.version != VERSION {
        return Err(Failure::new(format!(
            "{}: has version {}; this program knows version {VERSION}",
            path.display(),
            record.version
        )));
    }
    Ok(Some(record))
}

fn same_file(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let open = open.metadata().map(identity).ok();
    open.is_some() && open == fs::metadata(path).map(identity).ok()
}
