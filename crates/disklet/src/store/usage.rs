//! Which images VMs use.
//!
//! A VM's record names the digests of its images. A volume in a pool whose
//! backing file is in the store counts as well, whoever made it. What cannot be
//! read might use any image: then nothing is said to be unused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use disklet_block::qcow2::{Header, MAGIC};
use disklet_core::config::Config;
use disklet_core::names::Sha256;
use serde::Deserialize;

use super::{Store, StoreError, StoreErrorKind};

/// Images in use, each with its users: VMs as NAMESPACE/NAME, volumes by their
/// paths.
pub type Uses = BTreeMap<Sha256, BTreeSet<String>>;

/// What of a VM's record matters here; see docs/formats/vm-record.md.
#[derive(Debug, Deserialize)]
struct Record {
    namespace: String,
    name: String,
    #[serde(default)]
    images: Vec<String>,
    #[serde(default)]
    made: Vec<Made>,
}

#[derive(Debug, Deserialize)]
struct Made {
    path: Option<PathBuf>,
}

/// The images that VMs of this configuration's data directory use. For the
/// answer to hold while something is removed, hold [`Store::to_remove`].
pub fn in_use(config: &Config) -> Result<Uses, StoreError> {
    let mut uses = Uses::new();
    let mut volumes = BTreeMap::new();
    for path in entries(&Path::new(&config.data_dir).join("vms"))? {
        let Some(record) = read_record(&path.join("record.json"))? else {
            continue;
        };
        let vm = format!("{}/{}", record.namespace, record.name);
        for digest in &record.images {
            let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
            let digest = Sha256::parse_hex(digest)
                .ok_or_else(|| unclear(&path.join("record.json"), "an image is no digest"))?;
            uses.entry(digest).or_default().insert(vm.clone());
        }
        for path in record.made.into_iter().filter_map(|made| made.path) {
            volumes.insert(path, vm.clone());
        }
    }
    for pool in config.pools.values() {
        for path in entries(Path::new(&pool.path))? {
            let user = path.display().to_string();
            volumes.entry(path).or_insert(user);
        }
    }
    let store = Store::of(&config.data_dir);
    for (path, user) in volumes {
        if let Some(digest) = store.image_below(&path)? {
            uses.entry(digest).or_default().insert(user);
        }
    }
    Ok(uses)
}

impl Store {
    /// The image that a volume stands on, by its header. The guest cannot write
    /// there.
    fn image_below(&self, volume: &Path) -> Result<Option<Sha256>, StoreError> {
        let Some(start) = first_cluster(volume)? else {
            return Ok(None);
        };
        let header = Header::parse(&start).map_err(|error| {
            unclear(volume, "its header says nothing that can be read").because(error)
        })?;
        let Some(backing) = header.backing_file.map(PathBuf::from) else {
            return Ok(None);
        };
        let digest = backing.file_name().and_then(|name| name.to_str());
        let directory = self.root.join("sha256");
        let real = |path: &Path| fs::canonicalize(path).ok();
        let is_ours = backing.parent().is_some_and(|parent| {
            parent == directory || (real(parent).is_some() && real(parent) == real(&directory))
        });
        Ok(digest.and_then(Sha256::parse_hex).filter(|_| is_ours))
    }
}

fn read_record(path: &Path) -> Result<Option<Record>, StoreError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(StoreError::on(path, "read", error)),
    };
    let record = serde_json::from_slice(&text)
        .map_err(|error| unclear(path, "is not the record of a VM").because(error))?;
    Ok(Some(record))
}

/// The beginning of a qcow2 file, nothing of any other.
fn first_cluster(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    /// The largest cluster that there is.
    const MOST: u64 = 2 << 20;
    let failed = |error| StoreError::on(path, "read", error);
    // Opening a pipe or a device would do something.
    match path.metadata() {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut start = Vec::new();
    (&mut file)
        .take(MAGIC.len() as u64)
        .read_to_end(&mut start)
        .map_err(failed)?;
    if start != MAGIC {
        return Ok(None);
    }
    file.take(MOST - start.len() as u64)
        .read_to_end(&mut start)
        .map_err(failed)?;
    Ok(Some(start))
}

/// The paths in a directory; none if there is no directory.
pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |error| StoreError::on(directory, "read", error);
    let listed = match fs::read_dir(directory) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in listed {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn unclear(path: &Path, why: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format!(
            "{}: {why}, so it is not known which images it uses",
            path.display()
        ),
    )
    .help("repair or remove that file first")
}
