//! Which file of a container image is the disk: what its layers hold, told entry
//! by entry from the uppermost layer to the lowest.
//!
//! The merged view counts: what an upper layer has, or says to be gone, hides what
//! lies below it. Nothing but names near the wanted one is kept.

mod path;
mod problem;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use path::Components;

pub use path::DiskPath;
pub use problem::{Found, Problem};

/// What stands in a layer under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A file whose bytes follow.
    File,
    /// A directory.
    Directory,
    /// Leads to another name.
    Symlink(Vec<u8>),
    /// Another name of a file.
    HardLink(Vec<u8>),
    /// A file that is stored without its holes.
    Sparse,
    /// A device, a pipe, or something unknown.
    Special,
}

/// What to do with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the disk, unless something else is found.
    Take,
    /// It is not the disk.
    Pass,
}

/// What a whole layer has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// Layers below may say more.
    Open,
    /// Whatever lies below is hidden.
    Decided,
}

/// The directory in which the disk is, unless a path is said.
const DISKS: &[u8] = b"disk";
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names of a union filesystem's own, which stand for nothing.
const RESERVED: &[u8] = b".wh..wh.";
/// More names in one directory are not kept.
const MOST_NAMES: usize = 10_000;
/// More candidates are not told.
const MOST_TOLD: usize = 20;

/// Looks for the disk.
#[derive(Debug)]
pub struct Finder {
    /// Where the disk is.
    directory: Components,
    /// Its name, if that is said.
    name: Option<Vec<u8>>,
    /// Upper layers hide the directory of lower ones.
    closed: bool,
    /// So many parts of the directory's path are directories in upper layers.
    known: usize,
    /// Names that upper layers have, or say to be gone.
    hidden: BTreeSet<Vec<u8>>,
    layer: Layer,
    found: Vec<Found>,
    elsewhere: Vec<Vec<u8>>,
}

/// What the layer that is being read says.
#[derive(Debug, Default)]
struct Layer {
    closes: bool,
    /// Of each part of the directory's path, whether it is a directory here.
    parts: Vec<Option<bool>>,
    /// Of each name in the directory, the same.
    names: BTreeMap<Vec<u8>, bool>,
    gone: BTreeSet<Vec<u8>>,
    obstacle: Option<Found>,
}

impl Finder {
    /// Looks for the only file of `/disk`, or for a certain file.
    #[must_use]
    pub fn new(wanted: Option<&DiskPath>) -> Self {
        let (directory, name) = match wanted {
            None => (vec![DISKS.to_vec()], None),
            Some(path) => {
                let (directory, name) = path.split();
                (directory, Some(name))
            }
        };
        Self {
            layer: Layer::over(directory.len()),
            directory,
            name,
            closed: false,
            known: 0,
            hidden: BTreeSet::new(),
            found: Vec::new(),
            elsewhere: Vec::new(),
        }
    }

    /// The next entry of a layer.
    pub fn entry(&mut self, written: &[u8], node: Node) -> Result<Verdict, Problem> {
        let parts = path::components(written)?;
        let Some((name, above)) = parts.split_last() else {
            return Ok(Verdict::Pass);
        };
        if name.starts_with(WHITEOUT) {
            return self.whiteout(written, above, name).map(|()| Verdict::Pass);
        }
        let common = parts.iter().zip(&self.directory);
        let common = common.take_while(|(one, other)| one == other).count();
        // All above it are directories, said or not.
        for depth in 1..=common.min(parts.len() - 1) {
            self.part(depth, Node::Directory, written)?;
        }
        if common == parts.len() {
            self.part(common, node, written)?;
            return Ok(Verdict::Pass);
        }
        if common == self.directory.len() {
            let child = &parts[common];
            if parts.len() > common + 1 || !self.is_wanted(child) {
                self.note(written, &node);
            }
            let node = match parts.len() - common {
                1 => node,
                _ => Node::Directory,
            };
            return self.child(child, node, written);
        }
        self.note(written, &node);
        Ok(Verdict::Pass)
    }

    /// The layer has ended.
    pub fn layer_ends(&mut self) -> Result<Outlook, Problem> {
        let layer = std::mem::replace(&mut self.layer, Layer::over(self.directory.len()));
        if let Some(obstacle) = layer.obstacle {
            return Err(Problem::Obstacle(obstacle));
        }
        let directories = layer.parts.iter().take_while(|part| **part == Some(true));
        self.known = self.known.max(directories.count());
        self.closed |= layer.closes;
        self.hidden.extend(layer.names.into_keys());
        self.hidden.extend(layer.gone);
        match self.found.as_slice() {
            [] => {}
            [one] if one.node == Node::File => {}
            [one] => return Err(Problem::NoFile(one.clone())),
            several => return Err(Problem::Several(several.to_vec())),
        }
        let is_settled = self
            .name
            .as_ref()
            .is_some_and(|name| self.hidden.contains(name));
        Ok(match self.closed || is_settled {
            true => Outlook::Decided,
            false => Outlook::Open,
        })
    }

    /// All layers that matter have ended: the name of the disk's file.
    pub fn finish(self) -> Result<String, Problem> {
        match self.found.first() {
            Some(found) => Ok(found.path.clone()),
            None => Err(Problem::Nothing {
                wanted: self.wanted(),
                elsewhere: self
                    .elsewhere
                    .iter()
                    .map(|path| problem::shown(path))
                    .collect(),
            }),
        }
    }

    fn wanted(&self) -> String {
        let mut path = self.directory.join(&b'/');
        path.insert(0, b'/');
        if let Some(name) = &self.name {
            if !self.directory.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        problem::shown(&path)
    }

    /// What lower layers have is gone.
    fn whiteout(&mut self, written: &[u8], above: &[Vec<u8>], name: &[u8]) -> Result<(), Problem> {
        if name == OPAQUE {
            self.layer.closes |= self.directory.starts_with(above);
            return Ok(());
        }
        let gone = &name[WHITEOUT.len()..];
        if name.starts_with(RESERVED) {
            return Ok(());
        }
        if matches!(gone, b"" | b"." | b"..") {
            return Err(Problem::Leaves(problem::shown(written)));
        }
        let Some(below) = self.directory.strip_prefix(above) else {
            return Ok(());
        };
        match below.first() {
            Some(part) => self.layer.closes |= part == gone,
            None if self.is_wanted(gone) => {
                self.layer.gone.insert(gone.to_vec());
                self.demand_few()?;
            }
            None => {}
        }
        Ok(())
    }

    /// A part of the directory's path.
    fn part(&mut self, depth: usize, node: Node, written: &[u8]) -> Result<(), Problem> {
        let is_directory = node == Node::Directory;
        match self.layer.parts[depth - 1] {
            Some(true) if is_directory => return Ok(()),
            Some(_) => return Err(Problem::Twice(problem::shown(written))),
            None => self.layer.parts[depth - 1] = Some(is_directory),
        }
        if is_directory {
            return Ok(());
        }
        self.layer.closes = true;
        if !self.closed && depth > self.known {
            let path = problem::shown(written);
            self.layer.obstacle.get_or_insert(Found { path, node });
        }
        Ok(())
    }

    /// Something in the directory.
    fn child(&mut self, name: &[u8], node: Node, written: &[u8]) -> Result<Verdict, Problem> {
        if !self.is_wanted(name) {
            return Ok(Verdict::Pass);
        }
        let is_directory = node == Node::Directory;
        match self.layer.names.get(name) {
            Some(true) if is_directory => return Ok(Verdict::Pass),
            Some(_) => return Err(Problem::Twice(problem::shown(written))),
            None => self.layer.names.insert(name.to_vec(), is_directory),
        };
        self.demand_few()?;
        // A directory is none of the candidates, unless it was asked for.
        let counts = !is_directory || self.name.is_some();
        if self.closed || self.hidden.contains(name) || !counts {
            return Ok(Verdict::Pass);
        }
        let verdict = match node == Node::File && self.found.is_empty() {
            true => Verdict::Take,
            false => Verdict::Pass,
        };
        if self.found.len() < MOST_TOLD {
            let path = problem::shown(written);
            self.found.push(Found { path, node });
        }
        Ok(verdict)
    }

    fn is_wanted(&self, name: &[u8]) -> bool {
        self.name.as_deref().is_none_or(|wanted| wanted == name)
    }

    fn demand_few(&self) -> Result<(), Problem> {
        let names = self.layer.names.len() + self.layer.gone.len() + self.hidden.len();
        match names > MOST_NAMES {
            true => Err(Problem::TooMany(self.wanted())),
            false => Ok(()),
        }
    }

    /// Keeps what looks like a disk, for a hint.
    fn note(&mut self, written: &[u8], node: &Node) {
        const ENDINGS: [&[u8]; 7] = [
            b".qcow2", b".img", b".raw", b".iso", b".gz", b".xz", b".zst",
        ];
        let looks_so = ENDINGS.iter().any(|ending| written.ends_with(ending));
        if *node == Node::File && looks_so && self.elsewhere.len() < MOST_TOLD {
            self.elsewhere.push(written.to_vec());
        }
    }
}

impl Layer {
    fn over(depth: usize) -> Self {
        Self {
            parts: vec![None; depth],
            ..Self::default()
        }
    }
}
