//! Where the disks of a VM object hang.

use std::collections::BTreeMap;

use super::Vm;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Bus, DeviceKind, Target};
use crate::manifest::DiskSpec;

/// The places that are taken, and whose they are.
#[derive(Default)]
pub(super) struct Targets {
    by_disk: BTreeMap<usize, Target>,
    /// Where an identity's root disk is.
    pub(super) root: Option<Target>,
    taken: BTreeMap<String, Place>,
    /// Those of disks that the VM has already, and their names.
    present: BTreeMap<String, String>,
}

impl Targets {
    /// The n-th disk's, unless it was refused.
    pub(super) fn of(&self, disk: usize) -> Option<Target> {
        self.by_disk.get(&disk).copied()
    }

    fn free(&self, bus: Bus) -> impl DoubleEndedIterator<Item = Target> {
        let all = (0..usize::from(bus.limit())).filter_map(move |index| Target::new(bus, index));
        all.filter(|target| {
            let name = target.name();
            !self.taken.contains_key(&name) && !self.present.contains_key(&name)
        })
    }

    /// A place behind all disks, for what nobody wrote.
    pub(super) fn last_free(&self) -> Option<Target> {
        self.free(Bus::Scsi).next_back()
    }

    fn take(&mut self, disk: usize, target: Target, place: &Place) {
        self.by_disk.insert(disk, target);
        self.taken.insert(target.name(), place.clone());
    }
}

/// Gives each disk its place: first those that name it, then the others, each
/// the first that is free.
pub(super) fn targets(vm: Vm<'_>, diags: &mut Diagnostics) -> Targets {
    let present = vm.object.present.iter().flat_map(|vm| &vm.disks);
    let mut targets = Targets {
        present: present
            .map(|disk| (disk.target.clone(), disk.name.clone()))
            .collect(),
        ..Targets::default()
    };
    let disks = &vm.object.disks;
    for (index, spec) in disks.iter().enumerate() {
        let Some(name) = &spec.target else { continue };
        let Some(target) = named(spec, &name.value, &name.place, diags) else {
            continue;
        };
        if let Some(there) = targets.present.get(&target.name()) {
            diags.push(
                Diagnostic::error(&name.place, "the VM has a disk at this target already")
                    .found(format!("disk {there}"))
                    .help("choose another target, or none to have the first that is free"),
            );
            continue;
        }
        match targets.taken.get(&target.name()) {
            Some(first) => diags.push(
                Diagnostic::error(&name.place, "two disks cannot have one target")
                    .found(format!("{:?}", name.value))
                    .help(format!(
                        "choose another for one of the two; the first is at {first}"
                    )),
            ),
            None => targets.take(index, target, &name.place),
        }
    }
    if let Some(identity) = &vm.object.identity {
        let place = &identity.name.place;
        let root = targets.free(Bus::Scsi).next();
        targets.root = root;
        let name = targets.root.map(Target::name);
        targets.taken.extend(name.map(|name| (name, place.clone())));
    }
    let unnamed = disks.iter().enumerate();
    for (index, spec) in unnamed.filter(|(_, spec)| spec.target.is_none()) {
        let bus = spec.bus.as_ref().map_or(Bus::Scsi, |bus| bus.value);
        if !suits(spec, bus, diags) {
            continue;
        }
        let free = targets.free(bus).next();
        match free {
            Some(target) => targets.take(index, target, &spec.place),
            None => {
                diags.push(
                    Diagnostic::error(
                        &spec.place,
                        format!("too many disks: no place is left on the {} bus", bus.name()),
                    )
                    .allowed(format!("{} disks with {}", bus.limit(), bus.name()))
                    .help("remove disks, or give some another bus"),
                );
                break;
            }
        }
    }
    targets
}

/// The place that a disk names. Without a bus its name tells which.
fn named(spec: &DiskSpec, name: &str, place: &Place, diags: &mut Diagnostics) -> Option<Target> {
    let bus = match &spec.bus {
        Some(bus) => bus.value,
        None if name.starts_with("vd") => Bus::Virtio,
        None => Bus::Scsi,
    };
    if !suits(spec, bus, diags) {
        return None;
    }
    let target = Target::named(bus, name);
    if target.is_none() {
        let at = |index| {
            Target::new(bus, index)
                .map(Target::name)
                .unwrap_or_default()
        };
        let last = usize::from(bus.limit()) - 1;
        diags.push(
            Diagnostic::error(place, format!("not a target on the {} bus", bus.name()))
                .found(format!("{name:?}"))
                .allowed(format!("{} to {}", at(0), at(last))),
        );
    }
    target
}

/// Not every kind of disk exists on every bus.
fn suits(spec: &DiskSpec, bus: Bus, diags: &mut Diagnostics) -> bool {
    let Some(device) = &spec.device else {
        return true;
    };
    let (problem, allowed) = match (device.value, bus) {
        (DeviceKind::Cdrom, Bus::Virtio) => ("there is no CD-ROM on the virtio bus", "scsi, sata"),
        (DeviceKind::Lun, Bus::Virtio | Bus::Sata) => ("a unit hangs on the scsi bus", "scsi"),
        _ => return true,
    };
    let place = spec.bus.as_ref().map_or(&device.place, |bus| &bus.place);
    diags.push(
        Diagnostic::error(place, problem)
            .found(bus.name())
            .allowed(allowed),
    );
    false
}
