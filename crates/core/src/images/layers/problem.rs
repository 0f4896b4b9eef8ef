//! Why a container image has no disk for us.

use std::fmt;

use super::Node;
use crate::diag::shortened;

/// Something in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name, fit to be shown.
    pub path: String,
    /// What it is.
    pub node: Node,
}

/// Why no file of an image is its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A name that leads out of the image.
    Leaves(String),
    /// A layer has a name twice, or something below a file.
    Twice(String),
    /// What should be a directory is none.
    Obstacle(Found),
    /// What is there is no file.
    NoFile(Found),
    /// There are several.
    Several(Vec<Found>),
    /// There are too many to be looked at.
    TooMany(String),
    /// There is nothing; there may be disks elsewhere.
    Nothing {
        /// Where the disk should be.
        wanted: String,
        /// Files that look like disks.
        elsewhere: Vec<String>,
    },
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.node {
            Node::File => write!(f, "{path}"),
            Node::Directory => write!(f, "{path} (a directory)"),
            Node::Symlink(to) => write!(f, "{path} (a symbolic link to {})", shown(to)),
            Node::HardLink(to) => write!(f, "{path} (a hard link to {})", shown(to)),
            Node::Sparse => write!(f, "{path} (a sparse file)"),
            Node::Special => write!(f, "{path} (a device or a pipe)"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaves(path) => write!(f, "the image has a name that leads out of it: {path}"),
            Self::Twice(path) => {
                write!(f, "a layer of the image contradicts itself about {path}")
            }
            Self::Obstacle(found) => write!(f, "the way to the disk is no directory: {found}"),
            Self::NoFile(found) => write!(f, "the disk is no file of its own: {found}"),
            Self::Several(found) => {
                let all: Vec<_> = found.iter().map(Found::to_string).collect();
                write!(
                    f,
                    "the image has several files where its disk should be: {}",
                    all.join(", ")
                )
            }
            Self::TooMany(wanted) => {
                write!(f, "the image has more files in {wanted} than are looked at")
            }
            Self::Nothing { wanted, elsewhere } => {
                write!(f, "the image has no file {}", In(wanted))?;
                match elsewhere.as_slice() {
                    [] => Ok(()),
                    some => write!(f, "; elsewhere it has {}", some.join(", ")),
                }
            }
        }
    }
}

/// The directory of disks, or one path.
struct In<'w>(&'w str);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "/disk" => f.write_str("in /disk"),
            path => f.write_str(path),
        }
    }
}

impl std::error::Error for Problem {}

impl Problem {
    /// What the user can do.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Several(_) | Self::TooMany(_) => "say with --path which of them it is",
            Self::Obstacle(_) | Self::NoFile(_) => {
                "say with --path where the file itself is: links are not followed"
            }
            Self::Nothing { .. } => {
                "an image of a disk has one file in /disk; say with --path where it is instead"
            }
            Self::Leaves(_) | Self::Twice(_) => "have the image built anew",
        }
    }
}

/// A name of a stranger's, fit for a message.
pub(super) fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    shortened(&text.escape_debug().to_string())
}
