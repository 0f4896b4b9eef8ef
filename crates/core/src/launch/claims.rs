//! Which claims of a VM are in its launcher pod.
//!
//! Those that the kubelet mounts or maps. Those that QEMU opens itself are not
//! (nobody shall attach them to the node), unless the scheduler has to see the
//! pod before it binds them.

use std::collections::BTreeSet;

use crate::manifest::{
    Claim, ClaimDriver, DiskSource, DiskSpec, Objects, PersistentVolume, PvSource, StorageClass,
    VmObject, VolumeMode,
};
use crate::names::ObjectName;
use crate::plan::{Access, CopyMode};
use crate::resolve::{Opener, candidates, opener};

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
        let Some(name) = claim_of(disk) else {
            continue;
        };
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

/// A disk that a VM cannot have while its launcher pod is the one that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its claim.
    pub claim: String,
    /// By what the VM knows it; nothing if that is its place among others.
    pub name: Option<String>,
}

/// Takes disks out of a VM object whose claims only a new launcher pod can carry: those
/// that the kubelet or the scheduler has to see, and that the pod does not have. Returns
/// them.
pub fn leave_out(vm: &mut VmObject, objects: &Objects, carried: &BTreeSet<String>) -> Vec<LeftOut> {
    let mut left = Vec::new();
    let disks = std::mem::take(&mut vm.disks);
    for disk in disks {
        match claim_of(&disk) {
            Some(name)
                if !carried.contains(name.as_str())
                    && matches!(use_of(vm, &disk, name, objects), Ok(Some(_))) =>
            {
                let (own, target) = (disk.name.as_ref(), disk.target.as_ref());
                let own = own.map(|it| it.value.to_string());
                left.push(LeftOut {
                    claim: name.to_string(),
                    name: own.or_else(|| target.map(|it| it.value.clone())),
                });
            }
            _ => vm.disks.push(disk),
        }
    }
    left
}

fn claim_of(disk: &DiskSpec) -> Option<&ObjectName> {
    match &disk.source.as_ref()?.value {
        DiskSource::Claim { name, .. } => Some(&name.value),
        _ => None,
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
    if let Some(fill) = claim.fill.filter(|fill| !fill.is_done()) {
        return Err(format!(
            "it {}: the VM is launched when it is full",
            fill.why_not()
        ));
    }
    let driver = disk.driver.as_ref().map(|driver| driver.value);
    let bound = claim.phase.as_deref() == Some("Bound");
    match claim.volume.as_ref().filter(|_| bound) {
        Some(volume) => match objects.volumes.get(&volume.value) {
            Some(volume) => Ok(use_of_volume(volume, driver)),
            None => Err(format!("its volume {} is not there", volume.value)),
        },
        None if let Some(class) = awaited_class(claim, objects) => {
            use_once_bound(claim, class, driver, objects).map(Some)
        }
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

/// The class of a claim that is bound when a pod that has it is scheduled.
fn awaited_class<'o>(claim: &Claim, objects: &'o Objects) -> Option<&'o StorageClass> {
    let phase = claim.phase.as_deref();
    if phase.is_some_and(|phase| phase != "Pending") {
        return None;
    }
    let class = match &claim.class {
        Some(name) => objects.classes.values().find(|it| it.name.as_str() == name),
        None => objects.default_class(),
    };
    class.filter(|class| class.waits_for_pod)
}

/// What becomes of a claim that nobody has bound yet. The kubelet must not
/// touch what QEMU shall open: it would even make a filesystem on it.
fn use_once_bound(
    claim: &Claim,
    class: &StorageClass,
    driver: Option<ClaimDriver>,
    objects: &Objects,
) -> Result<Used, String> {
    match driver {
        Some(ClaimDriver::Qemu) => return Ok(Used::Bound),
        Some(ClaimDriver::Kubelet) => return Ok(by_kubelet(claim.mode)),
        None => {}
    }
    let candidates = candidates(claim, objects).into_iter();
    let (by_qemu, others): (Vec<_>, Vec<_>) =
        candidates.partition(|volume| use_of_volume(volume, None).is_none());
    match (by_qemu.first(), others.first()) {
        (Some(one), Some(other)) => Err(format!(
            "it may be bound to volume {}, which QEMU opens, or to {}, which the kubelet mounts: say \
             which with driver: {{name: qemu}} or driver: {{name: kubelet}}",
            one.name, other.name
        )),
        (Some(_), None) => Ok(Used::Bound),
        (None, None) if class.provisioner.as_deref() == Some(RBD) => Ok(Used::Bound),
        (None, _) => Ok(by_kubelet(claim.mode)),
    }
}

/// Kubernetes' own provisioner of volumes that QEMU opens.
const RBD: &str = "kubernetes.io/rbd";

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::{Diagnostics, Origin};
    use crate::manifest::Input;
    use crate::names::Namespace;

    fn bound(name: &str, source: &str) -> String {
        format!(
            "---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], {source}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, uid: 4f1c3a52-6f6f-4a39-8a3c-1d5b8a7c9e01}}
spec: {{volumeName: {name}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
status: {{phase: Bound}}
"
        )
    }

    #[test]
    fn disks_that_only_a_new_pod_can_carry_are_left_out() {
        let vm = "apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {name: vm}
spec:
  domain:
    memory: 1Gi
    devices:
      disks:
      - {name: root, source: {image: {name: example.com/image}}}
      - {name: carried, source: {pvc: {claimname: carried}}}
      - {name: mounted, source: {pvc: {claimname: mounted}}}
      - {name: direct, source: {pvc: {claimname: direct}}}
      - {name: missing, source: {pvc: {claimname: missing}}}
";
        let nfs = "nfs: {server: 192.0.2.1, path: /v}";
        let iscsi =
            "volumeMode: Block, iscsi: {targetPortal: 192.0.2.1, iqn: iqn.2024-01.test:a, lun: 0}";
        let text = [
            vm.to_owned(),
            bound("carried", nfs),
            bound("mounted", &nfs.replace("/v", "/w")),
            bound("direct", iscsi),
        ];
        let (mut objects, mut diags) = (Objects::default(), Diagnostics::default());
        let input = Input {
            name: Origin::object(""),
            text: text.concat(),
        };
        objects.read(&input, &Namespace::parse("default").unwrap(), &mut diags);
        assert_eq!(diags.errors(), 0, "{diags:?}");
        let mut vm = objects.vms.pop().unwrap();
        let carried = BTreeSet::from(["carried".to_owned()]);
        let mounted = LeftOut {
            claim: "mounted".to_owned(),
            name: Some("mounted".to_owned()),
        };
        assert_eq!(leave_out(&mut vm, &objects, &carried), [mounted]);
        let left = vm.disks.iter().filter_map(|disk| disk.name.as_ref());
        let left: Vec<_> = left.map(|name| name.value.to_string()).collect();
        // What is not there is for the plan to say.
        assert_eq!(left, ["root", "carried", "direct", "missing"]);
    }
}
