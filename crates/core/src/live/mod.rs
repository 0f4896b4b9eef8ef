//! What may be changed about the disks of a VM while it runs.
//!
//! What the VM has is read from the plan that is kept of it. What is to be
//! attached is resolved as the disks of any VM are; see
//! [`Objects::attach_to`](crate::manifest::Objects::attach_to).

mod changes;
mod essence;
mod refusal;
mod resize;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use uuid::Uuid;

pub use changes::{Changes, changes};
pub use essence::is_another;
pub use refusal::Refusal;
pub use resize::{Growth, Seen, resize};

use crate::diag::nearest;
use crate::domain::{Bus, DeviceKind};
use crate::names::{Namespace, ObjectName};
use crate::units::ByteSize;

/// A VM that runs.
#[derive(Debug, Clone)]
pub struct RunningVm {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: ObjectName,
    /// Its domain's UUID.
    pub uuid: Uuid,
    /// Its disks.
    pub disks: Vec<RunningDisk>,
}

/// A disk of a VM that runs, as the kept plan has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningDisk {
    /// Unique in the VM.
    pub name: String,
    /// Where the guest finds it, such as `sda`.
    pub target: String,
    /// What it hangs on.
    pub bus: Bus,
    /// Disk, CD-ROM or unit.
    pub device: DeviceKind,
    /// What the guest knows it by.
    pub serial: String,
    /// Its turn when the guest looks for something to boot.
    #[serde(default)]
    pub boot_order: Option<u32>,
    /// Where its bytes come from.
    pub source: RunningSource,
    /// Its size when it was last known.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// A file of ours that the guest writes to instead.
    #[serde(default)]
    pub copied_to: Option<CopiedTo>,
    /// The guest cannot write.
    pub read_only: bool,
    /// It came while the VM ran.
    #[serde(default)]
    pub attached: bool,
}

/// Where the bytes of a disk come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningSource {
    /// Which sort of source.
    pub kind: String,
    /// The claim that leads to it.
    #[serde(default)]
    pub claim: Option<RunningClaim>,
    /// Where libvirt finds a device or file of the machine.
    #[serde(default)]
    pub exposed_at: Option<String>,
}

/// A claim.
#[derive(Debug, Clone, Deserialize)]
pub struct RunningClaim {
    /// Its name.
    pub claim: String,
}

/// A file of ours.
#[derive(Debug, Clone, Deserialize)]
pub struct CopiedTo {
    /// Where it is.
    pub file: String,
}

impl RunningVm {
    /// The disk of a name, or at a target.
    ///
    /// # Errors
    /// There is none, or the words fit two.
    pub fn disk(&self, wanted: &str) -> Result<&RunningDisk, Refusal> {
        let named = self.disks.iter().find(|disk| disk.name == wanted);
        let placed = self.disks.iter().find(|disk| disk.target == wanted);
        match (named, placed) {
            (Some(named), Some(placed)) if named.name != placed.name => Err(Refusal::Ambiguous {
                wanted: wanted.to_owned(),
                other: placed.name.clone(),
            }),
            (Some(disk), _) | (None, Some(disk)) => Ok(disk),
            (None, None) => {
                let known = self.disks.iter();
                let known = known.flat_map(|disk| [disk.name.as_str(), disk.target.as_str()]);
                Err(Refusal::NoDisk {
                    near: nearest(wanted, known).map(str::to_owned),
                    wanted: wanted.to_owned(),
                    there: self.disks.iter().map(RunningDisk::in_words).collect(),
                })
            }
        }
    }
}

impl RunningDisk {
    /// Its name, and its target where that differs.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.name == self.target {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, self.target),
        }
    }
}

/// Refuses what a guest cannot let go of.
///
/// # Errors
/// It cannot, while the VM runs.
pub fn demand_detachable(vm: &RunningVm, disk: &RunningDisk) -> Result<(), Refusal> {
    if disk.source.kind == "cloudInit" {
        return Err(Refusal::CloudInit);
    }
    let first = vm.disks.iter().filter_map(|disk| disk.boot_order).min();
    if disk.boot_order.is_some() && disk.boot_order == first {
        return Err(Refusal::Boots);
    }
    refuse_unpluggable(disk)
}

/// What libvirt puts into no machine that runs, nor takes out of one.
fn refuse_unpluggable(disk: &RunningDisk) -> Result<(), Refusal> {
    match (disk.device, disk.bus) {
        (DeviceKind::Cdrom, _) => Err(Refusal::Cdrom),
        (_, Bus::Sata) => Err(Refusal::Sata),
        (DeviceKind::Disk | DeviceKind::Lun, Bus::Scsi | Bus::Virtio) => Ok(()),
    }
}
