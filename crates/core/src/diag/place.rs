//! Where something stands in the input.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::words::{shortened, shown};

/// A line and a column, both counted from 1; 0 if there are none, as on a
/// command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// The way from the root of a document to a field, shared between neighbours.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FieldPath(Option<Arc<PathNode>>);

#[derive(PartialEq, Eq)]
struct PathNode {
    parent: FieldPath,
    segment: Segment,
}

#[derive(PartialEq, Eq)]
enum Segment {
    Key(Box<str>),
    Index(usize),
}

impl FieldPath {
    /// The path of the entry `key` below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.below(Segment::Key(key.into()))
    }

    /// The path of the n-th item below this one.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.below(Segment::Index(index))
    }

    fn below(&self, segment: Segment) -> Self {
        Self(Some(Arc::new(PathNode {
            parent: self.clone(),
            segment,
        })))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(node) = &self.0 else { return Ok(()) };
        write!(f, "{}", node.parent)?;
        match &node.segment {
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => {
                let shown = shortened(key);
                // A key with dots or slashes would read as several.
                if key.contains(['.', '/', '[', ']']) {
                    write!(f, "[{shown}]")
                } else if node.parent.0.is_none() {
                    f.write_str(&shown)
                } else {
                    write!(f, ".{shown}")
                }
            }
        }
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What an input is called in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    name: Arc<str>,
    has_lines: bool,
}

impl Origin {
    /// An object of a cluster, by its kind and name; the empty name is the object that
    /// is spoken of anyway. Lines and columns mean nothing to those who see it, only
    /// fields do.
    #[must_use]
    pub fn object(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            has_lines: false,
        }
    }

    /// Whether its author knows it by lines.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.has_lines
    }
}

/// A file, as the user named it.
impl<T: Into<Arc<str>>> From<T> for Origin {
    fn from(name: T) -> Self {
        Self {
            name: name.into(),
            has_lines: true,
        }
    }
}

impl Deref for Origin {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

/// Where something stands in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or the object of a cluster.
    pub file: Origin,
    /// Line and column.
    pub pos: Pos,
    /// The field.
    pub path: FieldPath,
}

impl Place {
    /// The line, counted from 1, if there is one to tell.
    pub(super) fn line(&self) -> Option<u32> {
        (self.file.has_lines && self.pos.line > 0).then_some(self.pos.line)
    }

    /// The same for the column.
    pub(super) fn column(&self) -> Option<u32> {
        (self.file.has_lines && self.pos.column > 0).then_some(self.pos.column)
    }

    /// The field after all that leads to it, each with a colon: how a problem begins.
    pub(super) fn leads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            f.write_str(&shown(&self.file))?;
            if let Some(line) = self.line() {
                write!(f, ":{line}:{}", self.pos.column)?;
            }
            f.write_str(": ")?;
        }
        match self.path.0 {
            Some(_) => write!(f, "{}: ", self.path),
            None => Ok(()),
        }
    }
}

/// As another place refers to it: a file by line, an object by field.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = shown(&self.file);
        match (self.file.has_lines, self.line()) {
            (true, None) => f.write_str(&name),
            (true, Some(line)) => write!(f, "{name}:{line}:{}", self.pos.column),
            (false, _) if name.is_empty() => write!(f, "{}", self.path),
            (false, _) => write!(f, "{name}, {}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: Origin) -> Place {
        Place {
            file,
            pos: Pos {
                line: 1,
                column: 173,
            },
            path: FieldPath::default().key("spec").key("disks").index(1),
        }
    }

    #[test]
    fn an_object_has_fields_and_no_lines() {
        assert_eq!(place("vm.yaml".into()).to_string(), "vm.yaml:1:173");
        let named = place(Origin::object("VM web"));
        assert_eq!(named.to_string(), "VM web, spec.disks[1]");
        assert_eq!(named.line(), None);
        assert_eq!(place(Origin::object("")).to_string(), "spec.disks[1]");
    }
}
