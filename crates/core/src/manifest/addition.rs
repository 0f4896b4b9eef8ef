//! Disks by themselves, for a VM that is there already.

use super::{DiskSpec, FirmwareSpec, Meta, Objects, Probes, RestartPolicy, VmCpu, VmObject};
use crate::config::command_line_place;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::live::RunningVm;
use crate::yaml::{Spanned, Value, View};

impl Objects {
    /// None yet, of an input in which disks stand by themselves, as in the list
    /// of a VM, beside the objects that they refer to.
    #[must_use]
    pub fn with_loose_disks() -> Self {
        Self {
            loose: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// Reads a document that is a disk, or a list of disks, where such are
    /// read; whether it is one.
    pub(super) fn read_loose(&mut self, view: &View<'_>, diags: &mut Diagnostics) -> bool {
        let Some(loose) = &mut self.loose else {
            return false;
        };
        let items = match &view.node.value {
            Value::Seq(_) => view.items(diags),
            Value::Map(_) if view.node.get("kind").is_none() => vec![view.clone()],
            _ => return false,
        };
        let disks = items.iter().filter_map(|item| DiskSpec::read(item, diags));
        loose.extend(disks);
        true
    }

    /// Has the disk that was read belong to a VM that runs, as the only one that
    /// is new. Without exactly one disk, that is told.
    pub fn attach_to(&mut self, vm: RunningVm, diags: &mut Diagnostics) {
        let disks = self.loose.take().unwrap_or_default();
        let whole = self.vm_places.values().map(|(_, place)| place);
        for place in whole {
            diags.push(
                Diagnostic::error(place, "a whole VM is not a disk")
                    .help("give the disk alone, as it stands in the VM's list of disks"),
            );
        }
        if let Some(second) = disks.get(1) {
            diags.push(
                Diagnostic::error(&second.place, "one disk is attached at a time")
                    .found(format!("{} disks", disks.len()))
                    .help("say disklet disk attach once for each"),
            );
        }
        let Some(first) = disks.first() else {
            if diags.errors() == 0 {
                diags.push(
                    Diagnostic::error(&command_line_place("--filename"), "there is no disk in the input")
                        .allowed("a disk as in a VM's list of disks, such as source: {pvc: {claimname: NAME}}"),
                );
            }
            return;
        };
        let place = first.place.clone();
        self.vms.push(addition(vm, disks, place));
    }

    /// Has one disk of the VM object that was read belong to the VM that runs by it, as
    /// the only one that is new.
    pub fn attach_nth(&mut self, disk: usize, vm: RunningVm) {
        let Some(mut object) = self.vms.pop() else {
            return;
        };
        if disk < object.disks.len() {
            let disk = object.disks.swap_remove(disk);
            let place = disk.place.clone();
            let mut addition = addition(vm, vec![disk], place);
            addition.meta.uid = object.meta.uid;
            self.vms.push(addition);
        }
    }
}

/// A VM of which only what is new is planned.
fn addition(vm: RunningVm, disks: Vec<DiskSpec>, place: Place) -> VmObject {
    VmObject {
        meta: Meta {
            name: vm.name.clone(),
            namespace: vm.namespace.clone(),
            uid: None,
            labels: Vec::new(),
            place: place.clone(),
        },
        running: true,
        restart: RestartPolicy::default(),
        grace: 0,
        probes: Probes::default(),
        memory: None,
        cpu: VmCpu {
            count: 1,
            setting: None,
            model: None,
        },
        firmware: FirmwareSpec {
            uefi: false,
            uuid: Some(Spanned {
                value: vm.uuid,
                place,
            }),
        },
        disks,
        interfaces: Some(Vec::new()),
        cloud_init: None,
        identity: None,
        present: Some(vm),
        refused: false,
    }
}
