//! Images that no VM uses leave a node that gets full.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use disklet_core::images::{ImageGc, Room, Unused};
use disklet_core::names::{ImageName, Sha256};

use super::remove::{remove, sync};
use super::usage::entries;
use super::{Deed, Gone, Removal, Store, StoreError, Uses};

impl Store {
    /// Notes that an image is used now: its disk's time is that of its last use.
    pub fn touch(&self, digest: &Sha256) {
        // One that is not noted is taken for older than it is.
        let disk = File::open(self.disk(digest));
        let _ = disk.and_then(|disk| disk.set_modified(SystemTime::now()));
    }

    /// The room on the store's filesystem; nothing before there is a store.
    #[must_use]
    pub fn room(&self) -> Option<Room> {
        let seen = rustix::fs::statvfs(&self.root).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(seen.f_frsize);
        Some(Room {
            size: bytes(seen.f_blocks),
            free: bytes(seen.f_bavail),
        })
    }

    /// Removes what has to go for there to be room, and what is too old: never
    /// what a VM uses, or has open, what was put here by hand, or what is kept.
    /// `room` is that of the store's
    /// filesystem.
    pub fn collect(
        &self,
        gc: &ImageGc,
        room: Room,
        kept: &[ImageName],
        uses: &Uses,
        alone: &Removal,
    ) -> Result<Vec<Gone>, StoreError> {
        let excess = gc.excess(room);
        let mut gone = Vec::new();
        let mut freed = 0;
        if excess.is_some() {
            // What nobody needs at all goes first.
            gone = self.sweep(uses, alone, Deed::Done)?;
            freed = gone.iter().map(|it| it.freed).sum();
        }
        uses.keys().for_each(|digest| self.touch(digest));
        let mut kept = self.digests_of(kept)?;
        kept.extend(self.placed()?);
        let unused = self.unused(uses, &kept)?;
        let excess = excess.map(|excess| excess.saturating_sub(freed));
        for image in gc.chosen(unused, excess) {
            gone.push(self.give_up(&image.digest)?);
        }
        Ok(gone)
    }

    /// What these names stand for.
    fn digests_of(&self, images: &[ImageName]) -> Result<BTreeSet<Sha256>, StoreError> {
        let mut digests = BTreeSet::new();
        for image in images {
            digests.extend(image.digest());
            let found = self.find_record(image.name())?;
            digests.extend(found.map(|(fact, _)| fact.digest));
        }
        Ok(digests)
    }

    /// What somebody has put here by hand: nobody could bring it back.
    fn placed(&self) -> Result<Vec<Sha256>, StoreError> {
        let placed = self.list()?.into_iter().filter(|named| named.placed);
        Ok(placed
            .filter_map(|named| Sha256::parse_hex(&named.sha256))
            .collect())
    }

    fn unused(&self, uses: &Uses, kept: &BTreeSet<Sha256>) -> Result<Vec<Unused>, StoreError> {
        let mut unused = Vec::new();
        for path in entries(&self.root.join("sha256"))? {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(digest) = name.and_then(Sha256::parse_hex) else {
                continue;
            };
            let is_needed = uses.contains_key(&digest) || kept.contains(&digest);
            let Ok(meta) = path.metadata() else {
                continue;
            };
            if is_needed || self.is_borrowed(&digest) || self.is_open(&digest) {
                continue;
            }
            let since = meta.modified().ok().and_then(|time| time.elapsed().ok());
            unused.push(Unused {
                digest,
                bytes: meta.blocks() * 512,
                // A time to come is no age.
                since: since.unwrap_or_default(),
            });
        }
        Ok(unused)
    }

    /// Removes all names of an image, and then its disk.
    fn give_up(&self, digest: &Sha256) -> Result<Gone, StoreError> {
        let hex = digest.to_string();
        let names = self.list()?.into_iter().filter(|it| it.sha256 == hex);
        let names: Vec<_> = names.map(|named| named.name).collect();
        let mut freed = 0;
        for name in &names {
            freed += remove(&self.name_file(name), Deed::Done)?;
        }
        if !names.is_empty() {
            // The names are gone for good before the disk goes.
            sync(&self.root.join("names"))?;
        }
        freed += remove(&self.disk(digest), Deed::Done)?;
        let what = match names.is_empty() {
            true => format!("the disk sha256:{digest}"),
            false => names.join(", "),
        };
        Ok(Gone { what, freed })
    }
}
