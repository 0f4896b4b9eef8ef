//! A filesystem in memory that holds one file, and where it is mounted.

use std::fs::File;
use std::io::{Read, Write};

use disklet_flexvolume::Volume;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatxAttributes, StatxFlags, fstatfs, openat, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    unmount,
};
use rustix::process::fchdir;

/// What the filesystem is called among the mounts.
const SOURCE: &str = "disklet";

/// ramfs rather than tmpfs: its pages never go to swap.
const RAMFS: &str = "ramfs";
const RAMFS_MAGIC: i64 = 0x8584_58f6;
const TMPFS_MAGIC: i64 = 0x0102_1994;

const OLD_LINUX: &str = "Linux 5.8 or newer is needed";

/// What is at a name in a directory.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    /// A directory with nothing mounted at it.
    Directory(OwnedFd),
    /// A directory with something mounted at it.
    Mount(OwnedFd),
}

pub(crate) fn look(parent: impl AsFd, name: &str) -> Result<Found, String> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(parent, name, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err(format!("{name} is there and is no directory: remove it"));
        }
        Err(error) => return Err(format!("cannot open {name}: {error}")),
    };
    let status = statx(&directory, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
        .map_err(|error| format!("cannot look at {name}: {error}"))?;
    if !status
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT)
    {
        return Err(OLD_LINUX.to_owned());
    }
    Ok(
        if status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            Found::Mount(directory)
        } else {
            Found::Directory(directory)
        },
    )
}

/// What is mounted is ours, or what Virtlet's driver has left: a filesystem in memory
/// with nothing but their files in it.
pub(crate) fn demand_ours(mount: impl AsFd) -> Result<(), String> {
    let failed = |error: Errno| format!("cannot look at the mount: {error}");
    let found = fstatfs(&mount).map_err(failed)?;
    let is_in_memory = [RAMFS_MAGIC, TMPFS_MAGIC].contains(&found.f_type);
    match is_in_memory && holds_only(&mount, &[Volume::FILE, VIRTLETS_FILE]).map_err(failed)? {
        true => Ok(()),
        false => Err(FOREIGN_MOUNT.to_owned()),
    }
}

const FOREIGN_MOUNT: &str = "something that is not ours is mounted there: unmount it";
pub(crate) const VIRTLETS_FILE: &str = "virtlet-flexvolume.json";

/// Whether a directory has no other files than these.
pub(crate) fn holds_only(directory: impl AsFd, files: &[&str]) -> Result<bool, Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let mut known = [".", ".."].iter().chain(files);
        if !known.any(|known| known.as_bytes() == name) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file has this content.
pub(crate) fn holds(directory: impl AsFd, file: &str, content: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(directory, file, flags, Mode::empty()) else {
        return false;
    };
    let mut found = Vec::new();
    let longest = content.len() as u64 + 1;
    let read = File::from(file).take(longest).read_to_end(&mut found);
    read.is_ok() && found == content.as_bytes()
}

/// Makes the filesystem with its file. It is mounted nowhere yet, so it vanishes
/// with this process; and nobody can write to it any more.
pub(crate) fn prepare(file: &str, content: &str) -> Result<OwnedFd, String> {
    try_prepare(file, content).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSYS) => OLD_LINUX.to_owned(),
            Some(Errno::PERM) => "the driver must run as root".to_owned(),
            _ => format!("cannot make a filesystem in memory: {error}"),
        }
    })
}

fn try_prepare(file: &str, content: &str) -> std::io::Result<OwnedFd> {
    let filesystem = fsopen(RAMFS, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&filesystem, "source", SOURCE)?;
    fsconfig_set_string(&filesystem, "mode", "0700")?;
    fsconfig_create(&filesystem)?;
    let harmless = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, harmless)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(&mount, file, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(content.as_bytes())?;
    drop(file);
    // The filesystem itself, not this mount of it: the pod has one of its own.
    fsconfig_set_flag(&filesystem, "ro")?;
    fsconfig_reconfigure(&filesystem)?;
    Ok(mount)
}

/// Mounts a prepared filesystem, whole and at once.
pub(crate) fn publish(mount: impl AsFd, parent: impl AsFd, name: &str) -> Result<(), String> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, "", parent, name, flags)
        .map_err(|error| format!("cannot mount at {name}: {error}"))
}

/// Unmounts everything that is mounted at a name, as far as it is ours.
pub(crate) fn unmount_all(parent: impl AsFd, name: &str) -> Result<(), String> {
    // A path relative to an open directory: no link can be put in the way.
    let failed = |error: Errno| format!("cannot unmount {name}: {error}");
    fchdir(&parent).map_err(failed)?;
    while let Found::Mount(mounted) = look(&parent, name)? {
        demand_ours(&mounted)?;
        // Somebody may look into it just now; its memory goes when they are done.
        unmount(name, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(failed)?;
    }
    Ok(())
}
