//! VM objects: from what is written to a plan.

mod addition;
mod answers;
mod claim;
mod cloud_init;
mod direct;
mod disk;
mod flex;
mod master;
mod matrix;
mod target;

pub(super) use answers::refuse_idle_answers;

use uuid::Uuid;

pub(crate) use claim::{Opener, opener};

use super::disks::nodes::refuse_distant;
use super::disks::{Home, refuse_equal_serials};
use super::sharing::{User, refuse_two_users};
use super::{Resolver, derived_uuid, domain_uuid, mac_address};
use crate::cloudinit::CloudInitSpec;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Cpu, Firmware, Interface, InterfaceModel, Uefi};
use crate::manifest::{DiskSpec, VmObject};
use crate::names::{Namespace, ObjectName, PodUid, VolumeName};
use crate::plan::{Draft, Launcher, Plan, PlannedDisk, Purpose};

/// The VM whose disks are being resolved.
#[derive(Clone, Copy)]
struct Vm<'v> {
    object: &'v VmObject,
    uuid: Uuid,
    /// Its pod, if that is on the node.
    launcher: Option<&'v PodUid>,
    /// It is in a cluster, or will be.
    in_cluster: bool,
}

impl<'v> Vm<'v> {
    fn namespace(self) -> &'v Namespace {
        &self.object.meta.namespace
    }

    /// Its pod has a UID of its own, which is known once the pod is there.
    fn home(self) -> Home<'v> {
        Home {
            uuid: self.uuid,
            node: None,
            pod_uid: self.launcher.map(PodUid::as_str),
            in_cluster: self.in_cluster,
        }
    }

    /// A UUID for something of one of its disks.
    fn derived(self, what: &str, disk: &VolumeName) -> Uuid {
        derived_uuid(self.uuid, &format!("{what}/{disk}"))
    }
}

/// The disks of a VM object, and where each is written.
pub(super) fn users<'v>(
    vm: &'v VmObject,
    disks: &'v [PlannedDisk],
) -> impl Iterator<Item = User<'v>> {
    disks.iter().map(|disk| {
        // Those that nobody wrote are made for the VM.
        let spec = disk.origin.and_then(|index| vm.disks.get(index));
        let source = spec.and_then(|spec| spec.source.as_ref());
        User {
            owner: &vm.meta,
            kind: "VM",
            place: source.map_or(&vm.meta.place, |source| &source.place),
            serial: spec.map_or(&vm.meta.place, serial_place),
            disk,
        }
    })
}

/// Where the serial number of a disk comes from.
fn serial_place(spec: &DiskSpec) -> &Place {
    let serial = spec.serial.as_ref().map(|serial| &serial.place);
    let name = spec.name.as_ref().map(|name| &name.place);
    serial.or(name).unwrap_or(&spec.place)
}

impl Resolver<'_> {
    pub(super) fn vm_plan(&self, object: &VmObject, diags: &mut Diagnostics) -> Option<Plan> {
        let errors_before = diags.errors();
        let uuid = domain_uuid(&object.meta, object.firmware.uuid.as_ref());
        let key = (object.meta.namespace.clone(), object.meta.name.clone());
        let launcher = self.facts.launchers.get(&key);
        let vm = Vm {
            object,
            uuid,
            launcher,
            in_cluster: object.meta.uid.is_some() || self.unseen.cluster,
        };
        let disks = self.vm_disks(vm, diags);
        let interfaces = interfaces(vm);
        let mac = interfaces.first().map(|interface| interface.mac.as_str());
        let cloud_init = self.vm_cloud_init(vm, mac, diags);
        if object.refused || diags.errors() > errors_before {
            return None;
        }
        let cpu = match &object.cpu.setting {
            Some(setting) => Cpu::Setting(setting.clone()),
            None => Cpu::Model(object.cpu.model.unwrap_or(self.config.cpu_model)),
        };
        if !object.running {
            diags.push(
                Diagnostic::notice(&object.meta.place, "the VM is not to run: running is false")
                    .help("write running: true to have it started"),
            );
        }
        let memory = object.memory.as_ref();
        let sizes = disks.iter().filter_map(PlannedDisk::known_later);
        let later = cloud_init.iter().flat_map(CloudInitSpec::known_later);
        let draft = Draft {
            namespace: object.meta.namespace.clone(),
            name: object.meta.name.clone(),
            suffix: domain_suffix(&object.meta.name),
            uuid,
            memory: memory.map_or(self.config.default_memory, |memory| memory.value),
            vcpus: object.cpu.count,
            cpu,
            hypervisor: self.hypervisor(),
            firmware: self.firmware(vm),
            interfaces,
            purpose: match object.present {
                None => Purpose::Domain,
                Some(_) => Purpose::Addition,
            },
            running: object.running,
            launcher: launcher.cloned().map(|pod| Launcher { pod }),
            known_later: sizes.chain(later).collect(),
            disks,
            cloud_init: cloud_init.map(|spec| spec.build()),
        };
        Some(draft.build(self.config))
    }

    fn firmware(&self, vm: Vm<'_>) -> Firmware {
        if !vm.object.firmware.uefi {
            return Firmware::Bios;
        }
        Firmware::Uefi(Uefi {
            code: self.config.uefi.code.clone(),
            template: self.config.uefi.variables.clone(),
            variables: format!("{}/uefi/{}.fd", self.config.data_dir, vm.uuid),
        })
    }

    /// The disks in the order of the spec, then the cloud-init image.
    fn vm_disks(&self, vm: Vm<'_>, diags: &mut Diagnostics) -> Vec<PlannedDisk> {
        let targets = target::targets(vm, diags);
        let mut disks = Vec::new();
        let mut volumes = Vec::new();
        disks.extend(self.identity_disk(vm, &targets));
        for (index, spec) in vm.object.disks.iter().enumerate() {
            let Some(target) = targets.of(index) else {
                continue;
            };
            let found = self.vm_disk(vm, spec, target, diags);
            if let Some((piece, volume)) = found {
                volumes.extend(volume.map(|volume| (&spec.place, volume)));
                let mut disk = piece.at(target);
                disk.origin = Some(index);
                disks.push(disk);
            }
        }
        refuse_distant(volumes.into_iter(), diags);
        match &vm.object.present {
            Some(present) => addition::refuse(vm, present, &disks, diags),
            None => self.decide_boot(vm, &mut disks, diags),
        }
        disks.extend(self.vm_cloud_init_disk(vm, &targets, diags));
        disk::refuse_equal_names(vm, &disks, diags);
        let users: Vec<_> = users(vm.object, &disks).collect();
        refuse_equal_serials(&users, diags);
        disk::refuse_claim_twice(vm, &disks, diags);
        refuse_two_users(users.into_iter(), diags);
        disks
    }
}

/// libvirt makes files of a domain's name, and no file has a name of more than
/// 255 bytes. The UUID before it tells two apart whose names begin alike.
fn domain_suffix(name: &ObjectName) -> String {
    const MOST: usize = 200;
    name.as_str().chars().take(MOST).collect()
}

fn interfaces(vm: Vm<'_>) -> Vec<Interface> {
    let usual = || Interface {
        mac: mac_address(vm.uuid),
        model: InterfaceModel::Virtio,
    };
    let Some(written) = &vm.object.interfaces else {
        return vec![usual()];
    };
    let interfaces = written.iter().map(|spec| Interface {
        mac: match &spec.mac {
            Some(mac) => mac.value.clone(),
            None => mac_address(vm.uuid),
        },
        model: spec.model,
    });
    interfaces.collect()
}
