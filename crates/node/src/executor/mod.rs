//! Carries steps out. This is the one place that matches on them.
//!
//! Each step is idempotent: carried out again after a crash, it keeps what is
//! complete and makes what is not. Files get their names only when they are
//! complete and durable, so a file that is there is complete.

mod copies;
mod expose;
mod filesystem;
mod image_file;
mod launcher;
mod leases;
mod live;
mod locked;
mod made;
mod masters;
mod nodes;
mod partitions;
mod places;
mod refused;
mod root;
mod servers;
mod start;
mod told;
mod volumes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use disklet::manifests::look;
use disklet::store::Store;
use disklet_block::convert::Watch;
use disklet_core::config::Config;
use disklet_core::domain::KeyKind;
use disklet_core::facts::{DeviceNumber, Questions};
use disklet_core::names::{PodUid, Sha256};
use disklet_core::plan::{Access, Copy, HostPath, Plan, PlannedDisk, Source, Step, Whose};
use disklet_core::text::Secret;
use uuid::Uuid;

use crate::agent::NodeLeases;
use crate::failure::{Failure, Result, on};
use crate::libvirt::{Libvirt, QemuUser};
use crate::record::Held;

pub(crate) use disklet::host::Host;
pub(crate) use launcher::open_socket;
pub(crate) use leases::{is_cloned, is_needless};
pub(crate) use live::{ask_to_let_go, enlarge};
pub(crate) use made::{is_there, made_by, unmake};
pub(crate) use masters::Opener;
pub(crate) use nodes::sweep_nodes;

/// What a plan is carried out with.
pub(crate) struct Executor<'e> {
    pub(crate) libvirt: &'e Libvirt,
    pub(crate) config: &'e Config,
    pub(crate) plan: &'e Plan,
    /// Who shall be able to open what is made.
    pub(crate) user: Option<QemuUser>,
    /// The process that the VM runs for.
    pub(crate) launcher: Option<u32>,
    pub(crate) watch: &'e dyn Watch,
    /// The VM's record.
    pub(crate) held: &'e Held,
    /// What other nodes have a say in.
    pub(crate) leases: Option<&'e NodeLeases>,
}

impl Executor<'_> {
    /// Carries a step out; what goes wrong is told of the disk that it is for.
    pub(crate) fn carry_out(&self, step: &Step) -> Result<()> {
        self.act(step).map_err(|failure| match self.disk_of(step) {
            Some(disk) => failure.of(&format!("disk {disk}")),
            None => failure,
        })
    }

    fn act(&self, step: &Step) -> Result<()> {
        match step {
            Step::EnsurePool { pool, directory } => self.pool(pool, directory),
            Step::PullImage { image, digest } => {
                let store = Store::of(&self.config.data_dir);
                in_store(&store, image, digest.as_deref())
            }
            Step::CheckServers { hosts, .. } => {
                servers::refuse_closed(hosts, &self.config.networks)
            }
            Step::TakeLease { .. } => self.take_lease(step),
            Step::EndLease { disk } => self.end_lease(disk),
            Step::CreateOverlay {
                file,
                backing,
                size,
                ..
            } => self.overlay(file, backing, *size),
            Step::CloneMaster {
                file,
                from,
                from_format,
                ..
            } => self.clone(file, from, *from_format),
            Step::CreateDiskImage { file, size, .. } => {
                copies::disk_image(self.host(), Path::new(known_path(file)?), *size, self.user)
            }
            Step::AskContainer { .. } | Step::AttachIdentity { .. } => Err(needs_cluster()),
            Step::WriteCephConfig { file } => copies::ceph_config(Path::new(file), self.user),
            Step::WriteFirmwareVariables { file, template } => {
                copies::variables(Path::new(file), Path::new(template), self.user)
            }
            Step::CreateVolume { file, size, .. } => {
                volumes::formatted(Path::new(file), *size, self.user, self.watch)
            }
            Step::ExposeDevice {
                from,
                to,
                number,
                whitelisted,
                access,
                ..
            } => self.device(from, Path::new(to), *number, *whitelisted, *access),
            Step::ExposeFile {
                disk,
                from,
                to,
                access,
            } => self.file(disk, from, Path::new(to), *access),
            Step::FillRoot {
                device,
                image_file,
                digest,
                device_size,
                offset,
                recreate,
            } => {
                let wanted = root::Wanted {
                    image: Path::new(image_file),
                    digest: known_digest(image_file, digest.as_deref())?,
                    device_size: *device_size,
                    offset: *offset,
                    overwrite: *recreate,
                };
                self.root(device, &wanted)
            }
            Step::DefineSecret {
                uuid,
                usage,
                key_kind,
                key,
                ..
            } => self.secret(*uuid, *key_kind, usage, key),
            Step::WriteCloudInit { file, .. } => match &self.plan.cloud_init {
                Some(content) => volumes::cloud_init(Path::new(file), content, self.user),
                None => Ok(()),
            },
            Step::DefineDomain { name, .. } => {
                let names = self.server_names();
                let disks = self.at_servers();
                let networks = &self.config.networks;
                let domain =
                    &servers::pinned(&self.plan.domain, &disks, |_| false, names, networks)?;
                let xml = match self.user {
                    Some(_) => domain.to_xml(),
                    None => domain.to_session_xml(),
                };
                self.libvirt.define(name, &xml)
            }
            Step::AttachDisk { disk, target } => self.attach(disk, target),
            Step::ExposeSocket { from, to } => {
                launcher::expose_socket(self.host(), Path::new(from), Path::new(to), self.user)
            }
            Step::StartDomain { paused, .. } => self.start(*paused),
            Step::JoinLauncher { pod } => self.join(pod),
            Step::ResumeDomain { .. } => self.libvirt.resume(self.plan.uuid),
        }
    }

    /// Those that users of VMs say; an administrator's are not judged.
    fn server_names(&self) -> impl Iterator<Item = &String> {
        let steps = self.plan.steps.iter();
        let hosts = steps.filter_map(|step| {
            let Step::CheckServers { hosts, .. } = step else {
                return None;
            };
            Some(hosts)
        });
        hosts.flatten()
    }

    fn host(&self) -> Host<'_> {
        Host(&self.config.host_root)
    }

    fn join(&self, pod: &PodUid) -> Result<()> {
        let Some(launcher) = self.launcher else {
            return Err(Failure::new(format!(
                "the launcher, pod {pod}, is not connected"
            )));
        };
        if !self.libvirt.has_processes() {
            return Ok(());
        }
        let name = &self.plan.domain.name;
        let qemu = Libvirt::process_of(&self.config.qemu_run, name, self.plan.uuid)?;
        launcher::join(self.host(), qemu, launcher, pod)
    }

    /// The disk that a step is for.
    fn disk_of<'s>(&'s self, step: &'s Step) -> Option<&'s str> {
        match step.whose() {
            Whose::Disk(disk) => Some(disk),
            Whose::DiskAt(file) => self.plan.disk_at(file).map(|disk| disk.name.as_str()),
            Whose::KeyOf(key) => self.disk_with(key).map(|disk| disk.name.as_str()),
            Whose::Root => Some("root"),
            Whose::Vm => None,
        }
    }

    fn disk_with(&self, wanted: Uuid) -> Option<&PlannedDisk> {
        let has_it = |disk: &&PlannedDisk| match &disk.source {
            Source::Network { key, .. } => key.as_ref().is_some_and(|key| key.uuid == wanted),
            _ => false,
        };
        self.plan.disks.iter().find(has_it)
    }

    fn secret(&self, uuid: Uuid, kind: KeyKind, usage: &str, key: &Secret) -> Result<()> {
        let key = plain_key(kind, key)?;
        self.libvirt.define_secret(uuid, kind, usage, key.expose())
    }

    fn pool(&self, name: &str, directory: &str) -> Result<()> {
        if !Path::new(directory).is_dir() {
            let failed = |error| on(directory, "made", error);
            fs::create_dir_all(directory).map_err(failed)?;
            // QEMU's user passes through; who else is there is nobody's business.
            fs::set_permissions(directory, fs::Permissions::from_mode(0o711)).map_err(failed)?;
        }
        self.libvirt.ensure_pool(name, directory)
    }

    fn device(
        &self,
        from: &HostPath,
        to: &Path,
        number: Option<DeviceNumber>,
        whitelisted: bool,
        access: Access,
    ) -> Result<()> {
        let from = known_path(from)?;
        // Held until it is shown: a number can be given to another device only
        // when nobody has this one open.
        let (open, number) = expose::open_device(self.host(), Path::new(from), number, access)?;
        locked::demand_unlocked(&open, from, access)?;
        if whitelisted && !self.is_allowed(number) {
            return Err(
                Failure::new(format!("{from} is not on the whitelist any more"))
                    .help("the administrator's rawDevices say which devices VMs may use"),
            );
        }
        nodes::show_device(number, to, self.user)
    }

    fn root(&self, device: &str, wanted: &root::Wanted<'_>) -> Result<()> {
        let alone = Access::WriteExclusive;
        let (open, number) = expose::open_device(Host::OURS, Path::new(device), None, alone)?;
        let name = self.behind(device);
        // No QEMU takes it meanwhile, at whichever path.
        let _held = locked::hold(self.host(), &name, number)?;
        root::have(open, &name, wanted, self.watch)
    }

    fn is_allowed(&self, number: DeviceNumber) -> bool {
        let questions = Questions {
            raw_devices: true,
            ..Questions::default()
        };
        let allowed = look(&questions, self.config).allowed_devices(self.config);
        allowed.contains(&number)
    }

    fn file(&self, disk: &str, from: &HostPath, to: &Path, access: Access) -> Result<()> {
        let from = Path::new(known_path(from)?);
        let open = image_file::open_image(self.host(), from, access)?;
        // The master of a clone is read by us, not by QEMU.
        let mut disks = self.plan.disks.iter();
        let is_cloned = |it: &PlannedDisk| it.name == disk && matches!(it.copy, Copy::Clone(_));
        if !disks.any(is_cloned) {
            image_file::demand_rights(&open, from, self.user, access)?;
        }
        expose::show_file(&open, from, to, self.user)
    }

    /// The path that a user knows of a device or a file that we show.
    fn behind(&self, shown: &str) -> String {
        let steps = self.plan.steps.iter();
        let mut behind = steps.filter_map(|step| {
            let (Step::ExposeDevice { from, to, .. } | Step::ExposeFile { from, to, .. }) = step
            else {
                return None;
            };
            (to == shown).then(|| from.to_string())
        });
        behind.next().unwrap_or_else(|| shown.to_owned())
    }
}

/// What this version cannot do, so that nothing is begun.
pub(crate) fn demand_supported(plan: &Plan) -> Result<()> {
    for step in &plan.steps {
        if let Step::AskContainer { disk, .. } | Step::AttachIdentity { disk, .. } = step {
            return Err(needs_cluster().of(&format!("disk {disk}")));
        }
    }
    Ok(())
}

/// Ceph prints keys in base64; QEMU wants the key.
fn plain_key(kind: KeyKind, key: &Secret) -> Result<Secret> {
    match kind {
        KeyKind::Ceph => BASE64.decode(key.expose()).map(Secret::new).map_err(|_| {
            Failure::new("the Ceph key is not base64").help("use what ceph auth get-key prints")
        }),
        KeyKind::Iscsi | KeyKind::Web => Ok(key.clone()),
    }
}

fn needs_cluster() -> Failure {
    Failure::new("its storage comes from a cluster")
        .help("name the storage itself in the disk's source")
}

fn known_path(path: &HostPath) -> Result<&str> {
    match path {
        HostPath::Known(path) => Ok(path),
        HostPath::InPod { .. } => Err(Failure::new(format!("{path} is known in a cluster only"))
            .help("without a cluster, use a PersistentVolume of type local or hostPath")),
    }
}

fn in_store(store: &Store, image: &str, digest: Option<&str>) -> Result<()> {
    let there = digest
        .and_then(Sha256::parse_hex)
        .is_some_and(|digest| store.disk(&digest).exists());
    // It was there, or was fetched, before the steps began.
    match there {
        true => Ok(()),
        false => Err(
            Failure::new(format!("image {image} is not in the store any more"))
                .help("say it again, to have it fetched"),
        ),
    }
}

fn known_digest(image: &str, digest: Option<&str>) -> Result<Sha256> {
    digest
        .and_then(Sha256::parse_hex)
        .ok_or_else(|| Failure::new(format!("{image}: the image is not in the store")))
}
