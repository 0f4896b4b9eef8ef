//! Which sector has what, and the sectors in that order.

use super::hierarchy::{ByteOrder, Hierarchy, Places};
use super::identifier::Naming;
use super::record::Extent;
use super::tree::Tree;
use super::volume::{self, Volume};
use super::{MAX_IMAGE_BYTES, SECTOR_BYTES, rock_ridge};
use crate::error::{Error, Result, limit};

/// The system area, which is left to boot loaders.
const FIRST_DESCRIPTOR: u32 = 16;
/// The primary one, Joliet's, and one that ends them.
const DESCRIPTORS: u32 = 3;

/// The hierarchies of an image, and where everything is.
#[derive(Debug)]
pub(super) struct Layout {
    primary: Placed,
    joliet: Placed,
    definition_sector: u32,
    files: Vec<Extent>,
    sectors: u32,
}

/// A hierarchy and where its parts are.
#[derive(Debug)]
struct Placed {
    hierarchy: Hierarchy,
    little_path_table: Extent,
    big_path_table: Extent,
    directories: Vec<Extent>,
}

/// Hands out sectors in ascending order.
struct Sectors {
    next: u32,
}

impl Sectors {
    fn take(&mut self, bytes: usize) -> Result<Extent> {
        let sectors = u32::try_from(bytes.div_ceil(SECTOR_BYTES)).map_err(|_| too_large())?;
        let sector = self.next;
        self.next = sector.checked_add(sectors).ok_or_else(too_large)?;
        Ok(Extent {
            // Nothing has no place, and readers look for none.
            sector: if sectors == 0 { 0 } else { sector },
            bytes: u32::try_from(bytes).map_err(|_| too_large())?,
        })
    }
}

impl Layout {
    pub(super) fn of(tree: &Tree<'_>) -> Result<Self> {
        let mut sectors = Sectors {
            next: FIRST_DESCRIPTOR + DESCRIPTORS,
        };
        let primary = Placed::of(tree, Naming::Primary, &mut sectors)?;
        let joliet = Placed::of(tree, Naming::Joliet, &mut sectors)?;
        let definition = sectors.take(rock_ridge::definition().len())?;
        let files = tree.files.iter().map(|file| sectors.take(file.bytes.len()));
        let files = files.collect::<Result<_>>()?;
        if u64::from(sectors.next) * SECTOR_BYTES as u64 > MAX_IMAGE_BYTES {
            return Err(too_large());
        }
        Ok(Self {
            primary,
            joliet,
            definition_sector: definition.sector,
            files,
            sectors: sectors.next,
        })
    }

    /// The image. The parts follow each other as they were placed.
    pub(super) fn to_bytes(&self, label: &str, tree: &Tree<'_>) -> Vec<u8> {
        let mut image = Vec::with_capacity(self.sectors as usize * SECTOR_BYTES);
        image.resize(FIRST_DESCRIPTOR as usize * SECTOR_BYTES, 0);
        image.extend(volume::primary(label, &self.primary.volume(self.sectors)));
        image.extend(volume::joliet(label, &self.joliet.volume(self.sectors)));
        image.extend(volume::terminator());
        self.primary.append(&mut image, self, tree);
        self.joliet.append(&mut image, self, tree);
        append(&mut image, &rock_ridge::definition());
        for file in &tree.files {
            append(&mut image, &file.bytes);
        }
        image
    }
}

impl Placed {
    fn of(tree: &Tree<'_>, naming: Naming, sectors: &mut Sectors) -> Result<Self> {
        let hierarchy = Hierarchy::of(tree, naming);
        // Sizes do not depend on places, so that any will do to learn them.
        let unplaced = Places {
            directories: &vec![Extent::default(); hierarchy.len()],
            files: &vec![Extent::default(); tree.files.len()],
            definition_sector: 0,
        };
        let path_table = hierarchy.path_table(unplaced.directories, ByteOrder::Little);
        let little_path_table = sectors.take(path_table.len())?;
        let big_path_table = sectors.take(path_table.len())?;
        let directories = hierarchy.directories(tree, &unplaced);
        let directories = directories.iter().map(|bytes| sectors.take(bytes.len()));
        let directories = directories.collect::<Result<_>>()?;
        Ok(Self {
            hierarchy,
            little_path_table,
            big_path_table,
            directories,
        })
    }

    fn volume(&self, sectors: u32) -> Volume {
        Volume {
            sectors,
            path_table_bytes: self.little_path_table.bytes,
            little_path_table: self.little_path_table.sector,
            big_path_table: self.big_path_table.sector,
            root: self.directories[0],
        }
    }

    fn append(&self, image: &mut Vec<u8>, layout: &Layout, tree: &Tree<'_>) {
        let places = Places {
            directories: &self.directories,
            files: &layout.files,
            definition_sector: layout.definition_sector,
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            append(image, &self.hierarchy.path_table(&self.directories, order));
        }
        for directory in self.hierarchy.directories(tree, &places) {
            append(image, &directory);
        }
    }
}

fn append(image: &mut Vec<u8>, part: &[u8]) {
    image.extend(part);
    image.resize(image.len().next_multiple_of(SECTOR_BYTES), 0);
}

fn too_large() -> Error {
    limit(format!(
        "the files of an ISO image take more than {} MiB",
        MAX_IMAGE_BYTES >> 20
    ))
}
