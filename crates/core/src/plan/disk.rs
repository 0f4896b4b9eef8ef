//! One disk of a plan.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;

use super::{Access, Copy, Storage};
use crate::domain::{DeviceKind, Format, IoLimits, KeyKind, Serial, Target, Tuning};
use crate::facts::DeviceNumber;
use crate::guest::GuestPath;
use crate::names::{ImageName, ObjectName, PoolName, Sha256};
use crate::resolve::Reference;
use crate::source::Network;
use crate::text::{Data, Secret, Text};
use crate::units::ByteSize;

/// A disk and all that was decided about it.
#[derive(Debug, Clone)]
pub struct PlannedDisk {
    /// Unique in the VM. In a pod `root`, `cloud-init`, or the volume's name;
    /// `volume/root` and `volume/cloud-init` for volumes of those names.
    pub name: String,
    /// Disk, CD-ROM or unit.
    pub device: DeviceKind,
    /// Where the guest finds it.
    pub target: Target,
    /// What the guest knows it by.
    pub serial: Serial,
    /// The master: where its bytes come from.
    pub source: Source,
    /// The master's format.
    pub master_format: Format,
    /// The size that the guest sees.
    pub size: Size,
    /// Who may use the master at the same time.
    pub access: Access,
    /// Whether the guest writes to the master or to a copy.
    pub copy: Copy,
    /// The pool that holds a file of ours.
    pub pool: Option<PoolName>,
    /// Where the guest mounts it.
    pub mounts: Vec<MountPoint>,
    /// A link to it that the guest makes.
    pub link: Option<GuestPath>,
    /// The claim that leads to it, if one does.
    pub claim: Option<Claimed>,
    /// The storage that it shares with whoever else uses it; absent for what
    /// is made for this VM, and for what nobody writes to.
    pub storage: Option<Storage>,
    /// What a migration of the VM means for it.
    pub migration: Migration,
    /// The guest cannot write.
    pub read_only: bool,
    /// Its turn when the guest looks for something to boot.
    pub boot: Option<u32>,
    /// How the host treats it, where the user says so.
    pub tuning: TuningWish,
    /// How much of it the guest may use in a second.
    pub limits: IoLimits,
    /// Servers that its user names, other than by address: they must not lead
    /// into a network that is closed to VMs.
    pub server_names: Vec<String>,
    /// Which disk of a VM object it is, counted from 0; absent for those of
    /// pods and for what nobody wrote.
    pub origin: Option<usize>,
}

/// What a user says of how the host treats a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TuningWish {
    /// Caching.
    pub cache: Option<crate::domain::Cache>,
    /// Request path.
    pub io: Option<crate::domain::Io>,
}

impl TuningWish {
    /// The usual, but for what the user says.
    #[must_use]
    pub fn over(self, usual: Tuning) -> Tuning {
        let cache = self.cache.unwrap_or(usual.cache);
        // What was chosen for another cache mode may not go with this one.
        let usual_io = usual.io.filter(|_| cache == usual.cache);
        Tuning {
            cache,
            io: self.io.or(usual_io),
            discard: usual.discard,
        }
    }
}

/// Where a disk's bytes come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// An image in the store. Nobody writes to it.
    Image {
        /// The image.
        image: ImageName,
        /// Its digest, once known.
        digest: Option<Sha256>,
        /// Its file in the store.
        store_file: String,
    },
    /// A volume that is made for this VM.
    NewVolume(VolumeFile),
    /// A raw device of the node.
    RawDevice(ExposedPath),
    /// A block device that a claim stands for.
    BlockClaim(ExposedPath),
    /// A block device with our header, filled once from an image.
    PersistentRoot {
        /// The device.
        device: ExposedPath,
        /// The image.
        image: ImageName,
        /// Its digest, once known.
        digest: Option<Sha256>,
        /// Its file in the store.
        store_file: String,
        /// The size of the device, if somebody has looked.
        device_size: Option<ByteSize>,
        /// Where the guest's disk begins.
        data_offset: u64,
        /// Foreign data, or another image's, may be overwritten.
        recreate: bool,
    },
    /// The file `disk.img` of a filesystem claim.
    DiskImage {
        /// The file.
        file: ExposedPath,
        /// Made of this size if it is missing.
        create: Option<ByteSize>,
    },
    /// Storage at a server, which QEMU opens itself.
    Network {
        /// Where it is.
        network: Network,
        /// Who asks.
        key: Option<NetworkKey>,
    },
    /// The cloud-init image, made for this VM.
    CloudInit {
        /// Its file.
        path: String,
    },
    /// Something that somebody else has to name first.
    Later(Later),
}

/// What is not known before somebody has answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Later {
    /// A container that makes the storage and says where it is.
    Container {
        /// The container.
        container: StorageContainer,
        /// What it is asked by, the same at every start.
        id: Uuid,
    },
    /// The root disk of a VM identity, which the controller places.
    Identity {
        /// The set.
        set: ObjectName,
        /// The identity.
        name: ObjectName,
    },
    /// Something behind an object that cannot be seen from here.
    AtLaunch {
        /// The storage, as far as it is known.
        storage: Option<String>,
        /// The object.
        needs: Reference,
    },
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container { container, .. } => {
                write!(f, "what container {} answers", container.image)
            }
            Self::Identity { set, name } => write!(f, "the disk of identity {name} of set {set}"),
            Self::AtLaunch { storage, needs } => {
                let storage = storage.as_deref().unwrap_or("storage");
                write!(f, "{storage} by {needs}, known at launch")
            }
        }
    }
}

/// A container that makes storage, as whoever starts it needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageContainer {
    /// Its image.
    pub image: String,
    /// All its fields as they are written: a pod takes them like that.
    pub fields: Data,
    /// Its variables with what they refer to, for whoever has no cluster.
    pub environment: Vec<(String, Text)>,
}

/// Who asks a server, and the libvirt secret with the key.
#[derive(Debug, Clone)]
pub struct NetworkKey {
    /// The libvirt secret.
    pub uuid: Uuid,
    /// The user.
    pub user: String,
    /// What sort of key it is.
    pub kind: KeyKind,
    /// The key.
    pub key: Secret,
}

/// A file of ours in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFile {
    /// The volume's name in the pool.
    pub name: String,
    /// The file.
    pub path: String,
}

/// A claim and the volume it is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claimed {
    /// The claim's name.
    #[serde(serialize_with = "as_text")]
    pub claim: ObjectName,
    /// The PersistentVolume's name.
    #[serde(serialize_with = "as_text")]
    pub volume: ObjectName,
    /// No second pod may have it, whatever both do with it.
    #[serde(skip)]
    pub for_one_pod: bool,
}

fn as_text<S: serde::Serializer>(name: &ObjectName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}

/// Something of the node that is checked, opened, and shown to libvirt at a
/// path of ours only: whatever happens to its own path afterwards does not
/// change what the VM has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedPath {
    /// Where it is.
    pub from: HostPath,
    /// Where libvirt finds it.
    pub exposed: String,
    /// Which device it must be, if that is known.
    pub number: Option<DeviceNumber>,
}

/// A path on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPath {
    /// The path.
    Known(String),
    /// A path in the kubelet's directory of the pod, which has no UID yet.
    InPod {
        /// The kubelet's root.
        kubelet_root: String,
        /// The path below the pod's directory.
        below: String,
    },
}

impl PlannedDisk {
    /// The storage that QEMU reads or writes at servers while the guest runs.
    #[must_use]
    pub fn at_servers(&self) -> Option<&Network> {
        match (&self.source, &self.copy) {
            // It was read when the clone was made.
            (_, Copy::Clone(_)) => None,
            (Source::Network { network, .. }, _) => Some(network),
            _ => None,
        }
    }

    /// The format of what QEMU opens.
    #[must_use]
    pub fn format(&self) -> Format {
        match self.copy {
            Copy::None => self.master_format,
            Copy::OnWrite(_) | Copy::OnRead(_) => Format::Qcow2,
            Copy::Clone(_) => Format::Raw,
        }
    }
}

impl PlannedDisk {
    /// In a few words, where the bytes come from.
    #[must_use]
    pub fn origin_in_words(&self) -> String {
        let source = self.source.in_words();
        match &self.claim {
            Some(claim) => format!("claim {}: {source}", claim.claim),
            None => source,
        }
    }
}

impl Source {
    fn in_words(&self) -> String {
        match self {
            Self::Image { image, .. } => format!("image {image}"),
            Self::NewVolume(volume) => format!("new volume {}", volume.name),
            Self::RawDevice(device) | Self::BlockClaim(device) => {
                format!("device {}", device.from)
            }
            Self::PersistentRoot { device, image, .. } => {
                format!("device {}, filled from image {image}", device.from)
            }
            Self::DiskImage { file, .. } => format!("file {}", file.from),
            Self::Network { network, .. } => match network {
                Network::Http(_) => network.to_string(),
                _ => format!("{} {}", network.protocol(), network.name()),
            },
            Self::CloudInit { .. } => "made for the VM".to_owned(),
            Self::Later(later) => later.to_string(),
        }
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(path) => f.write_str(path),
            Self::InPod {
                kubelet_root,
                below,
            } => write!(f, "{kubelet_root}/pods/<pod uid>/{below}"),
        }
    }
}

/// How large a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// So large.
    Known(ByteSize),
    /// So large, or larger if its image is; known after the pull.
    AtLeast(ByteSize),
    /// Known after the image is pulled.
    AfterPull,
    /// Known on the node.
    OnNode,
}

impl Size {
    /// The size if it is certain.
    #[must_use]
    pub fn known(self) -> Option<ByteSize> {
        match self {
            Self::Known(size) => Some(size),
            _ => None,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(size) => write!(f, "{size}"),
            Self::AtLeast(size) => write!(f, "at least {size}, known after pull"),
            Self::AfterPull => f.write_str("known after pull"),
            Self::OnNode => f.write_str("known on the node"),
        }
    }
}

/// What a migration of the VM means for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Migration {
    /// The other node sees the same bytes.
    Shared,
    /// The bytes travel with the VM.
    Copied,
    /// It is not known yet where they are.
    Unknown,
}

impl Migration {
    /// In a word, as it is in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Copied => "copied",
            Self::Unknown => "unknown",
        }
    }
}

/// A mount in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Where.
    pub path: GuestPath,
    /// 0 is the whole disk, n its n-th partition.
    pub part: u32,
    /// Mounted read-only.
    pub read_only: bool,
}
