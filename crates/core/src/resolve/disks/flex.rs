//! Flexvolumes: ephemeral qcow2 volumes, raw devices, Ceph images.

use disklet_flexvolume::{Ceph, Key, Monitor, Options};
use uuid::Uuid;

use super::volumes::FlexDisk;
use super::{Piece, Vm};
use crate::diag::{Diagnostic, Diagnostics};
use crate::domain::{DeviceKind, Format, Serial};
use crate::manifest::{DataRef, FlexVolume, MAX_DISK_BYTES, ObjectKind};
use crate::names::{DataKey, VolumeName};
use crate::plan::{
    ExposedPath, HostPath, Migration, MountPoint, PlannedDisk, Size, Source, Storage,
};
use crate::resolve::{Resolver, derived_uuid};
use crate::text::Secret;
use crate::units::ByteSize;
use crate::yaml::Spanned;

/// What the type of a flexvolume decides.
struct Kind {
    source: Source,
    format: Format,
    size: Size,
    migration: Migration,
    storage: Option<Storage>,
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
        let kind = self.flex_kind(vm, name, disk, diags)?;
        Some(Piece {
            name: PlannedDisk::name_of_volume(name),
            serial: Serial::of_volume(name.as_str()),
            place: place.clone(),
            device: DeviceKind::Disk,
            source: kind.source,
            format: kind.format,
            size: kind.size,
            read_only: disk.read_only,
            migration: kind.migration,
            mounts: mounts_of(vm, name, disk),
            link: None,
            claim: disk.claim.clone(),
            storage: kind.storage,
        })
    }

    fn flex_kind(
        &self,
        vm: Vm<'_>,
        name: &VolumeName,
        disk: &FlexDisk<'_>,
        diags: &mut Diagnostics,
    ) -> Option<Kind> {
        Some(match &disk.flex.options {
            Options::Qcow2(options) => {
                let size = ByteSize::from_bytes(options.capacity.bytes());
                check_new_volume(size, options.part.number(), disk.flex, diags);
                Kind {
                    source: Source::NewVolume(self.volume_file(format!("{}-{name}", vm.uuid))),
                    format: Format::Qcow2,
                    size: Size::Known(size),
                    migration: self.volumes_migration(),
                    storage: None,
                }
            }
            Options::Raw(options) => {
                let allowed = self.raw_device(&options.path, disk.flex.place_of("path"), diags)?;
                let bound = vm.pod.node.clone().map(|node| vec![node]);
                let storage = Storage::of_node(&options.path, allowed.number, bound);
                Kind {
                    source: Source::RawDevice(ExposedPath {
                        from: HostPath::Known(options.path.clone()),
                        exposed: self.exposed_path(vm, name),
                        number: allowed.number,
                    }),
                    format: Format::Raw,
                    size: allowed.size,
                    migration: Migration::Copied,
                    storage: Some(storage),
                }
            }
            Options::Ceph(ceph) => Kind {
                source: Source::Rbd {
                    ceph: ceph.clone(),
                    key: self.ceph_key(vm, name, disk, ceph, diags),
                },
                format: Format::Raw,
                size: Size::OnNode,
                migration: Migration::Shared,
                storage: Some(Storage::Rbd {
                    monitors: ceph.monitors.iter().map(host_of).collect(),
                    pool: ceph.pool.as_str().to_owned(),
                    image: ceph.volume.as_str().to_owned(),
                }),
            },
        })
    }

    /// The key of a Ceph volume: from the Secret that the volume names, else
    /// from its options.
    fn ceph_key(
        &self,
        vm: Vm<'_>,
        volume: &VolumeName,
        disk: &FlexDisk<'_>,
        ceph: &Ceph,
        diags: &mut Diagnostics,
    ) -> Option<(Uuid, Secret)> {
        let uuid = derived_uuid(vm.uuid, &format!("ceph/{volume}"));
        let Some(reference) = &disk.flex.secret else {
            let key = ceph.secret.as_ref()?;
            return Some((uuid, Secret::new(key.expose())));
        };
        let wanted = DataRef {
            kind: ObjectKind::Secret,
            name: reference.name.value.clone(),
        };
        let place = &reference.name.place;
        let namespace = reference
            .namespace
            .as_ref()
            .unwrap_or(&vm.pod.meta.namespace);
        let object = self.data_object(namespace, &wanted, place, diags)?;
        // The name that Kubernetes' own RBD volumes use.
        let content = DataKey::parse("key")
            .ok()
            .and_then(|key| object.data.get(&key));
        let text = content.and_then(|content| std::str::from_utf8(content.bytes()?).ok());
        match text.map(Key::parse) {
            Some(Ok(key)) => Some((uuid, Secret::new(key.expose()))),
            found => {
                let message = match found {
                    None => "the Secret has no text under \"key\"",
                    Some(_) => "the Secret's \"key\" is not a Ceph key",
                };
                diags.push(
                    Diagnostic::error(place, message)
                        .found(format!("Secret {}", reference.name.value))
                        .allowed("a key as ceph auth get-key prints it"),
                );
                None
            }
        }
    }
}

/// A monitor listens on several ports, of which one or the other is written.
fn host_of(monitor: &Monitor) -> String {
    monitor.host.to_ascii_lowercase()
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

/// Room for a partition table and the smallest filesystem worth the name.
/// Virtlet's own tests use volumes of a megabyte.
const LEAST_VOLUME_BYTES: u64 = 512 << 10;

/// A new volume has one partition with a filesystem on it.
fn check_new_volume(size: ByteSize, part: u32, flex: &FlexVolume, diags: &mut Diagnostics) {
    if !(LEAST_VOLUME_BYTES..=MAX_DISK_BYTES).contains(&size.as_bytes()) {
        diags.push(
            Diagnostic::error(
                flex.place_of("capacity"),
                "no volume of this capacity can be made",
            )
            .found(size)
            .allowed(format!(
                "{} to {}",
                ByteSize::from_bytes(LEAST_VOLUME_BYTES),
                ByteSize::from_bytes(MAX_DISK_BYTES)
            )),
        );
    }
    if part != 1 {
        diags.push(
            Diagnostic::error(flex.place_of("part"), "a qcow2 volume has one partition")
                .found(format!("part: \"{part}\""))
                .allowed("part: \"1\", or no part at all"),
        );
    }
}
