//! From decided disks to steps and domain. Nothing here can fail.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Plan, PlannedDisk, Size, Source, Step};
use crate::cloudinit::CloudInit;
use crate::config::Config;
use crate::domain::{
    BackingFile, Cpu, Disk, DiskSource, Domain, Format, Hypervisor, Owner, RbdAuth, Slice,
};
use crate::names::{ContainerName, ImageName, Namespace, ObjectName, Sha256, VolumeName};
use crate::units::ByteSize;

/// All that resolution decided about a VM.
#[derive(Debug)]
pub struct Draft {
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: ObjectName,
    /// The container's name.
    pub container: ContainerName,
    /// The domain's UUID.
    pub uuid: Uuid,
    /// Its memory.
    pub memory: ByteSize,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// The CPU it sees.
    pub cpu: Cpu,
    /// How it is run; absent: a trial boot on the node decides.
    pub hypervisor: Option<Hypervisor>,
    /// The hardware address of its network interface.
    pub mac: String,
    /// Its disks, in order.
    pub disks: Vec<PlannedDisk>,
    /// Its cloud-init image.
    pub cloud_init: CloudInit,
    /// What is not known yet.
    pub known_later: Vec<String>,
}

impl Draft {
    /// The plan.
    #[must_use]
    pub fn build(mut self, config: &Config) -> Plan {
        let hypervisor = self.hypervisor.unwrap_or_else(|| {
            self.known_later.push(
                "domain type: a trial boot on the node decides (domainType: auto)".to_owned(),
            );
            Hypervisor::Qemu
        });
        let domain = Domain {
            hypervisor,
            name: format!("{}-{}", self.uuid, self.container),
            uuid: self.uuid,
            owner: Owner {
                namespace: self.namespace.to_string(),
                name: self.name.to_string(),
            },
            memory: self.memory,
            vcpus: self.vcpus,
            cpu: self.cpu,
            emulator: config.emulator.clone(),
            disks: self.disks.iter().map(domain_disk).collect(),
            mac: self.mac,
            serial_log: format!("{}/vms/{}/serial.log", config.data_dir, self.uuid),
        };
        let label = self.cloud_init.label();
        let mut steps = pool_steps(&self.disks, config);
        for disk in &self.disks {
            steps.extend(steps_of(disk, label));
        }
        steps.push(Step::DefineDomain {
            name: domain.name.clone(),
            uuid: domain.uuid,
        });
        steps.push(Step::StartDomain {
            name: domain.name.clone(),
        });
        Plan {
            namespace: self.namespace,
            name: self.name,
            uuid: self.uuid,
            disks: self.disks,
            steps,
            domain,
            cloud_init: self.cloud_init,
            known_later: self.known_later,
        }
    }
}

/// The pools that the disks need, each once.
fn pool_steps(disks: &[PlannedDisk], config: &Config) -> Vec<Step> {
    let names: BTreeSet<_> = disks.iter().filter_map(|disk| disk.pool.as_ref()).collect();
    names
        .into_iter()
        .filter_map(|name| {
            Some(Step::EnsurePool {
                pool: name.to_string(),
                directory: config.pools.get(name)?.path.clone(),
            })
        })
        .collect()
}

fn steps_of(disk: &PlannedDisk, label: &'static str) -> Vec<Step> {
    let pool = disk
        .pool
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    match &disk.source {
        Source::Image {
            image,
            digest,
            store_file,
            overlay,
        } => vec![
            pull_image(image, *digest),
            Step::CreateOverlay {
                pool,
                volume: overlay.name.clone(),
                file: overlay.path.clone(),
                backing: store_file.clone(),
                size: disk.size,
            },
        ],
        Source::NewVolume(volume) => vec![Step::CreateVolume {
            pool,
            volume: volume.name.clone(),
            file: volume.path.clone(),
            size: disk.size.known().unwrap_or(ByteSize::from_bytes(0)),
            filesystem: "ext4",
        }],
        Source::RawDevice(device) => vec![expose_device(disk, device, true)],
        Source::BlockClaim(device) => vec![expose_device(disk, device, false)],
        Source::PersistentRoot {
            device,
            image,
            digest,
            store_file,
            data_offset,
            recreate,
            ..
        } => vec![
            pull_image(image, *digest),
            expose_device(disk, device, false),
            Step::FillRoot {
                device: device.exposed.clone(),
                image_file: store_file.clone(),
                digest: digest.map(|digest| digest.to_string()),
                offset: *data_offset,
                recreate: *recreate,
            },
        ],
        Source::DiskImage(file) => vec![Step::ExposeFile {
            disk: disk.name.clone(),
            from: file.from.clone(),
            to: file.exposed.clone(),
        }],
        Source::Rbd { ceph, key } => key
            .iter()
            .map(|(uuid, key)| Step::DefineSecret {
                uuid: *uuid,
                usage: format!("disklet/{uuid}"),
                user: ceph.user.as_str().to_owned(),
                key: key.clone(),
            })
            .collect(),
        Source::CloudInit { path } => vec![Step::WriteCloudInit {
            file: path.clone(),
            label,
        }],
    }
}

fn pull_image(image: &ImageName, digest: Option<Sha256>) -> Step {
    Step::PullImage {
        image: image.to_string(),
        digest: digest.map(|digest| digest.to_string()),
    }
}

fn expose_device(disk: &PlannedDisk, device: &super::ExposedPath, whitelisted: bool) -> Step {
    Step::ExposeDevice {
        disk: disk.name.clone(),
        from: device.from.clone(),
        to: device.exposed.clone(),
        number: device.number,
        whitelisted,
    }
}

fn domain_disk(disk: &PlannedDisk) -> Disk {
    Disk {
        device: disk.device,
        source: domain_source(disk),
        format: disk.format,
        target: disk.target,
        serial: disk.serial.clone(),
        read_only: disk.read_only,
        boots: matches!(
            disk.source,
            Source::Image { .. } | Source::PersistentRoot { .. }
        ),
    }
}

fn domain_source(disk: &PlannedDisk) -> DiskSource {
    let whole = |path: &str| DiskSource::Block {
        path: path.to_owned(),
        slice: None,
    };
    let file = |path: &str| DiskSource::File {
        path: path.to_owned(),
        backing: Vec::new(),
    };
    match &disk.source {
        Source::Image {
            store_file,
            overlay,
            ..
        } => DiskSource::File {
            path: overlay.path.clone(),
            backing: vec![BackingFile {
                path: store_file.clone(),
                format: Format::Raw,
            }],
        },
        Source::NewVolume(volume) => file(&volume.path),
        Source::RawDevice(device) | Source::BlockClaim(device) => whole(&device.exposed),
        Source::PersistentRoot {
            device,
            device_size,
            data_offset,
            ..
        } => DiskSource::Block {
            path: device.exposed.clone(),
            slice: Some(Slice {
                offset: *data_offset,
                size: device_size.as_bytes().saturating_sub(*data_offset),
            }),
        },
        Source::DiskImage(image) => file(&image.exposed),
        Source::Rbd { ceph, key } => DiskSource::Rbd {
            pool: ceph.pool.as_str().to_owned(),
            image: ceph.volume.as_str().to_owned(),
            monitors: ceph
                .monitors
                .iter()
                .map(|monitor| (monitor.host.clone(), monitor.port))
                .collect(),
            auth: key.as_ref().map(|(secret, _)| RbdAuth {
                user: ceph.user.as_str().to_owned(),
                secret: *secret,
            }),
        },
        Source::CloudInit { path } => file(path),
    }
}

impl PlannedDisk {
    /// The boot disk's name.
    pub const ROOT: &str = "root";
    /// The cloud-init image's name.
    pub const CLOUD_INIT: &str = "cloud-init";

    /// The name of a volume's disk: the volume's, unless that is a name of our
    /// own disks. No volume has a slash in its name.
    pub(crate) fn name_of_volume(volume: &VolumeName) -> String {
        match volume.as_str() {
            name @ (Self::ROOT | Self::CLOUD_INIT) => format!("volume/{name}"),
            name => name.to_owned(),
        }
    }

    /// What is not known about the disk, in a sentence.
    pub(crate) fn known_later(&self) -> Option<String> {
        match self.size {
            Size::Known(_) => None,
            // Ours to make, and of no interest to anybody.
            _ if matches!(self.source, Source::CloudInit { .. }) => None,
            size => Some(format!("size of disk {}: {size}", self.name)),
        }
    }
}
