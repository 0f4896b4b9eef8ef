//! Devices that a QEMU may have. QEMU locks what it opens, by the inode: at the
//! path that users know, one that is not ours may have it; at our own, one of a
//! VM of ours, or one that somebody has started by hand.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet::manifests::device_number;
use disklet_block::device::{Access as LockedFor, Caching, FileDevice};
use disklet_core::facts::DeviceNumber;
use disklet_core::plan::Access;
use rustix::fs::OFlags;

use super::Host;
use crate::failure::{Failure, Result, on};

/// Refuses a device that somebody has, if the VM shall have it alone.
pub(super) fn demand_unlocked(device: &File, path: &str, access: Access) -> Result<()> {
    match access {
        Access::WriteExclusive => {}
        // Others may write, or read, as they do.
        Access::WriteShared | Access::ReadShared => return Ok(()),
    }
    let device = device.try_clone();
    let device = device.map_err(|error| on(path, "opened", error))?;
    lock(&as_device(device, path)?, path)
}

/// Keeps QEMUs off a device at the path that users know, for as long as the
/// answer is held.
pub(super) fn hold(host: Host<'_>, path: &str, number: DeviceNumber) -> Result<FileDevice> {
    let device = open_again(host, path, number, OFlags::RDWR)?;
    lock(&device, path)?;
    Ok(device)
}

/// Keeps others from writing to a master that is being copied, for as long as
/// the device, and the answer, are held. QEMUs that have a device at the path
/// that users know do not see a lock at our own.
pub(super) fn hold_master(
    host: Host<'_>,
    master: &FileDevice,
    known_as: &str,
) -> Result<Option<FileDevice>> {
    lock_to_read(master, known_as)?;
    if !master.is_block() {
        // What is shown of a file is that file.
        return Ok(None);
    }
    let meta = master.file().metadata();
    let meta = meta.map_err(|error| on(known_as, "looked at", error))?;
    let number = device_number(meta.rdev());
    let again = open_again(host, known_as, number, OFlags::RDONLY)?;
    lock_to_read(&again, known_as)?;
    Ok(Some(again))
}

fn lock_to_read(device: &FileDevice, path: &str) -> Result<()> {
    device.lock(LockedFor::Read).map_err(|error| {
        Failure::new(format!("{path}: cannot be cloned"))
            .because(error.without_name(path))
            .help("a copy of what is being changed is worth nothing: stop the VM or program that uses it first")
    })
}

/// Opens a device at the path that users know, where it must still be.
fn open_again(host: Host<'_>, path: &str, number: DeviceNumber, to: OFlags) -> Result<FileDevice> {
    // Not alone, as it is open at our own path as well.
    let file = host.open(Path::new(path), to | OFlags::NONBLOCK);
    let file = file.map_err(|error| on(path, "opened", error.into()))?;
    let meta = file
        .metadata()
        .map_err(|error| on(path, "looked at", error))?;
    if device_number(meta.rdev()) != number {
        return Err(
            Failure::new(format!("{path} is not device {number} any more"))
                .help("somebody is changing the machine's devices: say it again"),
        );
    }
    as_device(file, path)
}

/// Keeps QEMUs off an open device, for as long as it is open.
pub(super) fn lock(device: &FileDevice, path: &str) -> Result<()> {
    device
        .lock(LockedFor::Change)
        .map_err(|error| in_use(path, error))
}

fn as_device(file: File, path: &str) -> Result<FileDevice> {
    FileDevice::new(file, path, Caching::Buffered).map_err(|error| in_use(path, error))
}

fn in_use(path: &str, error: disklet_block::error::Error) -> Failure {
    Failure::new(format!("device {path} is in use"))
        .because(error)
        .help("a VM that is not ours may have it: stop that first")
}
