//! One disk of a plan.

use std::fmt;

use disklet_flexvolume::Ceph;
use serde::Serialize;
use uuid::Uuid;

use super::Storage;
use crate::domain::{DeviceKind, Format, Serial, Target};
use crate::facts::DeviceNumber;
use crate::guest::GuestPath;
use crate::names::{ImageName, ObjectName, PoolName, Sha256};
use crate::text::Secret;
use crate::units::ByteSize;

/// A disk and all that was decided about it.
#[derive(Debug, Clone)]
pub struct PlannedDisk {
    /// `root`, `cloud-init`, or the volume's name in the pod; `volume/root` and
    /// `volume/cloud-init` for volumes of those names. Unique in the VM.
    pub name: String,
    /// Disk or CD-ROM.
    pub device: DeviceKind,
    /// Where the guest finds it.
    pub target: Target,
    /// What the guest knows it by.
    pub serial: Serial,
    /// Where its bytes come from.
    pub source: Source,
    /// The format of what QEMU opens.
    pub format: Format,
    /// The size that the guest sees.
    pub size: Size,
    /// Who may use the storage at the same time.
    pub access: Access,
    /// Whether the guest writes to the storage or to a copy.
    pub copy: CopyMode,
    /// The pool that holds a file of ours.
    pub pool: Option<PoolName>,
    /// Where the guest mounts it.
    pub mounts: Vec<MountPoint>,
    /// A link to it that the guest makes.
    pub link: Option<GuestPath>,
    /// The claim that leads to it, if one does.
    pub claim: Option<Claimed>,
    /// The storage that it shares with whoever else uses it; absent for what
    /// is made for this VM.
    pub storage: Option<Storage>,
    /// What a migration of the VM means for it.
    pub migration: Migration,
    /// The guest cannot write.
    pub read_only: bool,
}

/// Where a disk's bytes come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// An image, under an overlay of ours that takes the writes.
    Image {
        /// The image.
        image: ImageName,
        /// Its digest, once known.
        digest: Option<Sha256>,
        /// Its file in the store.
        store_file: String,
        /// The overlay.
        overlay: VolumeFile,
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
        /// The size of the device, or of the claim if nobody has looked yet.
        device_size: ByteSize,
        /// Where the guest's disk begins.
        data_offset: u64,
        /// Foreign data, or another image's, may be overwritten.
        recreate: bool,
    },
    /// The file `disk.img` of a filesystem claim.
    DiskImage(ExposedPath),
    /// An image in a Ceph pool.
    Rbd {
        /// Where it is.
        ceph: Ceph,
        /// The libvirt secret with the key, and the key.
        key: Option<(Uuid, Secret)>,
    },
    /// The cloud-init image, made for this VM.
    CloudInit {
        /// Its file.
        path: String,
    },
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

/// Who may use the storage at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// One VM, alone.
    WriteExclusive,
    /// Many, none of which writes to it.
    ReadShared,
}

impl Access {
    /// As manifests write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteExclusive => "write-exclusive",
            Self::ReadShared => "read-shared",
        }
    }
}

/// Whether the guest writes to the storage or to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyMode {
    /// To the storage itself.
    None,
    /// To an overlay; what it has not written is read from the storage.
    CopyOnWrite,
}

impl CopyMode {
    /// As manifests write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::CopyOnWrite => "copy-on-write",
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
