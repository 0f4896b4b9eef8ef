//! Making a disk larger.

use super::{Refusal, RunningDisk};
use crate::domain::{Bus, DeviceKind};
use crate::units::ByteSize;

/// What is true of a disk at this moment.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// What the guest sees.
    pub guest: ByteSize,
    /// What the device behind it has, if it is one of this machine.
    pub device: Option<ByteSize>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub enum Growth {
    /// It has that size.
    Already(ByteSize),
    /// It gets one.
    To(ByteSize),
    /// It gets that of its unit, which QEMU asks the target for.
    AsItsUnit,
}

/// A QEMU image of ours is smaller than this.
const BEYOND: u64 = 16 << 40;
const SECTOR: u64 = 512;

/// What has to be done to have a disk of a size; without one, of that of the
/// device or the unit behind it.
///
/// # Errors
/// It cannot have it, while the VM runs.
pub fn resize(disk: &RunningDisk, wanted: Option<ByteSize>, seen: Seen) -> Result<Growth, Refusal> {
    let behind = behind(disk)?;
    let wanted = match wanted {
        Some(size) => Some(in_sectors(size)?),
        None => None,
    };
    let size = match (behind, seen.device, wanted) {
        (Behind::Device, Some(device), Some(wanted)) if wanted != device => {
            return Err(Refusal::OtherDevice { device, wanted });
        }
        (Behind::Device, Some(device), _) => device,
        (Behind::Device, None, _) => return Err(Refusal::Unknown),
        (Behind::File | Behind::Unit | Behind::Server, _, Some(wanted)) => wanted,
        (Behind::Unit, _, None) => return Ok(Growth::AsItsUnit),
        (Behind::File, _, None) => return Err(Refusal::NoSize),
        (Behind::Server, _, None) => return Err(Refusal::NoSizeOfServer),
    };
    if size < seen.guest {
        return Err(Refusal::Shrinks {
            from: seen.guest,
            to: size,
        });
    }
    if size == seen.guest {
        return Ok(Growth::Already(size));
    }
    Ok(Growth::To(size))
}

/// Guests count in sectors.
fn in_sectors(size: ByteSize) -> Result<ByteSize, Refusal> {
    if size.as_bytes() >= BEYOND {
        return Err(Refusal::TooLarge(size));
    }
    Ok(ByteSize::from_bytes(
        size.as_bytes().next_multiple_of(SECTOR),
    ))
}

/// What QEMU writes to, as far as its size goes.
#[derive(Debug, Clone, Copy)]
enum Behind {
    /// QEMU makes it longer.
    File,
    /// Somebody else makes it longer, and QEMU looks again.
    Device,
    /// The same at a target.
    Unit,
    /// At a server, where QEMU makes it as large as it is told, and does not ask before.
    Server,
}

fn behind(disk: &RunningDisk) -> Result<Behind, Refusal> {
    let kind = disk.source.kind.as_str();
    if kind == "cloudInit" {
        return Err(Refusal::CloudInit);
    }
    match (disk.device, disk.bus) {
        (DeviceKind::Cdrom, _) => return Err(Refusal::Cdrom),
        (DeviceKind::Lun, _) => return Err(Refusal::Unit),
        (DeviceKind::Disk, Bus::Sata) => return Err(Refusal::Sata),
        (DeviceKind::Disk, Bus::Scsi | Bus::Virtio) => {}
    }
    if disk.read_only {
        return Err(Refusal::ReadOnly);
    }
    if disk.copied_to.is_some() {
        return Ok(Behind::File);
    }
    match kind {
        "newVolume" | "diskImage" => Ok(Behind::File),
        "rawDevice" | "blockClaim" => Ok(Behind::Device),
        "persistentRoot" => Err(Refusal::PersistentRoot),
        "iscsi" => Ok(Behind::Unit),
        "rbd" | "gluster" => Ok(Behind::Server),
        "nbd" => Err(Refusal::Opened("an NBD export")),
        "http" | "https" => Err(Refusal::Opened("what a web server has")),
        _ => Err(Refusal::Unknown),
    }
}
