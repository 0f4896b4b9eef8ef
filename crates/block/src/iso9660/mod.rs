//! ISO 9660 images for cloud-init: a value in, bytes out.
//!
//! Every file has three names. Linux reads the Rock Ridge name, which keeps
//! case, dashes and modes; Windows reads the Joliet name; whoever knows neither
//! gets what 30 capitals, digits and underscores can say of it. There is no
//! clock in an image: the same files give the same bytes.

mod hierarchy;
mod identifier;
mod layout;
mod record;
mod rock_ridge;
mod tree;
mod volume;

#[cfg(test)]
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::error::{Result, invalid};
use layout::Layout;
use tree::Tree;

/// An image is made in memory, and cloud-init reads all of it at boot.
pub const MAX_IMAGE_BYTES: u64 = 64 << 20;
/// More than any data source of cloud-init has.
pub const MAX_FILES: usize = 1000;
/// What the label of the Joliet volume holds; the primary one must agree with
/// it, or tools disagree on what the volume is called.
pub const MAX_LABEL: usize = 16;
/// Joliet's limit.
pub const MAX_NAME: usize = 64;
/// Joliet's limit of 240 bytes.
pub const MAX_PATH: usize = 120;
/// ISO 9660 has eight levels, the root and the file among them.
pub const MAX_DIRECTORIES: usize = 7;

const SECTOR_BYTES: usize = 2048;

/// What an image holds. Directories are made as paths need them, with mode
/// 0555; everything belongs to root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsoImage {
    /// What the volume is called, such as `cidata` or `config-2`.
    pub label: String,
    /// In any order: it does not show in the image.
    pub files: Vec<IsoFile>,
}

/// One file of an image.
#[derive(Clone, PartialEq, Eq)]
pub struct IsoFile {
    /// Relative to the root of the image, with slashes.
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
    /// The permissions, such as 0444.
    pub mode: u32,
}

impl IsoImage {
    /// The image. Refuses labels and paths that some reader would show
    /// differently from what they say, and what is over the limits.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        check_label(&self.label)?;
        let tree = Tree::of(&self.files)?;
        Ok(Layout::of(&tree)?.to_bytes(&self.label, &tree))
    }
}

/// User data has passwords in it: contents do not reach a log.
impl fmt::Debug for IsoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IsoFile")
            .field("path", &self.path)
            .field("bytes", &format_args!("({})", self.bytes.len()))
            .field("mode", &format_args!("{:#o}", self.mode))
            .finish()
    }
}

/// The standard wants capitals, digits and underscores; cloud-init wants
/// `cidata` and `config-2`, which everybody reads.
fn check_label(label: &str) -> Result<()> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if label.is_empty() || !label.bytes().all(is_fine) {
        return Err(invalid(format!(
            "the label {label:?} of an ISO image must have letters, digits, \"-\" and \"_\" only"
        )));
    }
    if label.len() > MAX_LABEL {
        return Err(invalid(format!(
            "the label {label:?} of an ISO image is longer than {MAX_LABEL} characters"
        )));
    }
    Ok(())
}
