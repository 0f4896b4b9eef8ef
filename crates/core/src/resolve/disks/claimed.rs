//! Claims that are disks: block devices, and the file `disk.img` of a
//! filesystem.

use super::volumes::ClaimedDisk;
use super::{Piece, Vm};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{DeviceKind, Format, Serial};
use crate::facts::{DeviceNumber, Fact, PathFact, disk_image_in};
use crate::manifest::{PvSource, RemoteStorage, VolumeDevice, VolumeMode};
use crate::names::VolumeName;
use crate::plan::{Claimed, ExposedPath, HostPath, Migration, PlannedDisk, Size, Source, Storage};
use crate::resolve::Resolver;
use crate::resolve::devices::tell_empty;
use crate::units::ByteSize;

impl ClaimedDisk<'_> {
    pub(super) fn names(&self) -> Claimed {
        Claimed {
            claim: self.claim.meta.name.clone(),
            volume: self.volume.name.clone(),
        }
    }

    /// Storage of a node travels with the VM; any other is seen from
    /// everywhere.
    pub(super) fn migration(&self) -> Migration {
        match self.volume.source.value {
            PvSource::Local(_) | PvSource::HostPath(_) => Migration::Copied,
            PvSource::Flex(_) | PvSource::ForeignFlex(_) | PvSource::Kubelet(_) => {
                Migration::Shared
            }
        }
    }

    /// The storage behind it: the volume's own, wherever the kubelet shows it.
    pub(super) fn storage(&self, vm: Vm<'_>, number: Option<DeviceNumber>) -> Storage {
        let volume = self.volume;
        if let PvSource::Local(path) | PvSource::HostPath(path) = &volume.source.value {
            let path = match volume.mode {
                VolumeMode::Block => path.clone(),
                VolumeMode::Filesystem => disk_image_in(path),
            };
            let bound = vm.pod.node.clone().map(|node| vec![node]);
            return Storage::of_node(&path, number, bound.or(volume.nodes.clone()));
        }
        match volume.remote.clone() {
            Some(RemoteStorage::Rbd {
                monitors,
                pool,
                image,
            }) => Storage::Rbd {
                monitors,
                pool,
                image,
            },
            Some(RemoteStorage::Named(name)) => Storage::Named(name),
            None => Storage::Named(format!("PersistentVolume {}", volume.name)),
        }
    }
}

impl Resolver<'_> {
    pub(super) fn claimed_disk(
        &self,
        vm: Vm<'_>,
        name: &VolumeName,
        claimed: &ClaimedDisk<'_>,
        device: Option<&VolumeDevice>,
        diags: &mut Diagnostics,
    ) -> Option<Piece> {
        let at = vm
            .pod
            .volumes
            .iter()
            .find(|volume| volume.name.value == *name)?;
        let place = &at.source.place;
        let (exposed, size) = self.claimed_path(vm, name, claimed, place, diags)?;
        let what = match claimed.volume.mode {
            VolumeMode::Block => "claim's device",
            VolumeMode::Filesystem => "claim's disk image",
        };
        tell_empty(what, &exposed.from, size, place, diags);
        let storage = claimed.storage(vm, exposed.number);
        let source = match claimed.volume.mode {
            VolumeMode::Block => Source::BlockClaim(exposed),
            VolumeMode::Filesystem => Source::DiskImage(exposed),
        };
        Some(Piece {
            name: PlannedDisk::name_of_volume(name),
            serial: Serial::of_volume(name.as_str()),
            place: place.clone(),
            device: DeviceKind::Disk,
            source,
            format: Format::Raw,
            size: size.map_or(Size::OnNode, Size::Known),
            read_only: claimed.read_only,
            migration: claimed.migration(),
            mounts: Vec::new(),
            link: device.map(|device| device.path.value.clone()),
            claim: Some(claimed.names()),
            storage: Some(storage),
        })
    }

    /// The device of a block claim, or the image of a filesystem claim, and
    /// its size if somebody has looked.
    pub(super) fn claimed_path(
        &self,
        vm: Vm<'_>,
        name: &VolumeName,
        claimed: &ClaimedDisk<'_>,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<(ExposedPath, Option<ByteSize>)> {
        let from = self.path_on_node(vm, claimed);
        let (number, size) = match (self.seen(vm, &from), claimed.volume.mode) {
            (Fact::Unknown, _) => (None, None),
            (Fact::Known(PathFact::Block { number, size }), VolumeMode::Block) => {
                (Some(number), size)
            }
            (Fact::Known(PathFact::File { size }), VolumeMode::Filesystem) => (None, Some(size)),
            (Fact::Known(other), _) => {
                diags.push(wrong_path(claimed, &from, other, place));
                return None;
            }
        };
        let exposed = ExposedPath {
            exposed: self.exposed_path(vm, name),
            from,
            number,
        };
        Some((exposed, size))
    }

    /// Where the kubelet puts a claim's volume. Without a cluster there is no
    /// kubelet, and a node's own storage is used where it is.
    fn path_on_node(&self, vm: Vm<'_>, claimed: &ClaimedDisk<'_>) -> HostPath {
        let volume = claimed.volume;
        let source = &volume.source.value;
        let own_path = match source {
            PvSource::Local(path) | PvSource::HostPath(path) => Some(path),
            PvSource::Flex(_) | PvSource::ForeignFlex(_) | PvSource::Kubelet(_) => None,
        };
        let in_place = vm.pod.meta.uid.is_none() || matches!(source, PvSource::HostPath(_));
        if let Some(path) = own_path.filter(|_| in_place) {
            return HostPath::Known(match volume.mode {
                VolumeMode::Block => path.clone(),
                VolumeMode::Filesystem => disk_image_in(path),
            });
        }
        let plugin = source.plugin();
        let below = match volume.mode {
            VolumeMode::Block => format!("volumeDevices/{plugin}/{}", volume.name),
            VolumeMode::Filesystem => {
                let mount = if plugin == "kubernetes.io~csi" {
                    "/mount"
                } else {
                    ""
                };
                format!("volumes/{plugin}/{}{mount}/disk.img", volume.name)
            }
        };
        let kubelet_root = self.config.kubelet_root.clone();
        match &vm.pod.meta.uid {
            Some(uid) => HostPath::Known(format!("{kubelet_root}/pods/{uid}/{below}")),
            None => HostPath::InPod {
                kubelet_root,
                below,
            },
        }
    }

    /// What is known of a claim's path. In a cluster the kubelet may not have
    /// put anything there yet, so absence would mean nothing.
    fn seen(&self, vm: Vm<'_>, path: &HostPath) -> Fact<PathFact> {
        match path {
            HostPath::Known(path) if vm.pod.meta.uid.is_none() => self.facts.path(path),
            HostPath::Known(_) | HostPath::InPod { .. } => Fact::Unknown,
        }
    }
}

fn wrong_path(
    claimed: &ClaimedDisk<'_>,
    path: &HostPath,
    found: PathFact,
    place: &Place,
) -> Diagnostic {
    let claim = &claimed.claim.meta.name;
    let wanted = match claimed.volume.mode {
        VolumeMode::Block => "a block device",
        VolumeMode::Filesystem => "a raw disk image",
    };
    let help = match (found, claimed.volume.mode) {
        (PathFact::Missing, VolumeMode::Filesystem) => {
            "put a raw disk image named disk.img into the volume; to plan for another node use --facts FILE, or --offline"
        }
        _ => {
            "correct the PersistentVolume; to plan for another node use --facts FILE, or --offline"
        }
    };
    Diagnostic::error(
        place,
        format!("claim {claim} leads to {path}, which is not {wanted}"),
    )
    .found(found)
    .allowed(wanted)
    .help(help)
}
