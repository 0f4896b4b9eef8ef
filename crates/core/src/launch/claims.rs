//! Which claims of a VM are in its launcher pod.
//!
//! Those that the kubelet mounts or maps. Those that QEMU opens itself are not
//! (nobody shall attach them to the node), unless the scheduler has to see the
//! pod before it binds them.

use std::collections::BTreeSet;

use crate::manifest::{
    Claim, ClaimDriver, DiskSource, DiskSpec, Objects, PersistentVolume, PvSource, VmObject,
    VolumeMode,
};
use crate::names::ObjectName;
use crate::plan::{Access, CopyMode};
use crate::resolve::{Opener, opener};

/// A claim of a launcher pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodClaim {
    pub(super) name: ObjectName,
    pub(super) used: Used,
    pub(super) read_only: bool,
}

/// What the kubelet does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Used {
    /// Nothing: the scheduler has it bound, and QEMU opens it.
    Bound,
    /// Mounts it.
    Mounted,
    /// Maps it as a device.
    Mapped,
}

/// A claim that a VM has to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    /// Which.
    pub claim: ObjectName,
    /// Why.
    pub why: String,
}

/// The claims for the pod, in the order of the disks; all that are not ready
/// otherwise.
pub(super) fn pod_claims(vm: &VmObject, objects: &Objects) -> Result<Vec<PodClaim>, Vec<Unready>> {
    let (mut claims, mut unready) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for disk in &vm.disks {
        let source = disk.source.as_ref().map(|source| &source.value);
        let Some(DiskSource::Claim { name, .. }) = source else {
            continue;
        };
        let name = &name.value;
        if !seen.insert(name) {
            continue;
        }
        match use_of(vm, disk, name, objects) {
            Ok(Some(used)) => claims.push(PodClaim {
                name: name.clone(),
                used,
                read_only: only_reads(disk),
            }),
            Ok(None) => {}
            Err(why) => unready.push(Unready {
                claim: name.clone(),
                why,
            }),
        }
    }
    match unready.is_empty() {
        true => Ok(claims),
        false => Err(unready),
    }
}

fn use_of(
    vm: &VmObject,
    disk: &DiskSpec,
    name: &ObjectName,
    objects: &Objects,
) -> Result<Option<Used>, String> {
    let key = (vm.meta.namespace.clone(), name.clone());
    let Some(claim) = objects.claims.get(&key) else {
        return Err("there is no such claim".to_owned());
    };
    let driver = disk.driver.as_ref().map(|driver| driver.value);
    let bound = claim.phase.as_deref() == Some("Bound");
    match claim.volume.as_ref().filter(|_| bound) {
        Some(volume) => match objects.volumes.get(&volume.value) {
            Some(volume) => Ok(use_of_volume(volume, driver)),
            None => Err(format!("its volume {} is not there", volume.value)),
        },
        None if waits_for_pod(claim, objects) => Ok(Some(match driver {
            Some(ClaimDriver::Qemu) => Used::Bound,
            _ => by_kubelet(claim.mode),
        })),
        None => Err(match claim.phase.as_deref() {
            Some(phase) => format!("it is {phase}, not Bound"),
            None => "it is not bound".to_owned(),
        }),
    }
}

/// What the plan refuses is for the plan to say.
fn use_of_volume(volume: &PersistentVolume, driver: Option<ClaimDriver>) -> Option<Used> {
    let source = &volume.source.value;
    if matches!(source, PvSource::Flex(_) | PvSource::ForeignFlex(_)) {
        return None;
    }
    match opener(source, driver)? {
        Opener::Qemu => None,
        Opener::Kubelet => Some(by_kubelet(volume.mode)),
    }
}

fn by_kubelet(mode: VolumeMode) -> Used {
    match mode {
        VolumeMode::Filesystem => Used::Mounted,
        VolumeMode::Block => Used::Mapped,
    }
}

/// Whether its class binds claims when a pod that has them is scheduled.
fn waits_for_pod(claim: &Claim, objects: &Objects) -> bool {
    if claim
        .phase
        .as_deref()
        .is_some_and(|phase| phase != "Pending")
    {
        return false;
    }
    let class = match &claim.class {
        Some(name) => objects.classes.values().find(|it| it.name.as_str() == name),
        None => objects.default_class(),
    };
    class.is_some_and(|class| class.waits_for_pod)
}

/// Nobody writes a master.
fn only_reads(disk: &DiskSpec) -> bool {
    let reads = |access: Access| access == Access::ReadShared;
    let copied = |mode: CopyMode| mode != CopyMode::None;
    disk.access
        .as_ref()
        .is_some_and(|access| reads(access.value))
        || disk
            .copy
            .as_ref()
            .is_some_and(|copy| copied(copy.mode.value))
}
