//! The disks of a VM pod, in the order in which the guest gets them: root,
//! block claims, flexvolumes, cloud-init.

pub(super) mod claimed;
pub(super) mod flex;
pub(super) mod nodes;
mod piece;
mod root;
pub(super) mod volumes;

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Resolver;
use super::sharing::{User, refuse_two_users};
use crate::config::Config;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Bus, DeviceKind, Serial, Target};
use crate::manifest::{VmPod, VolumeDevice, VolumeMount};
use crate::names::{PoolName, VolumeName};
use crate::plan::{Migration, PlannedDisk, Source, VolumeFile};
pub(super) use piece::{Home, Piece};
use volumes::{DiskVolume, DiskVolumes};

/// The VM pod whose disks are being resolved.
#[derive(Clone, Copy)]
struct Vm<'v> {
    pod: &'v VmPod,
    uuid: Uuid,
}

impl<'v> Vm<'v> {
    fn home(self) -> Home<'v> {
        let uid = self.pod.meta.uid.as_deref();
        Home {
            uuid: self.uuid,
            node: self.pod.node.as_deref(),
            pod_uid: uid,
            in_cluster: uid.is_some(),
        }
    }
}

/// What takes a letter of the bus.
enum Slot<'v> {
    Seen(Box<Piece>),
    /// A claim of which only others know what it is.
    Unseen(&'v VolumeName, &'v Place),
}

impl Slot<'_> {
    fn seen(piece: Piece) -> Self {
        Self::Seen(Box::new(piece))
    }

    fn written_at(&self) -> Option<&Place> {
        match self {
            Self::Seen(piece) if matches!(piece.source, Source::CloudInit { .. }) => None,
            Self::Seen(piece) => Some(&piece.place),
            Self::Unseen(_, place) => Some(place),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Seen(piece) => piece.name.clone(),
            Self::Unseen(name, _) => PlannedDisk::name_of_volume(name),
        }
    }
}

impl Resolver<'_> {
    /// The disks of a pod. What is wrong is reported; the list is complete if
    /// nothing was.
    pub(super) fn disks(
        &self,
        pod: &VmPod,
        uuid: Uuid,
        diags: &mut Diagnostics,
    ) -> Vec<PlannedDisk> {
        let vm = Vm { pod, uuid };
        let volumes = self.disk_volumes(pod, diags);
        check_mounts(pod, &volumes, diags);
        refuse_mixed_mounts(pod, &volumes, diags);
        let devices = usable_devices(pod, &volumes, diags);
        let root_device = devices.iter().find(|device| is_root(device));
        // The root, one of each volume at most, and cloud-init.
        let mut slots = Vec::with_capacity(pod.volumes.len() + 2);
        let root = match root_device {
            Some(device) => self.persistent_root(vm, device, &volumes, diags),
            None => Some(self.image_root(vm, diags)),
        };
        slots.extend(root.map(Slot::seen));
        for (name, claimed) in volumes.claims_in_order(&devices) {
            let device = devices.iter().find(|device| device.volume.value == *name);
            if device.is_none_or(|device| !is_root(device)) {
                let disk = self.claimed_disk(vm, name, claimed, device.copied(), diags);
                slots.extend(disk.map(Slot::seen));
            }
        }
        let unseen = volumes.unseen_in_order(pod).into_iter();
        slots.extend(unseen.map(|(name, place)| Slot::Unseen(name, place)));
        for (name, flex) in volumes.flexvolumes_by_name() {
            let disk = self.flex_disk(vm, name, flex, diags);
            slots.extend(disk.map(Slot::seen));
        }
        slots.push(Slot::seen(self.cloud_init_disk(vm)));
        self.place_disks(vm, slots, diags)
    }

    /// Gives each disk its letter, and refuses those beyond the alphabet of
    /// their bus.
    fn place_disks(
        &self,
        vm: Vm<'_>,
        slots: Vec<Slot<'_>>,
        diags: &mut Diagnostics,
    ) -> Vec<PlannedDisk> {
        let bus = Bus::from(vm.pod.annotations.disk_driver);
        let count = slots.len();
        let mut disks = Vec::with_capacity(count);
        let mut last = vm.pod.meta.place.clone();
        for (index, slot) in slots.into_iter().enumerate() {
            // Nobody wrote the cloud-init image: what takes its place is the
            // volume before it.
            if let Some(place) = slot.written_at() {
                last = place.clone();
            }
            match (Target::new(bus, index), slot) {
                (Some(target), Slot::Seen(piece)) => disks.push(piece.at(target)),
                (Some(_), Slot::Unseen(..)) => {}
                (None, slot) => {
                    diags.push(too_many(&last, &slot.name(), bus, count));
                    break;
                }
            }
        }
        let users: Vec<_> = disks
            .iter()
            .map(|disk| User::of_pod(vm.pod, disk))
            .collect();
        refuse_equal_serials(&users, diags);
        refuse_two_users(users.into_iter(), diags);
        disks
    }

    fn cloud_init_disk(&self, vm: Vm<'_>) -> Piece {
        // libvirt refuses a CD-ROM on virtio: it has no ejectable media.
        let device = match Bus::from(vm.pod.annotations.disk_driver) {
            Bus::Scsi | Bus::Sata => DeviceKind::Cdrom,
            Bus::Virtio => DeviceKind::Disk,
        };
        let source = Source::CloudInit {
            path: self.cloud_init_path(vm.uuid),
        };
        let place = vm.pod.meta.place.clone();
        let name = PlannedDisk::CLOUD_INIT.to_owned();
        Piece {
            device,
            ..Piece::new(name, Serial::cloud_init(), place, source).reading_only(true)
        }
    }

    pub(super) fn cloud_init_path(&self, uuid: Uuid) -> String {
        format!("{}/cloud-init/{uuid}.iso", self.config.data_dir)
    }

    /// A file in the pool of ephemeral volumes.
    fn volume_file(&self, name: String) -> VolumeFile {
        let path = format!("{}/{name}", self.config.volumes_dir());
        VolumeFile { name, path }
    }

    /// Where libvirt finds something of the node.
    fn exposed_path(&self, home: Home<'_>, volume: &VolumeName) -> String {
        format!("{}/vms/{}/{volume}", self.config.run_dir, home.uuid)
    }

    fn volumes_migration(&self) -> Migration {
        let pool = volumes_pool().and_then(|name| self.config.pools.get(&name));
        match pool.is_some_and(|pool| pool.shared) {
            true => Migration::Shared,
            false => Migration::Copied,
        }
    }
}

/// The pool of ephemeral volumes.
pub(super) fn volumes_pool() -> Option<PoolName> {
    PoolName::parse(Config::VOLUMES).ok()
}

fn is_root(device: &VolumeDevice) -> bool {
    device.path.value.as_str() == "/"
}

/// The `volumeDevices` that name a block claim of the pod.
fn usable_devices<'p>(
    pod: &'p VmPod,
    volumes: &DiskVolumes<'_>,
    diags: &mut Diagnostics,
) -> Vec<&'p VolumeDevice> {
    let mut usable: Vec<&VolumeDevice> = Vec::new();
    for device in &pod.container.devices {
        let name = &device.volume;
        let problem = match volumes.get(&name.value) {
            Some(DiskVolume::Claimed(claimed)) if claimed.is_block() => {
                match usable.iter().find(|other| other.volume.value == name.value) {
                    None => {
                        usable.push(device);
                        continue;
                    }
                    Some(_) => "a claim has one device path",
                }
            }
            Some(DiskVolume::Claimed(_)) => "the claim is a filesystem, not a block device",
            Some(DiskVolume::Flex(_)) => {
                "volumeDevices takes block claims; a flexvolume is attached anyway"
            }
            None if volumes.failed(&name.value) => continue,
            None if pod
                .volumes
                .iter()
                .any(|volume| volume.name.value == name.value) =>
            {
                "volumeDevices takes block claims"
            }
            None => {
                diags.push(no_such_volume(pod, &name.value, &name.place));
                continue;
            }
        };
        diags.push(
            Diagnostic::error(&name.place, problem)
                .found(&name.value)
                .allowed("a persistentVolumeClaim with volumeMode: Block, once"),
        );
    }
    usable
}

/// Every mount must name a volume of the pod, and one that can be mounted.
fn check_mounts(pod: &VmPod, volumes: &DiskVolumes<'_>, diags: &mut Diagnostics) {
    for mount in &pod.container.mounts {
        let name = &mount.volume;
        match volumes.get(&name.value) {
            Some(DiskVolume::Claimed(claimed)) if claimed.is_block() => diags.push(
                Diagnostic::error(
                    &name.place,
                    "a block claim cannot be mounted by volumeMounts",
                )
                .found(&name.value)
                .help("name it in volumeDevices, and mount the device with cloud-init's mounts"),
            ),
            Some(_) => {
                if let Some(sub_path) = &mount.sub_path {
                    diags.push(
                        Diagnostic::error(&sub_path.place, "subPath has no meaning for a disk")
                            .help("mount the whole disk, and link the directory in the guest"),
                    );
                }
            }
            None => {
                if pod
                    .volumes
                    .iter()
                    .all(|volume| volume.name.value != name.value)
                {
                    diags.push(no_such_volume(pod, &name.value, &name.place));
                }
            }
        }
    }
}

/// A disk has one filesystem state in the guest: it cannot be mounted here for
/// writing and there not.
fn refuse_mixed_mounts(pod: &VmPod, volumes: &DiskVolumes<'_>, diags: &mut Diagnostics) {
    let mut first: BTreeMap<&VolumeName, &VolumeMount> = BTreeMap::new();
    for mount in &pod.container.mounts {
        let name = &mount.volume;
        if volumes.get(&name.value).is_none() {
            continue;
        }
        let other = first.entry(&name.value).or_insert(mount);
        if other.read_only != mount.read_only {
            diags.push(
                Diagnostic::error(
                    &name.place,
                    "one disk cannot be mounted both read-only and writable",
                )
                .found(format!("{} and {}", other.path.value, mount.path.value))
                .help("give both mounts the same readOnly"),
            );
        }
    }
}

fn no_such_volume(pod: &VmPod, name: &VolumeName, place: &Place) -> Diagnostic {
    let known = || pod.volumes.iter().map(|volume| volume.name.value.as_str());
    let listed: Vec<_> = known().collect();
    Diagnostic::error(place, "the pod has no volume of this name")
        .found(name)
        .allowed(match listed.is_empty() {
            true => "the pod has no volumes".to_owned(),
            false => listed.join(", "),
        })
        .did_you_mean(name.as_str(), known())
}

fn too_many(place: &Place, name: &str, bus: Bus, count: usize) -> Diagnostic {
    Diagnostic::error(
        place,
        format!(
            "too many disks: disk {name:?} has no place left on the {} bus",
            bus.name()
        ),
    )
    .found(format!("{count} disks, root and cloud-init included"))
    .allowed(format!("{} disks with {}", bus.limit(), bus.name()))
    .help(match bus {
        Bus::Virtio => "remove volumes, or choose VirtletDiskDriver: scsi, which takes 26",
        Bus::Scsi | Bus::Sata => "remove volumes",
    })
}

/// Names of equal beginning could be chosen so that their hashes agree too. A
/// disk that nobody wrote is not the one that is blamed.
pub(super) fn refuse_equal_serials(users: &[User<'_>], diags: &mut Diagnostics) {
    for (index, second) in users.iter().enumerate() {
        let same = |other: &&User<'_>| other.disk.serial == second.disk.serial;
        let Some(first) = users[..index].iter().find(same) else {
            continue;
        };
        let only_first_written = second.disk.origin.is_none() && first.disk.origin.is_some();
        let (blamed, other) = match only_first_written {
            true => (first, second),
            false => (second, first),
        };
        diags.push(
            Diagnostic::error(blamed.serial, "two disks would have one serial number")
                .found(format!(
                    "{}, of disks {} and {}",
                    blamed.disk.serial, first.disk.name, second.disk.name
                ))
                .help(format!(
                    "rename one of the two, or give one a serial of its own; the other is at {}",
                    other.serial
                )),
        );
    }
}
