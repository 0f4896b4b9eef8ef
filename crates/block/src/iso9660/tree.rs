//! Paths to a tree, with every refusal of a name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{IsoFile, MAX_DIRECTORIES, MAX_FILES, MAX_NAME, MAX_PATH};
use crate::error::{Error, Result, invalid, limit};

/// The files of an image, sorted by path, and the directories above them.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) files: Vec<&'a IsoFile>,
    pub(super) root: Directory<'a>,
}

/// Entries by their name in lower case: Joliet's readers ignore case, so that
/// two names which differ in nothing else are one to them.
#[derive(Debug, Default)]
pub(super) struct Directory<'a> {
    entries: BTreeMap<String, (&'a str, Node<'a>)>,
}

#[derive(Debug)]
pub(super) enum Node<'a> {
    /// The index of a file of the tree.
    File(usize),
    Directory(Directory<'a>),
}

impl<'a> Tree<'a> {
    pub(super) fn of(files: &'a [IsoFile]) -> Result<Self> {
        if files.len() > MAX_FILES {
            return Err(limit(format!(
                "{} files for an ISO image are more than {MAX_FILES}",
                files.len()
            )));
        }
        let mut sorted: Vec<_> = files.iter().collect();
        sorted.sort_by_key(|file| &file.path);
        let mut root = Directory::default();
        for (index, file) in sorted.iter().enumerate() {
            let refuse = |error: Error| error.of(format!("file {:?} of an ISO image", file.path));
            check_path(&file.path).map_err(refuse)?;
            check_mode(file.mode).map_err(refuse)?;
            root.insert(&file.path, index).map_err(refuse)?;
        }
        Ok(Self {
            files: sorted,
            root,
        })
    }
}

impl<'a> Directory<'a> {
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &Node<'a>)> {
        self.entries.values().map(|(name, node)| (*name, node))
    }

    fn insert(&mut self, path: &'a str, file: usize) -> Result<()> {
        let Some((name, below)) = path.split_once('/') else {
            return match self.entries.entry(path.to_ascii_lowercase()) {
                Entry::Vacant(place) => {
                    place.insert((path, Node::File(file)));
                    Ok(())
                }
                Entry::Occupied(place) => Err(clash(place.get(), path)),
            };
        };
        let entry = self
            .entries
            .entry(name.to_ascii_lowercase())
            .or_insert_with(|| (name, Node::Directory(Directory::default())));
        match entry {
            (present, Node::Directory(directory)) if *present == name => {
                directory.insert(below, file)
            }
            other => Err(clash(other, name)),
        }
    }
}

fn clash((present, node): &(&str, Node<'_>), name: &str) -> Error {
    invalid(match node {
        _ if *present != name => {
            format!(
                "{present:?} and {name:?} differ in case only, which is no difference to Joliet"
            )
        }
        Node::File(_) => format!("there is a file {name:?} already"),
        Node::Directory(_) => format!("{name:?} is a directory already"),
    })
}

fn check_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(invalid("the path is empty"));
    }
    if path.starts_with('/') {
        return Err(invalid("the path is absolute"));
    }
    for name in path.split('/') {
        check_name(name)?;
    }
    if path.len() > MAX_PATH {
        return Err(invalid(format!(
            "the path is longer than {MAX_PATH} characters"
        )));
    }
    if path.matches('/').count() > MAX_DIRECTORIES {
        return Err(invalid(format!(
            "more than {MAX_DIRECTORIES} directories are above it"
        )));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    match name {
        "" => return Err(invalid("the path has an empty name in it")),
        "." | ".." => return Err(invalid(format!("the path has {name:?} in it"))),
        _ => {}
    }
    let unfit = |letter: &char| !letter.is_ascii_graphic() || r"*:;?\".contains(*letter);
    if let Some(letter) = name.chars().find(unfit) {
        return Err(invalid(format!("a name cannot have {letter:?} in it")));
    }
    if name.len() > MAX_NAME {
        return Err(invalid(format!(
            "a name is longer than {MAX_NAME} characters"
        )));
    }
    // Linux cuts it off a Joliet name.
    if name.ends_with('.') {
        return Err(invalid("a name cannot end with a dot"));
    }
    Ok(())
}

fn check_mode(mode: u32) -> Result<()> {
    if mode > 0o7777 {
        return Err(invalid(format!(
            "mode {mode:#o} has more than permissions in it"
        )));
    }
    Ok(())
}
