//! The libvirt domain of a VM, as a value, and its XML.
//!
//! Everything that libvirt would otherwise choose or probe is spelled out:
//! addresses, formats, and each disk's whole backing chain up to an empty
//! `<backingStore/>`, so that neither libvirt nor QEMU follows a name that
//! stands inside an image.

mod element;
mod target;
mod tuning;
mod xml;

use uuid::Uuid;

pub use target::{Bus, Serial, Target};
pub use tuning::{Cache, Io, Tuning};

use crate::manifest::{CpuModel, CpuSetting};
use crate::units::ByteSize;

/// How guests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hypervisor {
    /// By hardware.
    Kvm,
    /// In software.
    Qemu,
}

/// A domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Domain {
    /// How it is run.
    pub hypervisor: Hypervisor,
    /// Its name: `<uuid>-<container>`.
    pub name: String,
    /// Its UUID, which SMBIOS shows as well.
    pub uuid: Uuid,
    /// Whose it is; by this we know our domains from others'.
    pub owner: Owner,
    /// Its memory.
    pub memory: ByteSize,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// The CPU it sees.
    pub cpu: Cpu,
    /// The QEMU program.
    pub emulator: String,
    /// Its disks, in order.
    pub disks: Vec<Disk>,
    /// The hardware address of its one network interface.
    pub mac: String,
    /// Where everything goes that the guest writes to its serial port.
    pub serial_log: String,
}

/// The object that a domain belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The CPU a guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpu {
    /// A model by name.
    Model(CpuModel),
    /// In libvirt's words.
    Setting(CpuSetting),
}

/// The format of a disk's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Nothing around the bytes.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

impl Format {
    /// As libvirt and qemu-img write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// What the guest sees a disk as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A disk.
    Disk,
    /// A CD-ROM.
    Cdrom,
}

/// One disk of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Disk or CD-ROM.
    pub device: DeviceKind,
    /// Where its bytes are.
    pub source: DiskSource,
    /// What they are.
    pub format: Format,
    /// Where the guest finds it.
    pub target: Target,
    /// What the guest knows it by.
    pub serial: Serial,
    /// The guest cannot write.
    pub read_only: bool,
    /// The guest boots from it.
    pub boots: bool,
}

/// Where a disk's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskSource {
    /// A file, and the files below it, topmost first.
    File {
        /// Its path.
        path: String,
        /// What it is laid over.
        backing: Vec<BackingFile>,
    },
    /// A block device.
    Block {
        /// Its path.
        path: String,
        /// The part of it that the guest sees; absent: all.
        slice: Option<Slice>,
    },
    /// An image in a Ceph pool.
    Rbd {
        /// The pool.
        pool: String,
        /// The image.
        image: String,
        /// Monitors, host and port.
        monitors: Vec<(String, u16)>,
        /// Who asks.
        auth: Option<RbdAuth>,
    },
}

/// A file below a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingFile {
    /// Its path.
    pub path: String,
    /// Its format.
    pub format: Format,
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub size: u64,
}

/// A Ceph user, and the libvirt secret with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RbdAuth {
    /// The user without `client.`
    pub user: String,
    /// The libvirt secret's UUID.
    pub secret: Uuid,
}
