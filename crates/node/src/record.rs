//! What is written down about a VM before anything is made for it.
//!
//! ```text
//!   vms/<uuid>/record.json     who it is, and what may be there because of it
//!   vms/<uuid>/lock            held by whoever works on it
//! ```
//!
//! The record comes first and goes last: whatever crashes in between, it says
//! what to look for. See docs/formats/vm-record.md.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use disklet_block::new_file::replace_file;
use disklet_core::plan::{Plan, Step};
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
    /// How far it is.
    pub(crate) phase: Phase,
    /// How many disks it has.
    pub(crate) disks: usize,
    /// The digests of the images that it uses: they stay in the store.
    #[serde(default)]
    pub(crate) images: Vec<String>,
    /// What may be there because of it, in the order of making.
    pub(crate) made: Vec<Made>,
}

/// How far a VM is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// Its things are being made; no guest has run yet.
    Preparing,
    /// All is there.
    Ready,
    /// Only its volumes are there, by the user's wish.
    Kept,
    /// It is being removed.
    Releasing,
}

/// Something that was made for a VM, or was about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum Made {
    /// A file that can be made again at any time.
    File { path: PathBuf },
    /// A file that the guest writes to.
    Volume { path: PathBuf },
    /// A device node of ours for a device of the machine.
    Device { path: PathBuf, number: String },
    /// A file of the machine, shown at a path of ours.
    Mount { path: PathBuf, from: PathBuf },
    /// A secret in libvirt's memory.
    Secret { uuid: Uuid },
    /// A pool that libvirt lists; other VMs may use it as well.
    Pool { uuid: Uuid },
    /// A domain.
    Domain { uuid: Uuid },
}

const VERSION: u32 = 1;

impl Made {
    /// Whether both stand for the same device or file of the machine.
    pub(crate) fn uses_what(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device { number: one, .. }, Self::Device { number: two, .. }) => one == two,
            (Self::Mount { from: one, .. }, Self::Mount { from: two, .. }) => one == two,
            _ => false,
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { number, .. } => write!(f, "device {number}"),
            Self::Mount { from, .. } => write!(f, "{}", from.display()),
            Self::File { path } | Self::Volume { path } => write!(f, "{}", path.display()),
            Self::Secret { uuid } => write!(f, "secret {uuid}"),
            Self::Pool { uuid } => write!(f, "pool {uuid}"),
            Self::Domain { uuid } => write!(f, "domain {uuid}"),
        }
    }
}

impl Record {
    /// The record of a VM that is about to be made.
    pub(crate) fn of(plan: &Plan, made: Vec<Made>) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            version: VERSION,
            namespace: plan.namespace.to_string(),
            name: plan.name.to_string(),
            uuid: plan.uuid,
            created: since_1970.map_or(0, |time| time.as_secs()),
            phase: Phase::Preparing,
            disks: plan.disks.len(),
            images: images_of(plan),
            made,
        }
    }

    /// As users write it.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The digests of the images that a plan uses.
fn images_of(plan: &Plan) -> Vec<String> {
    let digests = plan.steps.iter().filter_map(|step| match step {
        Step::PullImage { digest, .. } => digest.clone(),
        _ => None,
    });
    digests.collect()
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

    /// Where a VM's plan is kept, for people to look at.
    pub(crate) fn plan_file(&self, uuid: Uuid) -> PathBuf {
        self.root.join(uuid.to_string()).join("plan.json")
    }

    /// Whether somebody works on the VM now.
    pub(crate) fn is_held(&self, uuid: Uuid) -> bool {
        let path = self.root.join(uuid.to_string()).join("lock");
        File::open(path).is_ok_and(|lock| {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
        })
    }

    /// Keeps others from taking devices and pools until it is dropped: what
    /// two VMs share is looked at and written down under it.
    pub(crate) fn hold_shared_things(&self) -> Result<File> {
        let failed = |error| on(&self.root, "locked", error);
        fs::create_dir_all(&self.root).map_err(failed)?;
        let lock = File::open(&self.root).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        Ok(lock)
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

    /// Removes what is left of VMs that have no record and that nobody works on.
    pub(crate) fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(uuid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if read(&entry.path())?.is_none() && !self.is_held(uuid) {
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
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(on(&self.root, "read", error)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| on(&self.root, "read", error))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                records.extend(read(&entry.path())?);
            }
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
