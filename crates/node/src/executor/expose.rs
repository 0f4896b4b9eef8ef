//! Devices and files of the machine, shown to libvirt at paths of ours.
//!
//! libvirt never gets the path that a user wrote. What is there is opened and
//! checked once; a device gets a node of our own with its number, a file is
//! bind-mounted by its descriptor. So nothing that happens to the user's path
//! afterwards changes what the VM has, and no rights outside our directory
//! change.

use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use disklet::manifests::device_number;
use disklet_core::facts::DeviceNumber;
use disklet_core::plan::Access;
use rustix::fs::{AtFlags, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::Host;
use super::image_file::needed_by;
use super::made::is_absence;
use super::places::prepare_place;
use crate::failure::{Failure, Result, on};
use crate::libvirt::QemuUser;

/// Opens a device as nobody else may while it is mounted or otherwise taken.
pub(super) fn open_device(
    host: Host<'_>,
    path: &Path,
    wanted: Option<DeviceNumber>,
    access: Access,
) -> Result<(File, DeviceNumber)> {
    let flags = needed_by(access) | OFlags::EXCL | OFlags::NONBLOCK;
    let file = match host.open(path, flags) {
        Ok(file) => file,
        Err(Errno::BUSY) => {
            return Err(Failure::new(format!("device {} is in use", path.display()))
                .help("it is mounted, or part of something else: lsblk and findmnt show of what"));
        }
        Err(Errno::ROFS) => return Err(read_only(path)),
        Err(error @ (Errno::ACCESS | Errno::PERM)) => {
            return Err(on(path, "opened", error.into()).help("devices of the machine need root"));
        }
        Err(error) => return Err(on(path, "opened", error.into())),
    };
    let meta = file
        .metadata()
        .map_err(|error| on(path, "looked at", error))?;
    if !meta.file_type().is_block_device() {
        return Err(Failure::new(format!(
            "{} is not a block device",
            path.display()
        )));
    }
    let number = device_number(meta.rdev());
    match wanted {
        // Most open all the same, and QEMU then fails where no disk is named.
        _ if flags.contains(OFlags::RDWR) && is_read_only(number) => Err(read_only(path)),
        Some(wanted) if wanted != number => Err(Failure::new(format!(
            "{} is device {number} now, not {wanted} as before",
            path.display()
        ))
        .help("somebody is changing the machine's devices: say it again")),
        _ => Ok((file, number)),
    }
}

/// Whether the system says that nobody can write to the device.
fn is_read_only(number: DeviceNumber) -> bool {
    let said = fs::read_to_string(format!("/sys/dev/block/{number}/ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

fn read_only(path: &Path) -> Failure {
    Failure::new(format!("device {} is read-only", path.display()))
        .help("make it writable with blockdev --setrw, or have it as a disk that is only read: readOnly: true")
}

/// Shows an open file at a path of ours.
pub(super) fn show_file(file: &File, from: &Path, to: &Path, user: Option<QemuUser>) -> Result<()> {
    let meta = file
        .metadata()
        .map_err(|error| on(from, "looked at", error))?;
    match show_place(&meta, to, user)? {
        None => Ok(()),
        Some(_place) => show_opened(file, to),
    }
}

/// Makes place for something to be shown; nothing if it is shown already.
/// Nobody else changes the place while the answer is held.
pub(super) fn show_place(
    meta: &fs::Metadata,
    to: &Path,
    user: Option<QemuUser>,
) -> Result<Option<File>> {
    let place = prepare_place(to, user)?;
    match fs::symlink_metadata(to) {
        Ok(there) if (there.dev(), there.ino()) == (meta.dev(), meta.ino()) => return Ok(None),
        Ok(_) => hide_file(to)?,
        Err(_) => {}
    }
    Ok(Some(place))
}

/// Mounts what is open at a path of ours.
pub(super) fn show_opened(file: &File, to: &Path) -> Result<()> {
    File::create_new(to)
        .and_then(|place| place.set_permissions(Permissions::from_mode(0o600)))
        .map_err(|error| on(to, "made", error))?;
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::mount::mount_bind(source, to).map_err(|error| {
        let failure = on(to, "mounted on", error.into());
        match error {
            Errno::PERM => failure.help("disk images of claims need root"),
            _ => failure,
        }
    })
}

/// Takes a file that was shown away again. That it is not there is as good.
pub(super) fn hide_file(to: &Path) -> Result<()> {
    // It may have been mounted twice.
    while is_mount(to) {
        rustix::mount::unmount(to, UnmountFlags::NOFOLLOW)
            .map_err(|error| on(to, "unmounted", error.into()))?;
    }
    match fs::remove_file(to) {
        Err(error) if !is_absence(&error) => Err(on(to, "removed", error)),
        _ => Ok(()),
    }
}

/// Whether something is mounted there: only root may ask that by unmounting.
fn is_mount(path: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let seen = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::BASIC_STATS);
    seen.is_ok_and(|seen| seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Makes something of ours QEMU's.
pub(super) fn give_to(path: &Path, user: Option<QemuUser>) -> Result<()> {
    let Some(user) = user else { return Ok(()) };
    std::os::unix::fs::lchown(path, Some(user.user), Some(user.group))
        .map_err(|error| on(path, "given to QEMU's user", error))
}
