//! Claims that are disks: block devices, and the file `disk.img` of a
//! filesystem.

use super::volumes::ClaimedDisk;
use super::{Home, Piece, Vm};
use crate::diag::{Diagnostic, Diagnostics, Place, Remedy, shown};
use crate::domain::Serial;
use crate::facts::{DISK_IMAGE, Fact, NodeThing, PathFact, disk_image_in};
use crate::manifest::{
    GlusterfsVolume, PersistentVolume, PvSource, RemoteStorage, VolumeDevice, VolumeMode,
};
use crate::names::{Namespace, VolumeName};
use crate::plan::{ExposedPath, HostPath, Migration, PlannedDisk, Size, Source, Storage};
use crate::resolve::devices::tell_empty;
use crate::resolve::{Reference, Resolver};
use crate::source::{Endpoint, Gluster, Iqn, Lun};
use crate::units::ByteSize;

/// Where a claim's bytes are on the node, and what is known of them if
/// somebody has looked.
pub(in crate::resolve) struct ClaimedPath {
    pub(in crate::resolve) exposed: ExposedPath,
    pub(in crate::resolve) thing: Option<NodeThing>,
    pub(in crate::resolve) size: Option<ByteSize>,
}

/// Plugins whose filesystem every node may mount, whatever the claim asks for.
const IS_A_FILE_SERVER: [&str; 4] = ["azureFile", "cephfs", "nfs", "quobyte"];

/// Its plugin mounts a disk, which others may reach as well.
const FIBRE_CHANNEL: &str = "fc";

/// What it means if nothing is where a claim leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resolve) enum Absent {
    /// There has to be something.
    Refused,
    /// A file of this size is made.
    Made(ByteSize),
    /// It may have been cloned before.
    PerhapsCloned,
}

impl Absent {
    fn made(self) -> Option<ByteSize> {
        match self {
            Self::Made(size) => Some(size),
            Self::Refused | Self::PerhapsCloned => None,
        }
    }
}

impl ClaimedDisk<'_> {
    /// What the disk is, once it is known where it is.
    pub(in crate::resolve) fn source(
        &self,
        exposed: ExposedPath,
        create: Option<ByteSize>,
    ) -> Source {
        match self.volume.mode {
            VolumeMode::Block => Source::BlockClaim(exposed),
            VolumeMode::Filesystem => Source::DiskImage {
                file: exposed,
                create,
            },
        }
    }

    /// Whether the kubelet mounts a filesystem that is on one disk at a server, whatever
    /// the claim says of nodes.
    pub(in crate::resolve) fn is_mounted_by_one_node(&self) -> bool {
        let is_one_disk = match &self.volume.source.value {
            PvSource::Iscsi(_) | PvSource::Rbd(_) => true,
            PvSource::Kubelet(plugin) => plugin.as_str() == FIBRE_CHANNEL,
            _ => false,
        };
        !self.is_block() && is_one_disk
    }

    /// Storage of a node travels with the VM, and so does what one node has at a
    /// time: a disk with a filesystem on it that a kubelet mounts, or a volume whose
    /// driver does not promise more.
    pub(in crate::resolve) fn migration(&self) -> Migration {
        let is_read = self.claim.read_only || self.volume.read_only;
        let is_for_many = is_read || self.claim.is_written_by_many_nodes();
        let is_seen_everywhere = match &self.volume.source.value {
            PvSource::Local(_) | PvSource::HostPath(_) => false,
            PvSource::Glusterfs(_) => true,
            PvSource::Kubelet(plugin) if IS_A_FILE_SERVER.contains(&plugin.as_str()) => true,
            _ if self.is_mounted_by_one_node() => is_read,
            PvSource::Iscsi(_) | PvSource::Rbd(_) => true,
            PvSource::Flex(_) | PvSource::ForeignFlex(_) | PvSource::Kubelet(_) => is_for_many,
        };
        match is_seen_everywhere {
            true => Migration::Shared,
            false => Migration::Copied,
        }
    }

    fn storage(&self, home: Home<'_>, thing: Option<NodeThing>) -> Storage {
        let volume = self.volume;
        if let PvSource::Local(path) | PvSource::HostPath(path) = &volume.source.value {
            let path = match volume.mode {
                VolumeMode::Block => path.clone(),
                VolumeMode::Filesystem => disk_image_in(path),
            };
            let nodes = home.nodes(volume.nodes.as_deref());
            return Storage::of_node(&path, thing, nodes);
        }
        let known = match &volume.remote {
            _ if let Some(unit) = iscsi_unit(&volume.source.value) => unit,
            Some(RemoteStorage::Rbd {
                monitors,
                pool,
                image,
            }) => Storage::rbd(monitors.iter().map(String::as_str), pool, image),
            Some(RemoteStorage::Cephfs { monitors, path }) => {
                Storage::cephfs(monitors.iter().map(String::as_str), path)
            }
            Some(RemoteStorage::FibreChannel { names, lun }) => {
                Storage::fibre_channel(names.iter().map(String::as_str), lun.as_deref())
            }
            Some(RemoteStorage::PartOf { disk, part }) => Storage::PartOf {
                disk: disk.clone(),
                part: part.clone(),
            },
            Some(RemoteStorage::Named(name)) => Storage::Named(name.clone()),
            None => Storage::Named(format!("PersistentVolume {}", volume.name)),
        };
        known.shown_as(thing)
    }
}

/// The unit that an iSCSI volume names. The kubelet takes names that QEMU's driver
/// does not.
fn iscsi_unit(source: &PvSource) -> Option<Storage> {
    let PvSource::Iscsi(volume) = source else {
        return None;
    };
    let target = &volume.target.as_ref()?.value;
    let lun = volume.lun.as_ref().map_or(0, |lun| lun.value);
    if let (Some(target), Some(lun)) = (Iqn::parse(target), Lun::new(lun)) {
        return Some(Storage::iscsi(&target, lun));
    }
    let target = shown(target).to_ascii_lowercase();
    let target = target.trim_end_matches('/');
    Some(Storage::Named(format!("iscsi unit {target}/{lun}")))
}

impl Resolver<'_> {
    /// The storage behind a claim: the volume's own, wherever the kubelet shows
    /// it.
    pub(in crate::resolve) fn storage_of(
        &self,
        claimed: &ClaimedDisk<'_>,
        home: Home<'_>,
        thing: Option<NodeThing>,
    ) -> Storage {
        let namespace = &claimed.claim.meta.namespace;
        match &claimed.volume.source.value {
            PvSource::Glusterfs(volume) => self.gluster_storage(namespace, volume),
            _ => None,
        }
        .unwrap_or_else(|| claimed.storage(home, thing))
    }

    /// A Gluster volume has one disk, whoever opens it. Where its Endpoints are
    /// hidden or missing, their name stands for the servers: who sees them elsewhere
    /// may have the same file, and is told so.
    pub(in crate::resolve) fn gluster_storage(
        &self,
        namespace: &Namespace,
        volume: &GlusterfsVolume,
    ) -> Option<Storage> {
        let path = &volume.path.as_ref()?.value;
        let storage = match self.gluster_hosts(namespace, volume) {
            Some(hosts) => {
                let hosts = hosts.iter().map(Endpoint::host);
                Storage::gluster(hosts, path, DISK_IMAGE)
            }
            None => {
                let servers = format!("of Endpoints {}", volume.endpoints.as_ref()?.value);
                Storage::gluster([servers.as_str()].into_iter(), path, DISK_IMAGE)
            }
        };
        Some(storage)
    }

    /// The servers of a Gluster volume: those of the Endpoints that it names.
    pub(in crate::resolve) fn gluster_hosts(
        &self,
        own: &Namespace,
        volume: &GlusterfsVolume,
    ) -> Option<Vec<Endpoint>> {
        let namespace = volume.namespace.as_ref().unwrap_or(own);
        let name = &volume.endpoints.as_ref()?.value;
        let key = (namespace.clone(), name.clone());
        let endpoints = self.objects.endpoints.get(&key);
        let endpoints = self.missing.note(endpoints, || Reference::Endpoints(key))?;
        let hosts = endpoints.addresses.iter();
        let hosts: Vec<_> = hosts
            .filter_map(|address| Endpoint::new(&address.to_string(), Gluster::PORT))
            .collect();
        (!hosts.is_empty()).then_some(hosts)
    }

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
        let home = vm.home();
        let seen = self.claimed_path(home, name, claimed, Absent::Refused, place, diags)?;
        let storage = self.storage_of(claimed, home, seen.thing);
        let serial = Serial::of_volume(name.as_str());
        let source = claimed.source(seen.exposed, None);
        let name = PlannedDisk::name_of_volume(name);
        let piece = Piece::new(name, serial, place.clone(), source);
        Some(Piece {
            size: seen.size.map_or(Size::OnNode, Size::Known),
            migration: claimed.migration(),
            link: device.map(|device| device.path.value.clone()),
            claim: Some(claimed.names()),
            storage: Some(storage),
            ..piece.reading_only(claimed.read_only)
        })
    }

    /// The device of a block claim, or the image of a filesystem claim.
    pub(in crate::resolve) fn claimed_path(
        &self,
        home: Home<'_>,
        name: &VolumeName,
        claimed: &ClaimedDisk<'_>,
        absent: Absent,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<ClaimedPath> {
        if let Some(field) = claimed.volume.lacks {
            diags.push(incomplete(claimed.volume, field));
            return None;
        }
        let mode = claimed.volume.mode;
        let by_path = matches!(claimed.volume.source.value, PvSource::HostPath(_));
        if home.in_cluster && by_path && mode == VolumeMode::Block {
            diags.push(not_mapped(claimed, place));
            return None;
        }
        let from = self.path_on_node(home, claimed);
        let (thing, size) = match (self.seen(home, &from, mode), mode) {
            (Fact::Known(PathFact::Missing), _) if absent.made().is_some() => (None, absent.made()),
            (Fact::Known(PathFact::Missing), _) if absent == Absent::PerhapsCloned => {
                diags.push(perhaps_cloned(claimed, &from, place));
                (None, None)
            }
            (Fact::Unknown, _) => (None, None),
            (Fact::Known(PathFact::Block { number, size }), VolumeMode::Block) => {
                (Some(NodeThing::Device(number)), size)
            }
            (Fact::Known(PathFact::File { size, id }), VolumeMode::Filesystem) => {
                (id.map(NodeThing::File), Some(size))
            }
            (Fact::Known(other), _) => {
                diags.push(wrong_path(claimed, &from, other, place));
                return None;
            }
        };
        let exposed = ExposedPath {
            exposed: self.exposed_path(home, name),
            from,
            number: match thing {
                Some(NodeThing::Device(number)) => Some(number),
                Some(NodeThing::File(_)) | None => None,
            },
        };
        let what = match mode {
            VolumeMode::Block => "claim's device",
            VolumeMode::Filesystem => "claim's disk image",
        };
        tell_empty(what, &exposed.from, size, place, diags);
        Some(ClaimedPath {
            exposed,
            thing,
            size,
        })
    }

    /// Where the kubelet puts a claim's volume. Without a cluster there is no
    /// kubelet, and a node's own storage is used where it is.
    fn path_on_node(&self, home: Home<'_>, claimed: &ClaimedDisk<'_>) -> HostPath {
        let volume = claimed.volume;
        let source = &volume.source.value;
        let own_path = match source {
            PvSource::Local(path) | PvSource::HostPath(path) => Some(path),
            _ => None,
        };
        let in_place = !home.in_cluster || matches!(source, PvSource::HostPath(_));
        if let Some(path) = own_path.filter(|_| in_place) {
            return HostPath::Known(match volume.mode {
                VolumeMode::Block => path.clone(),
                VolumeMode::Filesystem => disk_image_in(path),
            });
        }
        let below = match volume.mode {
            VolumeMode::Block => volume.below_pod(),
            VolumeMode::Filesystem => disk_image_in(&volume.below_pod()),
        };
        match home.pod_uid {
            Some(uid) => HostPath::Known(self.config.in_pod(uid, &below)),
            None => HostPath::InPod {
                kubelet_root: self.config.kubelet_root.clone(),
                below,
            },
        }
    }

    /// What is known of a claim's path. In a cluster the kubelet may not have
    /// put anything there yet, so absence would mean nothing; and what is in a
    /// filesystem there is a tenant's, who may have put a link there.
    fn seen(&self, home: Home<'_>, path: &HostPath, mode: VolumeMode) -> Fact<PathFact> {
        let HostPath::Known(path) = path else {
            return Fact::Unknown;
        };
        match (self.facts.path(path), mode) {
            (fact, _) if !home.in_cluster => fact,
            (Fact::Known(PathFact::Missing), _) | (_, VolumeMode::Filesystem) => Fact::Unknown,
            (fact, VolumeMode::Block) => fact,
        }
    }
}

/// No API server takes such a volume, and no kubelet finds its storage.
fn incomplete(volume: &PersistentVolume, field: &str) -> Diagnostic {
    let mut place = volume.source.place.clone();
    place.path = place.path.key(field);
    let kind = volume.source.value.kind();
    Diagnostic::error(
        &place,
        "is missing, and nobody can tell without it which storage the volume is",
    )
    .found(format!("volume {} of type {kind}", volume.name))
    .help(format!("complete the PersistentVolume with {field}"))
}

/// A pod with such a claim would wait for ever.
fn not_mapped(claimed: &ClaimedDisk<'_>, place: &Place) -> Diagnostic {
    let (claim, volume) = (&claimed.claim.meta.name, &claimed.volume.name);
    Diagnostic::error(place, "no kubelet shows a hostPath volume as a device")
        .found(format!(
            "claim {claim}, volume {volume} of volumeMode Block"
        ))
        .help("make it a local volume, which needs a nodeAffinity as well")
}

/// Only whoever carries the plan out sees whether the clone is complete.
fn perhaps_cloned(claimed: &ClaimedDisk<'_>, path: &HostPath, place: &Place) -> Diagnostic {
    let claim = &claimed.claim.meta.name;
    Diagnostic::notice(
        place,
        format!(
            "claim {claim} leads to {path}, where nothing is: only a VM whose clone is complete starts without it"
        ),
    )
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
            "put a raw disk image named disk.img into the volume"
        }
        (PathFact::Forbidden, _) => "look as root, who may",
        _ => "correct the PersistentVolume",
    };
    Diagnostic::error(
        place,
        format!("claim {claim} leads to {path}, which is not {wanted}"),
    )
    .found(found)
    .allowed(wanted)
    .help(help)
    .remedy(Remedy::OtherNode)
}
