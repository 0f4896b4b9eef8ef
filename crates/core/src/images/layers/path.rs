//! Names in layers, in their parts.

use super::Problem;
use super::problem::shown;

/// The parts of a name.
pub(super) type Components = Vec<Vec<u8>>;

/// Where in an image the disk is, as somebody has said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPath(Components);

impl DiskPath {
    /// Reads a path; from the image's root, with or without a slash before it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts = components(text.as_bytes()).ok()?;
        let is_sound = !parts.is_empty() && text.len() <= 4096 && !text.ends_with('/');
        is_sound.then_some(Self(parts))
    }

    /// Whether it is this name, which is no path but a title.
    #[must_use]
    pub fn is(&self, title: &str) -> bool {
        self.0 == [title.as_bytes()]
    }

    /// The directory, and the name in it.
    pub(super) fn split(&self) -> (Components, Vec<u8>) {
        let mut directory = self.0.clone();
        let name = directory.pop().unwrap_or_default();
        (directory, name)
    }
}

/// The parts of a name, from the root. What would leave that is refused.
pub(super) fn components(written: &[u8]) -> Result<Components, Problem> {
    let parts = written.split(|byte| *byte == b'/');
    let parts = parts.filter(|part| !matches!(*part, b"" | b"."));
    let mut found = Components::new();
    for part in parts {
        if part == b".." {
            return Err(Problem::Leaves(shown(written)));
        }
        found.push(part.to_vec());
    }
    Ok(found)
}
