//! What steps make, and how it goes again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use disklet_core::lease::object_name;
use disklet_core::plan::{HostPath, Step, Storage};

use super::expose::hide_file;
use super::nodes::hide_device;
use crate::failure::{Result, on};
use crate::libvirt::{Libvirt, pool_uuid};
use crate::record::Made;

/// What a step makes that has to go with the VM.
pub(crate) fn made_by(step: &Step) -> Option<Made> {
    let made = match step {
        Step::EnsurePool { directory, .. } => Made::Pool {
            uuid: pool_uuid(directory),
        },
        Step::CreateOverlay { file, .. }
        | Step::CloneMaster { file, .. }
        | Step::CreateVolume { file, .. }
        | Step::WriteFirmwareVariables { file, .. } => Made::Volume { path: file.into() },
        Step::TakeLease {
            storage, access, ..
        } => match storage {
            // Devices and files of this machine are known by what is shown.
            Storage::OfNode { .. } => return None,
            other => Made::Lease {
                storage: other.name(),
                hosts: other.hosts().to_vec(),
                access: access.name().to_owned(),
                object: other
                    .is_reached_by_all_nodes()
                    .then(|| object_name(&other.name())),
            },
        },
        Step::WriteCloudInit { file, .. } | Step::WriteCephConfig { file } => {
            Made::File { path: file.into() }
        }
        Step::ExposeDevice {
            from,
            to,
            number,
            access,
            ..
        } => Made::Device {
            access: Some(access.name().to_owned()),
            path: to.into(),
            number: match number {
                Some(number) => number.to_string(),
                None => from.to_string(),
            },
        },
        Step::ExposeFile {
            from, to, access, ..
        } => Made::Mount {
            access: Some(access.name().to_owned()),
            path: to.into(),
            from: canonical(from),
        },
        Step::ExposeSocket { from, to } => Made::Mount {
            access: None,
            path: to.into(),
            from: from.into(),
        },
        Step::DefineSecret { uuid, .. } => Made::Secret { uuid: *uuid },
        Step::DefineDomain { uuid, .. } => Made::Domain { uuid: *uuid },
        Step::CheckServers { .. }
        | Step::EndLease { .. }
        | Step::PullImage { .. }
        | Step::FillRoot { .. }
        | Step::CreateDiskImage { .. }
        | Step::AskContainer { .. }
        | Step::AttachIdentity { .. }
        | Step::StartDomain { .. }
        | Step::JoinLauncher { .. }
        | Step::AttachDisk { .. }
        | Step::ResumeDomain { .. } => return None,
    };
    Some(made)
}

/// Two paths of one file shall be seen to be one.
fn canonical(path: &HostPath) -> PathBuf {
    let path = PathBuf::from(path.to_string());
    fs::canonicalize(&path).unwrap_or(path)
}

/// Whether it is there, without a record that says that it is ours; a pool is
/// ours by its UUID.
pub(crate) fn is_there(libvirt: &Libvirt, made: &Made) -> Result<Option<String>> {
    let at = |path: &Path| {
        let there = path.symlink_metadata().is_ok();
        there.then(|| path.display().to_string())
    };
    Ok(match made {
        Made::File { path }
        | Made::Volume { path }
        | Made::Device { path, .. }
        | Made::Mount { path, .. } => at(path),
        Made::Secret { uuid } => libvirt.has_secret(*uuid)?.then(|| format!("secret {uuid}")),
        Made::Domain { uuid } => libvirt.is_running(*uuid)?.map(|_| format!("domain {uuid}")),
        Made::Pool { .. } | Made::Lease { .. } => None,
    })
}

/// Removes what was made. That it is not there is as good.
pub(crate) fn unmake(libvirt: &Libvirt, made: &Made) -> Result<()> {
    match made {
        Made::Domain { uuid } => libvirt.remove(*uuid),
        Made::Secret { uuid } => libvirt.remove_secret(*uuid),
        Made::Pool { uuid } => libvirt.forget_pool(*uuid),
        // It is nothing but its record; what other nodes know of it goes last.
        Made::Lease { .. } => Ok(()),
        Made::Mount { path, .. } => {
            hide_file(path)?;
            remove_directory_of(path);
            Ok(())
        }
        Made::Device { path, number, .. } => {
            hide_device(path, number)?;
            remove_directory_of(path);
            Ok(())
        }
        Made::File { path } | Made::Volume { path } => remove_file(path),
    }
}

/// Durably: the record of it goes afterwards.
fn remove_file(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let removed = fs::remove_file(path)
        .and_then(|()| fs::File::open(directory))
        .and_then(|directory| directory.sync_all());
    match removed {
        Err(error) if !is_absence(&error) => Err(on(path, "removed", error)),
        _ => Ok(()),
    }
}

/// What is not there, or cannot be because its directory is none.
pub(super) fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The VM's own directory, unless something else of it is still there.
fn remove_directory_of(path: &Path) {
    if let Some(directory) = path.parent() {
        let _ = fs::remove_dir(directory);
    }
}
