//! Nodes of our own for devices of the machine.
//!
//! ```text
//!   <runDir>/vms/device-7-3      one for each device, and
//!   <runDir>/vms/<uuid>/data     a link to it for each disk of a VM
//! ```
//!
//! All VMs' nodes of a device are one: so the locks by which QEMUs keep off each
//! other's disks meet. The common one goes with the last link.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use disklet::manifests::device_number;
use disklet_core::facts::DeviceNumber;
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use super::expose::give_to;
use super::made::is_absence;
use super::places::{lock_places, prepare_place};
use crate::failure::{Failure, Result, on};
use crate::libvirt::QemuUser;

/// Shows a device at a path of ours.
pub(super) fn show_device(number: DeviceNumber, to: &Path, user: Option<QemuUser>) -> Result<()> {
    let _place = prepare_place(to, user)?;
    let common = common_node(of_all_vms(to)?, number);
    if !is_same(&common, to) {
        // Another device's may be there, whose common node may go with it.
        take_away(to)?;
    }
    let device = rustix::fs::makedev(number.major, number.minor);
    if !is_node_of(&common, device) {
        remove(&common)?;
        make_node(&common, device)?;
    }
    give_to(&common, user)?;
    match is_same(&common, to) {
        true => Ok(()),
        false => fs::hard_link(&common, to).map_err(|error| on(to, "made", error)),
    }
}

/// Takes a node away again. `number` is the device's by the record: a crash may
/// have left its common node without any other.
pub(super) fn hide_device(to: &Path, number: &str) -> Result<()> {
    let of_all = of_all_vms(to)?;
    if !of_all.is_dir() {
        return Ok(());
    }
    let _place = lock_places(of_all)?;
    take_away(to)?;
    match parse(number) {
        Some(number) => remove_unless_linked(&common_node(of_all, number)),
        None => Ok(()),
    }
}

/// Removes common nodes that a crash has left without any VM's. `is_used` says
/// of a device whether a VM has it nevertheless.
pub(crate) fn sweep_nodes(run_dir: &str, is_used: impl Fn(&str) -> Result<bool>) -> Result<()> {
    let of_all = Path::new(run_dir).join("vms");
    if !of_all.is_dir() {
        return Ok(());
    }
    let failed = |error| on(&of_all, "swept", error);
    let _place = lock_places(&of_all)?;
    for entry in fs::read_dir(&of_all).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(COMMON));
        let Some(number) = number.map(|number| number.replace('-', ":")) else {
            continue;
        };
        if !is_used(&number)? {
            remove_unless_linked(&entry.path())?;
        }
    }
    Ok(())
}

/// How the names of common nodes begin; those of VMs' directories are UUIDs.
const COMMON: &str = "device-";

fn common_node(of_all: &Path, number: DeviceNumber) -> PathBuf {
    of_all.join(format!("{COMMON}{}-{}", number.major, number.minor))
}

/// A number as records have it, such as 7:3.
fn parse(number: &str) -> Option<DeviceNumber> {
    let (major, minor) = number.split_once(':')?;
    Some(DeviceNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

fn of_all_vms(to: &Path) -> Result<&Path> {
    let of_all = to.parent().and_then(Path::parent);
    of_all.ok_or_else(|| Failure::new(format!("{} is no path of ours", to.display())))
}

fn is_node_of(path: &Path, device: u64) -> bool {
    let meta = fs::symlink_metadata(path);
    meta.is_ok_and(|meta| meta.file_type().is_block_device() && meta.rdev() == device)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

/// Removes a VM's node, and the common one with the last.
fn take_away(to: &Path) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(to) else {
        return Ok(());
    };
    remove(to)?;
    match meta.file_type().is_block_device() {
        true => {
            let common = common_node(of_all_vms(to)?, device_number(meta.rdev()));
            remove_unless_linked(&common)
        }
        false => Ok(()),
    }
}

fn remove_unless_linked(common: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(common);
    match meta.is_ok_and(|meta| meta.file_type().is_block_device() && meta.nlink() == 1) {
        true => remove(common),
        false => Ok(()),
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if !is_absence(&error) => Err(on(path, "removed", error)),
        _ => Ok(()),
    }
}

fn make_node(to: &Path, device: u64) -> Result<()> {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        to,
        FileType::BlockDevice,
        Mode::RUSR | Mode::WUSR,
        device,
    )
    .map_err(|error| {
        let failure = on(to, "made", error.into());
        match error {
            Errno::PERM => failure.help("devices of the machine need root"),
            _ => failure,
        }
    })
}
