//! What would be done to have a VM's disks.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;

use super::{Access, HostPath, Master, Size, Storage, StorageContainer};
use crate::domain::{Format, KeyKind};
use crate::facts::DeviceNumber;
use crate::names::PodUid;
use crate::text::{Reveal, Secret};
use crate::units::ByteSize;

/// One step. The executor carries them out by one match, and nothing else does; whom a
/// step is for and when it is its turn is said beside it.
#[derive(Debug, Clone, Serialize)]
#[serde(
    tag = "step",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Step {
    /// Have the right to use storage that others can use as well.
    TakeLease {
        /// Whose it is.
        disk: String,
        /// The storage.
        #[serde(serialize_with = "as_text")]
        storage: Storage,
        /// In which way.
        access: Access,
        /// For how long.
        until: LeaseEnd,
    },
    /// Give up the right to use storage whose bytes are copied: neither the
    /// storage nor what shows it is needed any more.
    EndLease {
        /// Whose it was.
        disk: String,
    },
    /// See that servers do not lead into a network that is closed to VMs.
    CheckServers {
        /// Whose they are.
        disk: String,
        /// Their names.
        hosts: Vec<String>,
    },
    /// Make sure that a pool is there: its directory, and libvirt's pool.
    EnsurePool {
        /// The pool.
        pool: String,
        /// Its directory.
        directory: String,
    },
    /// Fetch an image into the store, unless it is there.
    PullImage {
        /// Its name as written.
        image: String,
        /// Its digest, if the name pins one or the store knows it.
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// Lay an overlay of our own over a master.
    CreateOverlay {
        /// The pool.
        pool: String,
        /// The volume's name.
        volume: String,
        /// Its file.
        file: String,
        /// What is below it.
        backing: Master,
        /// The format of that.
        backing_format: Format,
        /// The size the guest sees.
        #[serde(serialize_with = "known_size")]
        size: Size,
    },
    /// Copy all of a master to a file of our own.
    CloneMaster {
        /// The pool.
        pool: String,
        /// The volume's name.
        volume: String,
        /// Its file, raw.
        file: String,
        /// The master.
        from: Master,
        /// The master's format.
        from_format: Format,
        /// Who reads it.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// The reader's key; it is not written down anywhere.
        #[serde(skip)]
        key: Option<Secret>,
        /// The size the guest sees.
        #[serde(serialize_with = "known_size")]
        size: Size,
    },
    /// Make a raw disk image, unless one is there. It stays with its volume.
    CreateDiskImage {
        /// Whose it is.
        disk: String,
        /// Where it is.
        #[serde(serialize_with = "as_text")]
        file: HostPath,
        /// Its size.
        size: ByteSize,
    },
    /// Have a container make the storage, and say where it is.
    AskContainer {
        /// Whose it is.
        disk: String,
        /// The container; values out of Secrets are not written down.
        #[serde(serialize_with = "as_written")]
        container: StorageContainer,
        /// What it is asked by, the same at every start.
        id: Uuid,
    },
    /// Have the disk of a VM identity.
    AttachIdentity {
        /// Whose it is.
        disk: String,
        /// The set.
        set: String,
        /// The identity.
        identity: String,
    },
    /// Make a volume with one partition and a filesystem on it.
    CreateVolume {
        /// The pool.
        pool: String,
        /// The volume's name.
        volume: String,
        /// Its file.
        file: String,
        /// Its size.
        size: ByteSize,
        /// What its partition is formatted with.
        filesystem: &'static str,
    },
    /// Check that a path is a block device, hold it, and show it at a path of
    /// ours.
    ExposeDevice {
        /// Whose it is.
        disk: String,
        /// Where it is.
        #[serde(serialize_with = "as_text")]
        from: HostPath,
        /// Where libvirt will find it.
        to: String,
        /// Which device it must be.
        #[serde(skip_serializing_if = "Option::is_none")]
        number: Option<DeviceNumber>,
        /// It must be one that the whitelist allows.
        whitelisted: bool,
        /// Who else may have it.
        access: Access,
    },
    /// Check that a path is a regular file, hold it, and show it at a path of
    /// ours.
    ExposeFile {
        /// Whose it is.
        disk: String,
        /// Where it is.
        #[serde(serialize_with = "as_text")]
        from: HostPath,
        /// Where libvirt will find it.
        to: String,
        /// Who else may have it.
        access: Access,
    },
    /// Check that a path of the launcher is a socket, and show it at a path of
    /// ours.
    ExposeSocket {
        /// Where it is.
        from: String,
        /// Where QEMU will find it.
        to: String,
    },
    /// Fill a persistent root from its image, unless it is complete.
    FillRoot {
        /// The device, at our path.
        device: String,
        /// The image's file in the store.
        image_file: String,
        /// The image's digest, once known.
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// How large the device is, once known.
        #[serde(skip_serializing_if = "Option::is_none")]
        device_size: Option<ByteSize>,
        /// Where the data begins; the header is before it.
        offset: u64,
        /// Foreign data, or another image's, may be overwritten.
        recreate: bool,
    },
    /// Give libvirt a key.
    DefineSecret {
        /// The secret's UUID.
        uuid: Uuid,
        /// What libvirt lists it under.
        usage: String,
        /// Whose key it is.
        user: String,
        /// What sort of key it is.
        key_kind: KeyKind,
        /// The key; it is not written down anywhere.
        #[serde(skip)]
        key: Secret,
    },
    /// Write the cloud-init image, readable for QEMU only.
    WriteCloudInit {
        /// Its file.
        file: String,
        /// Its volume label.
        label: &'static str,
    },
    /// Write what QEMU's Ceph client goes by: without it, a wrong key is noticed
    /// after minutes.
    WriteCephConfig {
        /// Its file.
        file: String,
    },
    /// Make the machine's UEFI variables, unless they are there.
    WriteFirmwareVariables {
        /// Their file.
        file: String,
        /// What they are on a new machine.
        template: String,
    },
    /// Define the domain.
    DefineDomain {
        /// Its name.
        name: String,
        /// Its UUID.
        uuid: Uuid,
    },
    /// Start the domain.
    StartDomain {
        /// Its name.
        name: String,
        /// The guest does not run yet.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        paused: bool,
    },
    /// Put a disk into a domain that runs, and into its definition.
    AttachDisk {
        /// The disk.
        disk: String,
        /// Where the guest finds it.
        target: String,
    },
    /// Have QEMU live where the launcher does, so that the pod's limits are the
    /// VM's.
    JoinLauncher {
        /// The launcher pod.
        #[serde(serialize_with = "as_text")]
        pod: PodUid,
    },
    /// Let a guest run that was started paused.
    ResumeDomain {
        /// The domain's name.
        name: String,
    },
}

/// How long a lease is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseEnd {
    /// Until the VM is off.
    Off,
    /// Until its bytes are copied.
    Copied,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakeLease {
                storage,
                access,
                until,
                ..
            } => {
                let until = match until {
                    LeaseEnd::Off => "until the VM is off",
                    LeaseEnd::Copied => "until it is copied",
                };
                write!(f, "lease {storage}, {}, {until}", access.name())
            }
            Self::EndLease { disk } => write!(f, "end the lease of {disk}: it is copied"),
            Self::CheckServers { hosts, .. } => write!(
                f,
                "check that {} leads into no closed network",
                hosts.join(", ")
            ),
            Self::CloneMaster {
                pool,
                volume,
                from,
                size,
                ..
            } => write!(f, "clone {from} to {volume} in pool {pool}, size: {size}"),
            Self::CreateDiskImage { file, size, .. } => {
                write!(f, "make disk image {file}, {size}, unless one is there")
            }
            Self::AskContainer {
                disk, container, ..
            } => {
                let image = &container.image;
                write!(
                    f,
                    "start container {image}, ask it for the storage of {disk}"
                )
            }
            Self::AttachIdentity { set, identity, .. } => {
                write!(f, "wait for identity {identity} of set {set}")
            }
            Self::WriteCephConfig { file } => write!(f, "write {file} for QEMU's Ceph client"),
            Self::WriteFirmwareVariables { file, template } => {
                write!(f, "copy {template} to {file} unless it is there")
            }
            Self::EnsurePool { pool, directory } => {
                write!(f, "make sure that pool {pool} is there, in {directory}")
            }
            Self::PullImage { image, .. } => write!(f, "pull image {image} unless it is there"),
            Self::CreateOverlay {
                pool,
                volume,
                backing,
                size,
                ..
            } => write!(
                f,
                "create overlay {volume} in pool {pool} over {backing}, size: {size}"
            ),
            Self::CreateVolume {
                pool,
                volume,
                size,
                filesystem,
                ..
            } => write!(
                f,
                "create volume {volume} in pool {pool}, {size}, one {filesystem} partition"
            ),
            Self::ExposeDevice {
                from, to, number, ..
            } => {
                write!(f, "check block device {from}")?;
                if let Some(number) = number {
                    write!(f, " ({number})")?;
                }
                write!(f, ", show it at {to}")
            }
            Self::ExposeFile { from, to, .. } => {
                write!(f, "check disk image {from}, show it at {to}")
            }
            Self::FillRoot {
                device,
                image_file,
                recreate,
                ..
            } => {
                let unless = if *recreate {
                    "unless complete, overwriting what is there"
                } else {
                    "unless complete; other data is refused"
                };
                write!(f, "fill {device} from {image_file} {unless}")
            }
            Self::DefineSecret {
                uuid,
                user,
                key_kind,
                ..
            } => {
                let what = match key_kind {
                    KeyKind::Ceph => "Ceph key",
                    KeyKind::Iscsi => "CHAP password",
                    KeyKind::Web => "password",
                };
                write!(f, "give libvirt the {what} of {user} as secret {uuid}")
            }
            Self::WriteCloudInit { file, label } => {
                write!(f, "write cloud-init image {file} ({label})")
            }
            Self::DefineDomain { name, .. } => write!(f, "define domain {name}"),
            Self::ExposeSocket { from, to } => write!(f, "check socket {from}, show it at {to}"),
            Self::StartDomain { name, paused } => {
                let how = if *paused { ", paused" } else { "" };
                write!(f, "start domain {name}{how}")
            }
            Self::AttachDisk { disk, target } => write!(f, "attach disk {disk} at {target}"),
            Self::JoinLauncher { pod } => write!(f, "move QEMU to the launcher, pod {pod}"),
            Self::ResumeDomain { name } => write!(f, "let domain {name} run"),
        }
    }
}

fn as_text<S: serde::Serializer>(
    value: &impl fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A container as its manifest has it, which names Secrets and has none.
fn as_written<S: serde::Serializer>(
    container: &StorageContainer,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    container.fields.under(Reveal::Redact).serialize(serializer)
}

/// A number, or nothing as long as it is not certain.
fn known_size<S: serde::Serializer>(value: &Size, serializer: S) -> Result<S::Ok, S::Error> {
    value.known().serialize(serializer)
}
