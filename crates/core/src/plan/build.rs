//! From decided disks to steps and domain. Nothing here can fail.

use uuid::Uuid;

use super::{
    Copy, ExposedPath, Later, Launcher, LeaseEnd, NetworkKey, Plan, PlannedDisk, PoolShare, Size,
    Source, Step,
};
use crate::cloudinit::CloudInit;
use crate::config::Config;
use crate::domain::{
    Cpu, Disk, Domain, Firmware, Format, Hypervisor, Interface, Layer, Owner, Tuning,
};
use crate::names::{ImageName, Namespace, ObjectName, Sha256, VolumeName};
use crate::units::ByteSize;

/// All that resolution decided about a VM.
#[derive(Debug)]
pub struct Draft {
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: ObjectName,
    /// What the domain is called after its UUID: the container's name, or the
    /// VM's.
    pub suffix: String,
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
    /// What it boots with.
    pub firmware: Firmware,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
    /// What becomes of its disks.
    pub purpose: Purpose,
    /// Whether it shall run.
    pub running: bool,
    /// The pod that it runs for.
    pub launcher: Option<Launcher>,
    /// Its disks, in order.
    pub disks: Vec<PlannedDisk>,
    /// Its cloud-init image, if it has one.
    pub cloud_init: Option<CloudInit>,
    /// What is not known yet.
    pub known_later: Vec<String>,
}

/// What becomes of the disks of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A domain is made of them.
    Domain,
    /// They are put into a domain that runs.
    Addition,
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
        let mut disks = Vec::with_capacity(self.disks.len());
        disks.extend(self.disks.iter().filter_map(domain_disk));
        let domain = Domain {
            hypervisor,
            name: format!("{}-{}", self.uuid, self.suffix),
            uuid: self.uuid,
            owner: Owner {
                namespace: self.namespace.to_string(),
                name: self.name.to_string(),
            },
            memory: self.memory,
            vcpus: self.vcpus,
            cpu: self.cpu,
            emulator: config.emulator.clone(),
            ceph_config: disks
                .iter()
                .any(Disk::is_in_ceph)
                .then(|| format!("{}/ceph/{}.conf", config.data_dir, self.uuid)),
            disks,
            firmware: self.firmware,
            interfaces: self.interfaces,
            serial_log: format!("{}/vms/{}/serial.log", config.data_dir, self.uuid),
            sockets: self
                .launcher
                .as_ref()
                .map(|_| Launcher::shown(&config.run_dir, self.uuid)),
        };
        let pools = PoolShare::of(&self.disks, config);
        let label = self.cloud_init.as_ref().map(CloudInit::label);
        // Three or four for each disk.
        let mut steps = Vec::with_capacity(pools.len() + 4 * self.disks.len() + 8);
        steps.extend(pools.iter().map(ensure_pool));
        for disk in &self.disks {
            steps.extend(check_servers(disk));
            steps.extend(lease(disk));
            let fetched = |step: &Step| steps.iter().any(|before| before.fetches_like(step));
            let of_disk = steps_of(disk, label);
            let of_disk: Vec<_> = of_disk.into_iter().filter(|step| !fetched(step)).collect();
            steps.extend(of_disk);
            steps.extend(copy(disk));
            steps.extend(end_lease(disk));
        }
        match self.purpose {
            Purpose::Addition => steps.extend(addition_steps(&domain, &self.disks)),
            Purpose::Domain => {
                steps.extend(domain_steps(&domain));
                let launcher = self.launcher.as_ref();
                steps.extend(launcher.map_or_else(
                    || start(&domain, self.running),
                    |launcher| launcher.start(&domain, &config.kubelet_root, self.running),
                ));
            }
        }
        Plan {
            namespace: self.namespace,
            name: self.name,
            uuid: self.uuid,
            disks: self.disks,
            pools,
            steps,
            domain,
            cloud_init: self.cloud_init,
            launcher: self.launcher,
            known_later: self.known_later,
        }
    }
}

fn ensure_pool(share: &PoolShare) -> Step {
    Step::EnsurePool {
        pool: share.name.clone(),
        directory: share.path.clone(),
    }
}

fn ceph_config(domain: &Domain) -> Option<Step> {
    let file = domain.ceph_config.clone()?;
    Some(Step::WriteCephConfig { file })
}

fn addition_steps(domain: &Domain, disks: &[PlannedDisk]) -> Vec<Step> {
    let attach = disks.iter().map(|disk| Step::AttachDisk {
        disk: disk.name.clone(),
        target: disk.target.name(),
    });
    ceph_config(domain).into_iter().chain(attach).collect()
}

fn domain_steps(domain: &Domain) -> Vec<Step> {
    let mut steps: Vec<_> = ceph_config(domain).into_iter().collect();
    if let Firmware::Uefi(uefi) = &domain.firmware {
        steps.push(Step::WriteFirmwareVariables {
            file: uefi.variables.clone(),
            template: uefi.template.clone(),
        });
    }
    steps.push(Step::DefineDomain {
        name: domain.name.clone(),
        uuid: domain.uuid,
    });
    steps
}

fn start(domain: &Domain, running: bool) -> Vec<Step> {
    let step = Step::StartDomain {
        name: domain.name.clone(),
        paused: false,
    };
    running.then_some(step).into_iter().collect()
}

fn check_servers(disk: &PlannedDisk) -> Option<Step> {
    let hosts = &disk.server_names;
    (!hosts.is_empty()).then(|| Step::CheckServers {
        disk: disk.name.clone(),
        hosts: hosts.clone(),
    })
}

/// A clone needs its master only while it is made.
fn lease(disk: &PlannedDisk) -> Option<Step> {
    Some(Step::TakeLease {
        disk: disk.name.clone(),
        storage: disk.storage.clone()?,
        access: disk.access,
        until: match disk.copy {
            Copy::Clone(_) => LeaseEnd::Copied,
            Copy::None | Copy::OnWrite(_) | Copy::OnRead(_) => LeaseEnd::Off,
        },
    })
}

fn end_lease(disk: &PlannedDisk) -> Option<Step> {
    let is_clone = matches!(disk.copy, Copy::Clone(_));
    (is_clone && disk.storage.is_some()).then(|| Step::EndLease {
        disk: disk.name.clone(),
    })
}

/// What has to be done to have the master.
fn steps_of(disk: &PlannedDisk, label: Option<&'static str>) -> Vec<Step> {
    match &disk.source {
        Source::Image { image, digest, .. } => vec![pull_image(image, *digest)],
        Source::NewVolume(volume) => vec![Step::CreateVolume {
            pool: pool_of(disk),
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
            device_size,
            data_offset,
            recreate,
        } => vec![
            pull_image(image, *digest),
            expose_device(disk, device, false),
            Step::FillRoot {
                device: device.exposed.clone(),
                image_file: store_file.clone(),
                digest: digest.map(|digest| digest.to_string()),
                device_size: *device_size,
                offset: *data_offset,
                recreate: *recreate,
            },
        ],
        Source::DiskImage { file, create } => {
            let made = create.map(|size| Step::CreateDiskImage {
                disk: disk.name.clone(),
                file: file.from.clone(),
                size,
            });
            made.into_iter().chain([expose_file(disk, file)]).collect()
        }
        Source::Network { key, .. } => define_secret(disk, key.as_ref()).into_iter().collect(),
        Source::CloudInit { path } => vec![Step::WriteCloudInit {
            file: path.clone(),
            label: label.unwrap_or_default(),
        }],
        Source::Later(Later::Container { container, id }) => vec![Step::AskContainer {
            disk: disk.name.clone(),
            container: container.clone(),
            id: *id,
        }],
        Source::Later(Later::Identity { set, name }) => vec![Step::AttachIdentity {
            disk: disk.name.clone(),
            set: set.to_string(),
            identity: name.to_string(),
        }],
        // What is done for it is decided when it is known.
        Source::Later(Later::AtLaunch { .. }) => Vec::new(),
    }
}

/// What has to be done to have the copy.
fn copy(disk: &PlannedDisk) -> Option<Step> {
    let master = disk.master()?;
    let pool = pool_of(disk);
    Some(match &disk.copy {
        Copy::None => return None,
        Copy::OnWrite(overlay) | Copy::OnRead(overlay) => Step::CreateOverlay {
            pool,
            volume: overlay.name.clone(),
            file: overlay.path.clone(),
            backing: master,
            backing_format: disk.master_format,
            size: disk.size,
        },
        Copy::Clone(file) => {
            let key = match &disk.source {
                Source::Network { key, .. } => key.as_ref(),
                _ => None,
            };
            Step::CloneMaster {
                pool,
                volume: file.name.clone(),
                file: file.path.clone(),
                from: master,
                from_format: disk.master_format,
                user: key.map(|key| key.user.clone()),
                key: key.map(|key| key.key.clone()),
                size: disk.size,
            }
        }
    })
}

fn pool_of(disk: &PlannedDisk) -> String {
    let pool = disk.pool.as_ref();
    pool.map(ToString::to_string).unwrap_or_default()
}

/// libvirt needs a key for what QEMU opens; a clone's master is none of that.
fn define_secret(disk: &PlannedDisk, key: Option<&NetworkKey>) -> Option<Step> {
    if matches!(disk.copy, Copy::Clone(_)) {
        return None;
    }
    let NetworkKey {
        uuid,
        user,
        kind,
        key,
    } = key?;
    Some(Step::DefineSecret {
        uuid: *uuid,
        usage: format!("disklet/{uuid}"),
        user: user.clone(),
        key_kind: *kind,
        key: key.clone(),
    })
}

fn pull_image(image: &ImageName, digest: Option<Sha256>) -> Step {
    Step::PullImage {
        image: image.to_string(),
        digest: digest.map(|digest| digest.to_string()),
    }
}

impl Step {
    /// Whether both have the same image fetched: once is enough.
    fn fetches_like(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::PullImage { image, digest },
                Self::PullImage {
                    image: other_image,
                    digest: other_digest,
                },
            ) => (image, digest) == (other_image, other_digest),
            _ => false,
        }
    }
}

fn expose_device(disk: &PlannedDisk, device: &ExposedPath, whitelisted: bool) -> Step {
    Step::ExposeDevice {
        disk: disk.name.clone(),
        from: device.from.clone(),
        to: device.exposed.clone(),
        number: device.number,
        whitelisted,
        access: disk.access,
    }
}

fn expose_file(disk: &PlannedDisk, file: &ExposedPath) -> Step {
    Step::ExposeFile {
        disk: disk.name.clone(),
        from: file.from.clone(),
        to: file.exposed.clone(),
        access: disk.access,
    }
}

/// A disk whose master is not known yet is not in the domain yet.
fn domain_disk(disk: &PlannedDisk) -> Option<Disk> {
    let master = disk.master_layer()?;
    let (top, below) = match &disk.copy {
        Copy::None => (master, Vec::new()),
        Copy::OnWrite(file) | Copy::OnRead(file) => {
            (Layer::file(&file.path, Format::Qcow2), vec![master])
        }
        Copy::Clone(file) => (Layer::file(&file.path, Format::Raw), Vec::new()),
    };
    Some(Disk {
        device: disk.device,
        tuning: disk.tuning.over(Tuning::of(&top, disk.read_only)),
        top,
        below,
        target: disk.target,
        serial: disk.serial.clone(),
        read_only: disk.read_only,
        shareable: disk.access == super::Access::WriteShared,
        copy_on_read: matches!(disk.copy, Copy::OnRead(_)),
        boot: disk.boot,
        limits: disk.limits,
    })
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
        if let Source::Later(later) = &self.source {
            return Some(format!(
                "disk {}: {later}; until then the domain lacks it",
                self.name
            ));
        }
        match self.size {
            Size::Known(_) => None,
            // Ours to make, and of no interest to anybody.
            _ if matches!(self.source, Source::CloudInit { .. }) => None,
            Size::OnNode if matches!(self.source, Source::DiskImage { .. }) => Some(format!(
                "whether the file of disk {} is there, and its size: {}",
                self.name, self.size
            )),
            size => Some(format!("size of disk {}: {size}", self.name)),
        }
    }
}
