//! Reading a record, and what to do about one that cannot be read.

use std::fs;
use std::io;
use std::path::Path;

use super::entry::{Record, VERSION};
use crate::failure::{Failure, on};

/// Why a record cannot be read.
pub(super) enum Damage {
    /// That may be otherwise later, or with another program.
    Unread(Failure),
    /// It says nothing any more.
    Lost(Failure),
}

impl Damage {
    /// The same with what to do: nobody but the user can tell what was made for a
    /// VM without a record. `directory` is the VM's, `shown` is where devices and
    /// files of all VMs are.
    pub(super) fn explained(self, directory: &Path, shown: &Path) -> Failure {
        let failure = match self {
            Self::Unread(failure) => return failure,
            Self::Lost(failure) => failure,
        };
        let uuid = directory.file_name().unwrap_or_default().display();
        let data = directory.parent().and_then(Path::parent);
        let data = data.unwrap_or(directory).display();
        let shown = shown.join(directory.file_name().unwrap_or_default());
        let shown = shown.display();
        failure.help(format!(
            "disklet does not touch what it has no record of; the VM goes on, and its volumes are \
             whole: copy what you need. To be rid of it, say virsh destroy {uuid}; virsh undefine \
             {uuid} --keep-nvram --managed-save --snapshots-metadata (with -c, if it was started \
             with --connect); umount {shown}/*, if anything is mounted there; and rm -rf {shown} \
             $(find {data} -name '*{uuid}*' -prune). Nothing is left of it then but its devices \
             and claims, and disklet up makes it anew"
        ))
    }
}

pub(super) fn read(directory: &Path) -> Result<Option<Record>, Damage> {
    let path = directory.join("record.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Damage::Unread(on(&path, "read", error))),
    };
    let record: Record = match serde_json::from_slice(&text) {
        Ok(record) => record,
        Err(error) => {
            return Err(match version_of(&text) {
                Some(version) if version != u64::from(VERSION) => later(&path, version),
                _ => Damage::Lost(
                    Failure::new(format!("{}: is not the record of a VM", path.display()))
                        .because(error),
                ),
            });
        }
    };
    if record.version != VERSION {
        return Err(later(&path, record.version.into()));
    }
    if !directory.ends_with(record.uuid.to_string()) {
        return Err(Damage::Unread(
            Failure::new(format!(
                "{}: is the record of another VM, {}",
                path.display(),
                record.uuid
            ))
            .help("somebody has moved it: put it back into the directory of that name"),
        ));
    }
    Ok(Some(record))
}

/// Later versions may have other fields.
fn version_of(text: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    value.get("version")?.as_u64()
}

fn later(path: &Path, version: u64) -> Damage {
    Damage::Unread(
        Failure::new(format!(
            "{}: has version {version}; this program knows version {VERSION}",
            path.display()
        ))
        .help("use the version of disklet that has made the VM, or a later one"),
    )
}
