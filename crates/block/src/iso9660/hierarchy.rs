//! One of the two hierarchies of directories over the same files.

use super::identifier::{Identifier, Kind, Naming, PrimaryIdentifiers};
use super::record::{Extent, ITSELF, PARENT, Record, directory_bytes};
use super::rock_ridge::{self, Attributes};
use super::tree::{Directory, Node, Tree};

/// Directories in the order of the path table: by depth, then by parent, then
/// by identifier.
#[derive(Debug)]
pub(super) struct Hierarchy {
    naming: Naming,
    directories: Vec<Listing>,
}

#[derive(Debug)]
struct Listing {
    parent: usize,
    /// As the path table has it.
    identifier: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    identifier: Vec<u8>,
    name: String,
    target: Target,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    /// The index of a file of the tree.
    File(usize),
    /// The index of a directory of the hierarchy.
    Directory(usize),
}

/// Where everything is that directories point to.
#[derive(Debug)]
pub(super) struct Places<'a> {
    pub(super) directories: &'a [Extent],
    pub(super) files: &'a [Extent],
    /// The definition of Rock Ridge's fields.
    pub(super) definition_sector: u32,
}

/// The byte order of a path table: each is written in both.
#[derive(Debug, Clone, Copy)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl Hierarchy {
    pub(super) fn of(tree: &Tree<'_>, naming: Naming) -> Self {
        let mut directories = vec![Listing {
            parent: 0,
            identifier: ITSELF.to_vec(),
            entries: Vec::new(),
        }];
        let mut sources = vec![&tree.root];
        let mut current = 0;
        while let Some(source) = sources.get(current) {
            for (identifier, name, node) in identified(source, naming) {
                let (kind, target) = match node {
                    Node::File(index) => (Kind::File, Target::File(*index)),
                    Node::Directory(_) => (Kind::Directory, Target::Directory(directories.len())),
                };
                let identifier = identifier.recorded(naming, kind);
                if let Node::Directory(below) = node {
                    sources.push(below);
                    directories.push(Listing {
                        parent: current,
                        identifier: identifier.clone(),
                        entries: Vec::new(),
                    });
                }
                directories[current].entries.push(Entry {
                    identifier,
                    name: name.to_owned(),
                    target,
                });
            }
            current += 1;
        }
        Self {
            naming,
            directories,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.directories.len()
    }

    /// Every directory, in whole sectors. How many does not depend on the
    /// places.
    pub(super) fn directories(&self, tree: &Tree<'_>, places: &Places<'_>) -> Vec<Vec<u8>> {
        (0..self.len())
            .map(|index| directory_bytes(&self.records(index, tree, places)))
            .collect()
    }

    fn records(&self, index: usize, tree: &Tree<'_>, places: &Places<'_>) -> Vec<Record<'_>> {
        let listing = &self.directories[index];
        let itself = match index {
            0 => rock_ridge::root(self.attributes(0), places.definition_sector),
            _ => rock_ridge::unnamed(self.attributes(index)),
        };
        let parent = rock_ridge::unnamed(self.attributes(listing.parent));
        let mut records = vec![
            Record::directory(ITSELF, places.directories[index], itself),
            Record::directory(PARENT, places.directories[listing.parent], parent),
        ];
        records.extend(listing.entries.iter().map(|entry| match entry.target {
            Target::File(file) => {
                let fields =
                    rock_ridge::named(Attributes::file(tree.files[file].mode), &entry.name);
                Record::file(&entry.identifier, places.files[file], fields)
            }
            Target::Directory(below) => {
                let fields = rock_ridge::named(self.attributes(below), &entry.name);
                Record::directory(&entry.identifier, places.directories[below], fields)
            }
        }));
        if self.naming == Naming::Joliet {
            for record in &mut records {
                record.system_use.clear();
            }
        }
        records
    }

    fn attributes(&self, index: usize) -> Attributes {
        let entries = self.directories[index].entries.iter();
        Attributes::directory(entries.filter(|entry| entry.is_directory()).count())
    }

    /// The path table: all directories, each with the number of its parent.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are fewer than 65536 directories, and names are short"
    )]
    pub(super) fn path_table(&self, places: &[Extent], order: ByteOrder) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (listing, place) in self.directories.iter().zip(places) {
            let parent = listing.parent as u16 + 1;
            bytes.extend([listing.identifier.len() as u8, 0]);
            match order {
                ByteOrder::Little => {
                    bytes.extend(place.sector.to_le_bytes());
                    bytes.extend(parent.to_le_bytes());
                }
                ByteOrder::Big => {
                    bytes.extend(place.sector.to_be_bytes());
                    bytes.extend(parent.to_be_bytes());
                }
            }
            bytes.extend(&listing.identifier);
            bytes.resize(bytes.len().next_multiple_of(2), 0);
        }
        bytes
    }
}

impl Entry {
    fn is_directory(&self) -> bool {
        matches!(self.target, Target::Directory(_))
    }
}

/// The entries of a directory with their identifiers, sorted by these.
fn identified<'a>(
    directory: &'a Directory<'a>,
    naming: Naming,
) -> Vec<(Identifier, &'a str, &'a Node<'a>)> {
    let mut taken = PrimaryIdentifiers::default();
    let mut entries: Vec<_> = directory
        .entries()
        .map(|(name, node)| {
            let identifier = match (naming, node) {
                (Naming::Joliet, _) => Identifier::joliet(name),
                (Naming::Primary, Node::File(_)) => taken.next(name, Kind::File),
                (Naming::Primary, Node::Directory(_)) => taken.next(name, Kind::Directory),
            };
            (identifier, name, node)
        })
        .collect();
    entries.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    entries
}
