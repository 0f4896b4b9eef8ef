//! The images that VMs start from.
//!
//! ```text
//!   images/sha256/<digest>          a raw disk, read-only; the digest is that
//!                                   of the file it was made from; or a link
//!                                   to such a disk, see system.rs
//!   images/names/<hash>.json        which digest a name stands for
//!   images/pulling/                 what is coming, see pulling.rs
//!   images/locks/                   see lock.rs and pulling.rs
//! ```
//!
//! See docs/formats/image-store.md.

mod access;
mod add;
mod collect;
mod directories;
mod error;
mod listed;
mod lock;
mod partial;
mod pulling;
mod remove;
mod system;
mod usage;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use disklet_block::new_file::{Existing, NewFile};
use disklet_core::facts::{Facts, ImageFact, Questions};
use disklet_core::names::Sha256;
use disklet_core::units::ByteSize;
use serde::{Deserialize, Serialize};
use sha2::Digest;

pub(crate) use add::Hashed;
pub use add::{Added, Incoming};
use directories::For;
pub use error::{StoreError, StoreErrorKind};
pub use listed::Listed;
pub use lock::{Reliance, Removal};
pub(crate) use partial::{Partial, Validator};
pub use pulling::Pulling;
pub use remove::{Deed, Gone};
pub use usage::{Uses, in_use};

/// A store below a directory.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    /// See system.rs.
    system: Option<Box<Store>>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Named {
    version: u32,
    /// The image's name, without the prefix of VM images and without digest.
    pub name: String,
    /// The digest, as hexadecimal digits.
    pub sha256: String,
    /// The size of the disk.
    pub size: u64,
    /// Where it came from, as a hash: it may have been an address with secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// Somebody has said where it comes from: its name may not lead there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) placed: bool,
    /// By what the server knows it again, if it was fetched by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) validator: Option<Validator>,
    /// The UIDs of the pull secrets with which it was fetched, or proved to be
    /// the asker's as well; absent: it is everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pull_secrets: Option<BTreeSet<String>>,
}

/// How an image came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Provenance {
    /// See [`Named`].
    pub(crate) source: Option<String>,
    /// See [`Named`].
    pub(crate) placed: bool,
    /// See [`Named`].
    pub(crate) validator: Option<Validator>,
    /// See [`Named`].
    pub(crate) pull_secrets: Option<BTreeSet<String>>,
}

const VERSION: u32 = 1;

impl Named {
    fn fact(&self, digest: Sha256) -> ImageFact {
        ImageFact {
            digest,
            size: ByteSize::from_bytes(self.size),
        }
    }
}

impl Store {
    /// The store of a data directory; it need not exist yet.
    #[must_use]
    pub fn of(data_dir: &str) -> Self {
        Self {
            root: Path::new(data_dir).join("images"),
            system: None,
        }
    }

    /// Where an image's disk is, or would be.
    #[must_use]
    pub fn disk(&self, digest: &Sha256) -> PathBuf {
        self.root.join("sha256").join(digest.to_string())
    }

    /// Puts what the store knows of the images into the facts.
    pub fn answer(&self, questions: &Questions, facts: &mut Facts) -> Result<(), StoreError> {
        for name in &questions.images {
            if let Some(fact) = self.find(name)? {
                facts.images.insert(name.clone(), fact);
            }
        }
        Ok(())
    }

    /// What a name stands for, if its disk is there: in this store, else in the
    /// system's.
    pub fn find(&self, name: &str) -> Result<Option<ImageFact>, StoreError> {
        let own = self.find_with_source(name)?.map(|(fact, _)| fact);
        Ok(own.or_else(|| self.find_in_system(name)))
    }

    /// What it stands for in this store, and where that came from.
    pub(crate) fn find_with_source(
        &self,
        name: &str,
    ) -> Result<Option<(ImageFact, Option<String>)>, StoreError> {
        let found = self.find_record(name)?;
        Ok(found.map(|(fact, named)| (fact, named.source)))
    }

    /// What it stands for in this store, and all that is known of it.
    pub(crate) fn find_record(&self, name: &str) -> Result<Option<(ImageFact, Named)>, StoreError> {
        let path = self.name_file(name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::on(&path, "read", error)),
        };
        let (named, fact) = read_named(&path, &text)?;
        let is_there = self.disk(&fact.digest).exists();
        Ok(is_there.then_some((fact, named)))
    }

    /// Something that changes whenever the name is given anew.
    pub(crate) fn stamp(&self, name: &str) -> Option<(u64, i64, i64)> {
        use std::os::unix::fs::MetadataExt;
        let meta = self.name_file(name).metadata().ok()?;
        Some((meta.ino(), meta.ctime(), meta.ctime_nsec()))
    }

    /// All names, in order.
    pub fn list(&self) -> Result<Vec<Named>, StoreError> {
        let mut found = Vec::new();
        for path in usage::entries(&self.root.join("names"))? {
            if path.extension().is_some_and(|ending| ending == "json") {
                let text = fs::read(&path).map_err(|error| StoreError::on(&path, "read", error))?;
                found.push(read_named(&path, &text)?.0);
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// Says durably what a name stands for.
    fn give_name(
        &self,
        name: &str,
        fact: ImageFact,
        provenance: Provenance,
    ) -> Result<(), StoreError> {
        self.directory("names", For::All)?;
        let path = self.name_file(name);
        let named = Named {
            version: VERSION,
            name: name.to_owned(),
            sha256: fact.digest.to_string(),
            size: fact.size.as_bytes(),
            source: provenance.source,
            placed: provenance.placed,
            validator: provenance.validator,
            pull_secrets: provenance.pull_secrets,
        };
        let text = serde_json::to_vec_pretty(&named).unwrap_or_default();
        replace_readable(&path, &text).map_err(|error| StoreError::on(&path, "written", error))
    }

    /// Names hold any characters and are of any length; their hashes do not.
    fn name_file(&self, name: &str) -> PathBuf {
        let file = format!("{}.json", Self::hash(name));
        self.root.join("names").join(file)
    }

    pub(crate) fn hash(name: impl AsRef<[u8]>) -> String {
        let hash = sha2::Sha256::digest(name);
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// As disks are: whoever may enter the store may read it, whatever the umask is.
fn replace_readable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = NewFile::create(path, Existing::Replace)?;
    let mut file = new.file()?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.sync_all()?;
    new.name()
}

fn read_named(path: &Path, text: &[u8]) -> Result<(Named, ImageFact), StoreError> {
    let damaged = |why: String| {
        StoreError::new(
            StoreErrorKind::Damaged,
            format!("{}: {why}", path.display()),
        )
    };
    let named: Named = serde_json::from_slice(text)
        .map_err(|error| damaged(format!("is not a record of the image store: {error}")))?;
    if named.version != VERSION {
        return Err(damaged(format!(
            "has version {}; this program knows version {VERSION}",
            named.version
        )));
    }
    let digest = Sha256::parse_hex(&named.sha256)
        .ok_or_else(|| damaged("does not hold a SHA-256 digest".to_owned()))?;
    let fact = named.fact(digest);
    Ok((named, fact))
}
