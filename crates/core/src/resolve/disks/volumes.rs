//! Which volumes of a pod are disks, and which cannot be.

use std::collections::{BTreeMap, BTreeSet};

use disklet_flexvolume::Options;

use super::is_root;
use super::nodes::{refuse_distant, tell_other_node};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::{
    Claim, FlexVolume, PersistentVolume, PvSource, VmPod, Volume, VolumeDevice, VolumeMode,
    VolumeSource,
};
use crate::names::{Namespace, ObjectName, VolumeName};
use crate::plan::Claimed;
use crate::resolve::claims::NotBound;
use crate::resolve::{Reference, Resolver, missing_help};
use crate::units::ByteSize;
use crate::yaml::Spanned;

/// The volumes of a pod that are disks, in the order of the spec.
#[derive(Default)]
pub(super) struct DiskVolumes<'v> {
    list: Vec<(Spanned<VolumeName>, DiskVolume<'v>)>,
    /// Volumes that were refused already; what refers to them is not blamed.
    failed: BTreeSet<VolumeName>,
    /// Those among them that are disks of which nothing can be seen from here.
    unseen: Vec<(&'v VolumeName, &'v Place)>,
}

/// A volume that is a disk.
pub(super) enum DiskVolume<'v> {
    /// By our FlexVolume driver, in the pod or through a claim.
    Flex(FlexDisk<'v>),
    /// A claim of another driver.
    Claimed(ClaimedDisk<'v>),
}

/// A flexvolume.
pub(super) struct FlexDisk<'v> {
    pub(super) flex: &'v FlexVolume,
    pub(super) read_only: bool,
    /// The claim that leads to it, if one does.
    pub(super) claim: Option<Claimed>,
    /// The hosts that its PersistentVolume names.
    pub(super) hosts: Option<&'v [String]>,
}

/// A claim and its volume.
pub(in crate::resolve) struct ClaimedDisk<'v> {
    pub(in crate::resolve) claim: &'v Claim,
    pub(in crate::resolve) volume: &'v PersistentVolume,
    pub(in crate::resolve) read_only: bool,
}

impl ClaimedDisk<'_> {
    pub(super) fn is_block(&self) -> bool {
        self.volume.mode == VolumeMode::Block
    }

    pub(in crate::resolve) fn names(&self) -> Claimed {
        claimed_names(self.claim, self.volume)
    }
}

fn claimed_names(claim: &Claim, volume: &PersistentVolume) -> Claimed {
    Claimed {
        claim: claim.meta.name.clone(),
        volume: volume.name.clone(),
        for_one_pod: claim.is_for_one_pod(),
    }
}

impl<'v> DiskVolumes<'v> {
    pub(super) fn get(&self, name: &VolumeName) -> Option<&DiskVolume<'v>> {
        let found = self.list.iter().find(|(other, _)| other.value == *name);
        found.map(|(_, volume)| volume)
    }

    pub(super) fn failed(&self, name: &VolumeName) -> bool {
        self.failed.contains(name)
    }

    /// Disks that cannot be seen from here, and are no root, in the order of their claims.
    pub(super) fn unseen_in_order(&self, pod: &VmPod) -> Vec<(&'v VolumeName, &'v Place)> {
        let devices = &pod.container.devices;
        let device = |name: &VolumeName| devices.iter().position(|it| it.volume.value == *name);
        let is_root = |name: &VolumeName| device(name).is_some_and(|nth| is_root(&devices[nth]));
        let disks = self.unseen.iter().copied();
        let mut disks: Vec<_> = disks.filter(|(name, _)| !is_root(name)).collect();
        disks.sort_by_key(|(name, _)| device(name).unwrap_or(usize::MAX));
        disks
    }

    /// Claims that are disks: those with a device path in the order of
    /// `volumeDevices`, as the kubelet hands them on, then the others in the
    /// order of the spec.
    pub(super) fn claims_in_order(
        &self,
        devices: &[&VolumeDevice],
    ) -> Vec<(&VolumeName, &ClaimedDisk<'v>)> {
        let mut claims: Vec<_> = self
            .list
            .iter()
            .filter_map(|(name, volume)| match volume {
                DiskVolume::Claimed(claimed) => Some((&name.value, claimed)),
                DiskVolume::Flex(_) => None,
            })
            .collect();
        let rank = |name: &VolumeName| {
            devices
                .iter()
                .position(|device| device.volume.value == *name)
                .unwrap_or(usize::MAX)
        };
        claims.sort_by_key(|(name, _)| rank(name));
        claims
    }

    pub(super) fn flexvolumes_by_name(&self) -> Vec<(&Spanned<VolumeName>, &FlexDisk<'v>)> {
        let by_name: BTreeMap<_, _> = self
            .list
            .iter()
            .filter_map(|(name, volume)| match volume {
                DiskVolume::Flex(flex) => Some((&name.value, (name, flex))),
                DiskVolume::Claimed(_) => None,
            })
            .collect();
        by_name.into_values().collect()
    }
}

impl Resolver<'_> {
    /// Sorts out the volumes of a pod. A volume that cannot be had is refused
    /// by name; none is ignored.
    pub(super) fn disk_volumes<'v>(
        &'v self,
        pod: &'v VmPod,
        diags: &mut Diagnostics,
    ) -> DiskVolumes<'v> {
        let mut volumes = DiskVolumes::default();
        let mut claims_seen: BTreeMap<&ObjectName, &Volume> = BTreeMap::new();
        for source in &pod.unnamed {
            if let VolumeSource::Directory(kind) = &source.value {
                let what = format!("a volume of kind {kind}");
                diags.push(not_shared(&source.place, &what));
            }
        }
        for volume in &pod.volumes {
            let disk = match &volume.source.value {
                VolumeSource::Files(_) => continue,
                VolumeSource::Refused => None,
                VolumeSource::Directory(kind) => {
                    diags.push(refuse_directory(
                        volume,
                        &format!("a volume of kind {kind}"),
                    ));
                    None
                }
                VolumeSource::Flex(flex) => Some(DiskVolume::Flex(FlexDisk {
                    flex,
                    read_only: flex.read_only,
                    claim: None,
                    hosts: None,
                })),
                VolumeSource::Claim { name, read_only } => {
                    if let Some(first) = claims_seen.insert(name, volume) {
                        diags.push(
                            Diagnostic::error(
                                &volume.source.place,
                                "one claim cannot be two disks",
                            )
                            .found(format!("claim {name}"))
                            .help(format!("volume {} uses it already", first.name.value)),
                        );
                        None
                    } else if self.hidden_claim(&pod.meta.namespace, name).is_some() {
                        let unseen = (&volume.name.value, &volume.source.place);
                        volumes.unseen.push(unseen);
                        None
                    } else {
                        self.claimed_volume(pod, volume, name, *read_only, diags)
                    }
                }
            };
            match disk {
                Some(disk) => volumes.list.push((volume.name.clone(), disk)),
                None => {
                    volumes.failed.insert(volume.name.value.clone());
                }
            }
        }
        let claimed = volumes.list.iter().filter_map(|(name, disk)| match disk {
            DiskVolume::Claimed(claimed) => Some((&name.place, claimed.volume)),
            DiskVolume::Flex(_) => None,
        });
        refuse_distant(claimed, diags);
        volumes
    }

    fn claimed_volume<'v>(
        &'v self,
        pod: &VmPod,
        at: &Volume,
        name: &ObjectName,
        read_only: bool,
        diags: &mut Diagnostics,
    ) -> Option<DiskVolume<'v>> {
        let (claim, volume) = self.bound(&pod.meta.namespace, name, &at.source.place, diags)?;
        tell_other_node(pod, at, volume, diags);
        let read_only = read_only || claim.read_only || volume.read_only;
        if let PvSource::Flex(flex) = &volume.source.value {
            refuse_less_than_promised(flex, volume, diags);
            return Some(DiskVolume::Flex(FlexDisk {
                flex,
                read_only,
                claim: Some(claimed_names(claim, volume)),
                hosts: volume.nodes.as_deref(),
            }));
        }
        if let PvSource::ForeignFlex(driver) = &volume.source.value {
            diags.push(
                Diagnostic::error(
                    &at.source.place,
                    "another FlexVolume driver's volume cannot be a disk of a VM",
                )
                .found(format!("volume {} of driver {driver:?}", volume.name))
                .allowed(disklet_flexvolume::DRIVERS.join(", ")),
            );
            return None;
        }
        let mounted = pod
            .container
            .mounts
            .iter()
            .any(|mount| mount.volume.value == at.name.value);
        if volume.mode == VolumeMode::Filesystem && mounted {
            diags.push(refuse_directory(
                at,
                "a filesystem claim mounted as a directory",
            ));
            return None;
        }
        Some(DiskVolume::Claimed(ClaimedDisk {
            claim,
            volume,
            read_only,
        }))
    }

    /// A claim and the volume that it is bound to.
    pub(in crate::resolve) fn bound(
        &self,
        namespace: &Namespace,
        name: &ObjectName,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<(&Claim, &PersistentVolume)> {
        if self.hidden_claim(namespace, name).is_some() {
            return None;
        }
        let key = (namespace.clone(), name.clone());
        let claim = self.objects.claims.get(&key);
        let claim = self.missing.note(claim, || Reference::Claim(key.clone()));
        let Some(claim) = claim else {
            if self.objects.was_refused("PersistentVolumeClaim", &key) {
                return None;
            }
            diags.push(
                Diagnostic::error(
                    place,
                    format!("the claim {name} is missing in namespace {}", key.0),
                )
                .help(missing_help(
                    "PersistentVolumeClaim",
                    &key,
                    self.objects.claims.keys(),
                )),
            );
            return None;
        };
        let bound = self.bindings.volume(&key)?;
        if let Err(NotBound::VolumeMissing(volume)) = bound {
            let missing = || Reference::Volume(volume.clone());
            self.missing.note(None::<()>, missing);
        }
        match bound {
            Ok(volume) => Some((claim, self.objects.volumes.get(volume)?)),
            // Perhaps it would have fitted one that was refused.
            Err(NotBound::NoMatch { .. } | NotBound::VolumeMissing(_))
                if self.objects.refused_a_volume() =>
            {
                None
            }
            Err(reason) => {
                let (message, help) = reason.explain();
                diags.push(
                    Diagnostic::error(place, message)
                        .found(format!("claim {name} of namespace {}", key.0))
                        .help(help),
                );
                None
            }
        }
    }
}

/// A claim gets what its volume promises, so the volume must have it.
pub(in crate::resolve) fn refuse_less_than_promised(
    flex: &FlexVolume,
    volume: &PersistentVolume,
    diags: &mut Diagnostics,
) {
    if let Options::Qcow2(options) = &flex.options
        && options.capacity.bytes() < volume.capacity.as_bytes()
    {
        diags.push(
            Diagnostic::error(
                flex.place_of("capacity"),
                "less than the PersistentVolume promises",
            )
            .found(ByteSize::from_bytes(options.capacity.bytes()))
            .allowed(format!("at least {}", volume.capacity))
            .help("set the option capacity to the volume's capacity"),
        );
    }
}

fn refuse_directory(volume: &Volume, what: &str) -> Diagnostic {
    let what = format!("volume {}: {what}", volume.name.value);
    not_shared(&volume.source.place, &what)
}

fn not_shared(place: &Place, what: &str) -> Diagnostic {
    Diagnostic::error(place, format!("{what} cannot be shared with a VM yet"))
    .allowed("flexVolume, persistentVolumeClaim (block, or a disk.img that is not mounted), secret, configMap, projected, downwardAPI")
    .help("remove the volume, or use a disk, such as a qcow2 flexvolume, instead")
}
