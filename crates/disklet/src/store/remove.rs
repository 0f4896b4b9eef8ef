//! Images leave the store: by name, or because nobody needs them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet_block::device::{Caching, FileDevice};
use disklet_core::names::{ImageName, Sha256};

use super::usage::entries;
use super::{Named, Removal, Store, StoreError, StoreErrorKind, Uses};

/// Something that was removed, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// What it was, for people.
    pub what: String,
    /// The bytes of disk that it took.
    pub freed: u64,
}

/// Whether anything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// It is done.
    Done,
    /// It is only told what would be.
    Told,
}

impl Store {
    /// Removes images by name: all, or none and why. A disk goes with the last
    /// of its names.
    pub fn remove(
        &self,
        names: &[ImageName],
        uses: &Uses,
        _alone: &Removal,
    ) -> Result<Vec<Gone>, Vec<StoreError>> {
        let mut kept = self.list().map_err(|error| vec![error])?;
        let mut going: Vec<Named> = Vec::new();
        let mut refused = Vec::new();
        for image in names {
            match self.removable(image, &kept, uses) {
                Ok(index) => going.push(kept.remove(index)),
                // Named twice, it goes once.
                Err(_) if going.iter().any(|named| named.name == image.name()) => {}
                Err(error) => refused.push(error),
            }
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        let mut gone = Vec::new();
        for named in going {
            let path = self.name_file(&named.name);
            let mut freed = remove(&path, Deed::Done).map_err(|error| vec![error])?;
            // The name is gone for good before its disk goes.
            sync(&self.root.join("names")).map_err(|error| vec![error])?;
            if !kept.iter().any(|other| other.sha256 == named.sha256) {
                let disk = self.root.join("sha256").join(&named.sha256);
                freed += remove(&disk, Deed::Done).map_err(|error| vec![error])?;
            }
            gone.push(Gone {
                what: named.name,
                freed,
            });
        }
        Ok(gone)
    }

    /// Removes what nobody needs: disks that no name leads to and no VM uses,
    /// what interrupted pulls have left, names that lead nowhere.
    pub fn sweep(
        &self,
        uses: &Uses,
        _alone: &Removal,
        deed: Deed,
    ) -> Result<Vec<Gone>, StoreError> {
        let mut gone = self.sweep_pulls(deed)?;
        let names = self.list()?;
        let named: BTreeSet<_> = names.iter().map(|named| named.sha256.as_str()).collect();
        for path in entries(&self.root.join("sha256"))? {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("");
            let what = match Sha256::parse_hex(name) {
                Some(digest) if named.contains(name) || uses.contains_key(&digest) => continue,
                Some(digest) if self.is_borrowed(&digest) => {
                    format!("the link to the system's disk sha256:{digest}")
                }
                Some(digest) if self.is_open(&digest) => continue,
                Some(digest) => format!("the disk sha256:{digest}, which has no name"),
                None if is_interim(name) => format!("{}, left over", path.display()),
                _ => continue,
            };
            let freed = remove(&path, deed)?;
            gone.push(Gone { what, freed });
        }
        for named in names {
            if !self.root.join("sha256").join(&named.sha256).exists() {
                let freed = remove(&self.name_file(&named.name), deed)?;
                let what = format!("the name {}, whose disk is gone", named.name);
                gone.push(Gone { what, freed });
            }
        }
        for path in entries(&self.root.join("names"))? {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("");
            if is_interim(name) {
                let freed = remove(&path, deed)?;
                let what = format!("{}, left over", path.display());
                gone.push(Gone { what, freed });
            }
        }
        Ok(gone)
    }

    /// Where an image stands in the list, if it may go.
    fn removable(
        &self,
        image: &ImageName,
        list: &[Named],
        uses: &Uses,
    ) -> Result<usize, StoreError> {
        let name = image.name();
        let is_it = |named: &Named| {
            let digest = image.digest().map(|digest| digest.to_string());
            named.name == name && digest.is_none_or(|digest| digest == named.sha256)
        };
        let found = list.iter().position(is_it);
        let index = found.ok_or_else(|| self.not_here(image))?;
        let Some(digest) = Sha256::parse_hex(&list[index].sha256) else {
            return Ok(index);
        };
        let refused = |by: &str| {
            let what = format!("image {name} is in use by {by}");
            StoreError::new(StoreErrorKind::InUse, what)
        };
        match uses.get(&digest) {
            Some(users) => Err(refused(&listed(users)).help("disklet down removes a VM")),
            None if self.is_open(&digest) => {
                let help = format!(
                    "a VM of another user may run on it: fuser -v {}",
                    self.disk(&digest).display()
                );
                Err(refused("a process that has it open").help(help))
            }
            None => Ok(index),
        }
    }

    fn not_here(&self, image: &ImageName) -> StoreError {
        let absent = |what: String| StoreError::new(StoreErrorKind::NotFound, what);
        match self.find_in_system(image.name()) {
            Some(_) => absent(format!("image {image} is the system's"))
                .help("who runs the machine removes it: disklet images rm as root"),
            None => absent(format!("image {image} is not in the store"))
                .help("disklet images ls lists those that are"),
        }
    }

    /// Whether somebody says by a lock, as QEMU does, that a disk of this store
    /// is open. VMs of other users have no records here.
    pub(super) fn is_open(&self, digest: &Sha256) -> bool {
        !self.is_borrowed(digest)
            && FileDevice::open(&self.disk(digest), Caching::Buffered)
                .is_ok_and(|disk| disk.is_read_elsewhere())
    }
}

/// Names that files have while they are made, where they must have one. Nobody
/// makes any while somebody removes.
fn is_interim(name: &str) -> bool {
    name.starts_with('.') && (name.ends_with(".partial") || name.ends_with(".scratch"))
}

fn listed(users: &BTreeSet<String>) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<_> = users.iter().take(SHOWN).map(String::as_str).collect();
    match users.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Removes a file, or not; what it took. That it is not there is as good.
pub(super) fn remove(path: &Path, deed: Deed) -> Result<u64, StoreError> {
    let taken = path
        .symlink_metadata()
        .map_or(0, |meta| meta.blocks() * 512);
    if deed == Deed::Told {
        return Ok(taken);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::on(path, "removed", error))
        }
        _ => Ok(taken),
    }
}

pub(super) fn sync(directory: &Path) -> Result<(), StoreError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| StoreError::on(directory, "made durable", error))
}
