//! What bears the name of a new file already.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use disklet_block::device::{Caching, FileDevice};

use super::Failure;
use super::open::open_to_change;

/// The place of a new file, links followed, and the file that gives way to it.
pub(super) struct Replaced {
    pub(super) path: PathBuf,
    old: Option<Old>,
}

struct Old {
    meta: Metadata,
    /// Nobody uses it, nor begins to, as long as this is held.
    _locked: FileDevice,
}

impl Replaced {
    /// Refuses what is no file, and images that somebody uses.
    pub(super) fn at(target: &Path) -> Result<Self, Failure> {
        let path = match fs::canonicalize(target) {
            Ok(path) => path,
            // Nothing is there, or a link that leads nowhere.
            Err(_) if target.is_symlink() => {
                return Err(Failure::new(format!(
                    "{}: is a link that leads nowhere",
                    target.display()
                )));
            }
            Err(_) => {
                return Ok(Self {
                    path: target.to_owned(),
                    old: None,
                });
            }
        };
        let meta = fs::metadata(&path).map_err(|error| {
            Failure::new(format!("{}: cannot be looked at: {error}", path.display()))
        })?;
        if !meta.is_file() {
            return Err(no_file(target, &meta));
        }
        let old = Old {
            meta,
            _locked: open_to_change(&path, Caching::Buffered)?,
        };
        Ok(Self {
            path,
            old: Some(old),
        })
    }

    /// The new file belongs to whom the old one did, and is no more open.
    pub(super) fn pass_on(&self, new: &File) -> io::Result<()> {
        let Some(Old { meta, .. }) = &self.old else {
            return Ok(());
        };
        let made = new.metadata()?;
        if (made.uid(), made.gid()) != (meta.uid(), meta.gid()) {
            fchown(new, Some(meta.uid()), Some(meta.gid()))?;
        }
        new.set_permissions(meta.permissions())
    }
}

fn no_file(target: &Path, meta: &Metadata) -> Failure {
    let kind = meta.file_type();
    let (what, help) = if kind.is_dir() {
        ("a directory", "name a file in it")
    } else if kind.is_block_device() {
        (
            "a block device",
            "onto a device a disk is written as it is: use -O raw",
        )
    } else {
        ("not a file", "name a file, or a block device with -O raw")
    };
    Failure::new(format!("{}: is {what}", target.display())).with_help(help)
}
