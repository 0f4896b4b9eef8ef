//! What the store holds, for people.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use disklet_core::names::Sha256;

use super::usage::entries;
use super::{Store, StoreError};

/// An image as it is listed.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name; disks without one go with the next `gc` unless a VM uses them.
    pub name: Option<String>,
    /// Its digest.
    pub digest: Sha256,
    /// The size of its disk.
    pub size: u64,
    /// The bytes that the disk takes.
    pub allocated: u64,
    /// When it got its name.
    pub since: Option<SystemTime>,
    /// Its disk is the system's.
    pub is_borrowed: bool,
}

impl Store {
    /// All images by name, then the disks without one; of this store alone.
    pub fn listed(&self) -> Result<Vec<Listed>, StoreError> {
        let mut all = self.listed_names()?;
        for path in entries(&self.root.join("sha256"))? {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(digest) = name.and_then(Sha256::parse_hex) else {
                continue;
            };
            // A link that leads nowhere is no disk.
            let Ok(meta) = path.metadata() else {
                continue;
            };
            if all.iter().any(|listed| listed.digest == digest) {
                continue;
            }
            all.push(Listed {
                name: None,
                size: meta.len(),
                allocated: self.allocated(&digest),
                since: meta.modified().ok(),
                is_borrowed: self.is_borrowed(&digest),
                digest,
            });
        }
        Ok(all)
    }

    /// The images that have names.
    pub fn listed_names(&self) -> Result<Vec<Listed>, StoreError> {
        let mut all = Vec::new();
        for named in self.list()? {
            let Some(digest) = Sha256::parse_hex(&named.sha256) else {
                continue;
            };
            let path = self.name_file(&named.name);
            all.push(Listed {
                size: named.size,
                allocated: self.allocated(&digest),
                since: path.metadata().and_then(|meta| meta.modified()).ok(),
                name: Some(named.name),
                is_borrowed: self.is_borrowed(&digest),
                digest,
            });
        }
        Ok(all)
    }

    fn allocated(&self, digest: &Sha256) -> u64 {
        let meta = self.disk(digest).metadata();
        meta.map_or(0, |meta| meta.blocks() * 512)
    }
}
