//! Flexvolumes: ephemeral qcow2 volumes, raw devices, Ceph images.

use disklet_flexvolume::{Ceph, Options};

use super::volumes::FlexDisk;
use super::{Home, Piece, Vm, volumes_pool};
use crate::diag::Diagnostics;
use crate::domain::{Format, KeyKind, Serial};
use crate::facts::NodeThing;
use crate::manifest::FlexVolume;
use crate::names::{Namespace, PoolName, VolumeName};
use crate::plan::{
    ExposedPath, HostPath, Later, Migration, MountPoint, NetworkKey, PlannedDisk, Size, Source,
    Storage,
};
use crate::resolve::{Reference, Resolver, derived_uuid};
use crate::source::{Endpoint, Network, Rbd};
use crate::text::Secret;
use crate::units::ByteSize;
use crate::yaml::Spanned;

/// What the type of a flexvolume decides.
pub(in crate::resolve) struct FlexKind {
    pub(in crate::resolve) source: Source,
    pub(in crate::resolve) format: Format,
    pub(in crate::resolve) size: Size,
    pub(in crate::resolve) migration: Migration,
    pub(in crate::resolve) pool: Option<PoolName>,
    pub(in crate::resolve) storage: Option<Storage>,
}

/// A flexvolume that a VM has.
#[derive(Clone, Copy)]
pub(in crate::resolve) struct FlexOf<'f> {
    pub(in crate::resolve) home: Home<'f>,
    pub(in crate::resolve) namespace: &'f Namespace,
    /// The disk's name.
    pub(in crate::resolve) name: &'f VolumeName,
    pub(in crate::resolve) flex: &'f FlexVolume,
    /// The hosts that its PersistentVolume names.
    pub(in crate::resolve) hosts: Option<&'f [String]>,
}

impl Resolver<'_> {
    pub(super) fn flex_disk(
        &self,
        vm: Vm<'_>,
        name: &Spanned<VolumeName>,
        disk: &FlexDisk<'_>,
        diags: &mut Diagnostics,
    ) -> Option<Piece> {
        let place = &name.place;
        let name = &name.value;
        let wanted = FlexOf {
            home: vm.home(),
            namespace: &vm.pod.meta.namespace,
            name,
            flex: disk.flex,
            hosts: disk.hosts,
        };
        let kind = self.flex_kind(wanted, diags)?;
        let server_names = match (&kind.source, &disk.claim) {
            (Source::Network { network, .. }, None) => {
                let place = disk.flex.place_of("monitor");
                self.names_to_check(network.endpoints(), place, diags)?
            }
            // What a volume says, an administrator wrote.
            _ => Vec::new(),
        };
        let mounts = mounts_of(vm, name, disk);
        let serial = Serial::of_volume(name.as_str());
        let name = PlannedDisk::name_of_volume(name);
        let piece = Piece::new(name, serial, place.clone(), kind.source);
        Some(Piece {
            master_format: kind.format,
            size: kind.size,
            pool: kind.pool,
            migration: kind.migration,
            mounts,
            claim: disk.claim.clone(),
            storage: kind.storage,
            server_names,
            ..piece.reading_only(disk.read_only)
        })
    }

    pub(in crate::resolve) fn flex_kind(
        &self,
        wanted: FlexOf<'_>,
        diags: &mut Diagnostics,
    ) -> Option<FlexKind> {
        let FlexOf {
            home, name, flex, ..
        } = wanted;
        Some(match &flex.options {
            Options::Qcow2(options) => {
                let size = ByteSize::from_bytes(options.capacity.bytes());
                FlexKind {
                    source: Source::NewVolume(self.volume_file(format!("{}-{name}", home.uuid))),
                    format: Format::Qcow2,
                    size: Size::Known(size),
                    migration: self.volumes_migration(),
                    pool: volumes_pool(),
                    storage: None,
                }
            }
            Options::Raw(options) => {
                let allowed = self.raw_device(&options.path, flex.place_of("path"), diags)?;
                let nodes = home.nodes(wanted.hosts);
                let device = allowed.number.map(NodeThing::Device);
                let storage = Storage::of_node(&options.path, device, nodes);
                FlexKind {
                    source: Source::RawDevice(ExposedPath {
                        from: HostPath::Known(options.path.clone()),
                        exposed: self.exposed_path(home, name),
                        number: allowed.number,
                    }),
                    format: Format::Raw,
                    size: allowed.size,
                    migration: Migration::Copied,
                    pool: None,
                    storage: Some(storage),
                }
            }
            Options::Ceph(ceph) => {
                let network = Network::Rbd(Rbd {
                    monitors: ceph.monitors.iter().map(Endpoint::from).collect(),
                    pool: ceph.pool.clone(),
                    image: ceph.volume.clone(),
                    user: ceph.user.clone(),
                });
                FlexKind {
                    format: Format::Raw,
                    size: Size::OnNode,
                    migration: Migration::Shared,
                    pool: None,
                    storage: Some(Storage::of_network(&network)),
                    source: match self.hidden_flex_secret(wanted) {
                        Some(needs) => Source::Later(Later::AtLaunch {
                            storage: Some(format!("{} {}", network.protocol(), network.name())),
                            needs,
                        }),
                        None => Source::Network {
                            network,
                            key: self.flex_key(wanted, ceph, diags),
                        },
                    },
                }
            }
        })
    }

    /// The Secret that the volume names, if it cannot be seen.
    fn hidden_flex_secret(&self, wanted: FlexOf<'_>) -> Option<Reference> {
        let reference = wanted.flex.secret.as_ref()?;
        let namespace = reference.namespace.as_ref().unwrap_or(wanted.namespace);
        self.hidden_secret(namespace, &reference.name.value)
    }

    /// The key of a Ceph volume: from the Secret that the volume names, else
    /// from its options.
    fn flex_key(
        &self,
        wanted: FlexOf<'_>,
        ceph: &Ceph,
        diags: &mut Diagnostics,
    ) -> Option<NetworkKey> {
        let key = match &wanted.flex.secret {
            None => Secret::new(ceph.secret.as_ref()?.expose()),
            Some(reference) => {
                let namespace = reference.namespace.as_ref().unwrap_or(wanted.namespace);
                self.ceph_key(namespace, &reference.name, diags)?
            }
        };
        Some(NetworkKey {
            uuid: derived_uuid(wanted.home.uuid, &format!("ceph/{}", wanted.name)),
            user: ceph.user.as_str().to_owned(),
            kind: KeyKind::Ceph,
            key,
        })
    }
}

fn mounts_of(vm: Vm<'_>, volume: &VolumeName, disk: &FlexDisk<'_>) -> Vec<MountPoint> {
    vm.pod
        .container
        .mounts
        .iter()
        .filter(|mount| mount.volume.value == *volume)
        .map(|mount| MountPoint {
            path: mount.path.value.clone(),
            part: disk.flex.options.part().number(),
            read_only: mount.read_only || disk.read_only,
        })
        .collect()
}
