//! What a disk has to keep to that is put into a VM that runs.

use super::{Vm, serial_place};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Bus, DeviceKind};
use crate::live::{RunningDisk, RunningVm};
use crate::manifest::DiskSpec;
use crate::plan::PlannedDisk;

/// Refuses what the VM has already, and what no VM takes while it runs.
pub(super) fn refuse(
    vm: Vm<'_>,
    present: &RunningVm,
    disks: &[PlannedDisk],
    diags: &mut Diagnostics,
) {
    for disk in disks {
        let Some(spec) = disk.origin.and_then(|index| vm.object.disks.get(index)) else {
            continue;
        };
        for there in &present.disks {
            refuse_equal(spec, disk, there, diags);
        }
        refuse_cold(spec, disk, diags);
    }
}

fn refuse_equal(spec: &DiskSpec, disk: &PlannedDisk, there: &RunningDisk, diags: &mut Diagnostics) {
    if disk.name == there.name {
        let place = spec.name.as_ref().map_or(&spec.place, |name| &name.place);
        diags.push(
            Diagnostic::error(place, "the VM has a disk of this name already")
                .found(format!("disk {} at {}", there.name, there.target))
                .help("give it another name; if this is the same disk, it is attached"),
        );
        return;
    }
    if disk.serial.as_str() == there.serial {
        diags.push(
            Diagnostic::error(
                serial_place(spec),
                "the VM has a disk of this serial number already",
            )
            .found(format!("{}, which disk {} has", there.serial, there.name))
            .help("give it another serial"),
        );
    }
    let claim = disk.claim.as_ref().map(|claim| claim.claim.as_str());
    let theirs = there.source.claim.as_ref();
    if claim.is_some() && claim == theirs.map(|it| it.claim.as_str()) {
        let place = spec.source.as_ref().map_or(&spec.place, |it| &it.place);
        diags.push(
            Diagnostic::error(place, "one claim cannot be two disks")
                .found(format!(
                    "claim {}, which is disk {}",
                    claim.unwrap_or_default(),
                    there.name
                ))
                .help("attach another claim"),
        );
    }
}

/// What takes effect at a start only.
fn refuse_cold(spec: &DiskSpec, disk: &PlannedDisk, diags: &mut Diagnostics) {
    let mut refuse = |place: &Place, problem: &str, allowed: &str| {
        diags.push(
            Diagnostic::error(place, problem)
                .allowed(allowed)
                .help("or write the disk into the VM's manifest, then say disklet down and up"),
        );
    };
    if let (DeviceKind::Cdrom, Some(device)) = (disk.device, &spec.device) {
        let problem = "a CD-ROM cannot be put into a VM that runs";
        refuse(&device.place, problem, "disk, lun");
    } else if disk.target.bus() == Bus::Sata {
        let place = spec.bus.as_ref().map_or(&spec.place, |bus| &bus.place);
        let problem = "nothing can be put on the sata bus while the VM runs";
        refuse(place, problem, "scsi, virtio");
    }
    if let Some(turn) = &spec.boot_order {
        let problem = "a VM that runs has booted";
        refuse(&turn.place, problem, "a disk without bootOrder");
    }
}
