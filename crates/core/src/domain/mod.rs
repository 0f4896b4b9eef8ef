//! The libvirt domain of a VM, as a value, and its XML.
//!
//! Everything that libvirt would otherwise choose or probe is spelled out:
//! addresses, formats, and each disk's whole backing chain up to an empty
//! `<backingStore/>`, so that neither libvirt nor QEMU follows a name that
//! stands inside an image.

mod element;
mod firmware;
mod limits;
mod links;
mod target;
mod tuning;
mod xml;

use std::net::IpAddr;

use uuid::Uuid;

pub use firmware::{Firmware, Uefi};
pub use limits::IoLimits;
pub use links::Sockets;
pub use target::{Bus, Serial, Target};
pub use tuning::{Cache, Io, Tuning};

use crate::manifest::{CpuModel, CpuSetting};
use crate::source::{Endpoint, Network};
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
    /// What it boots with.
    pub firmware: Firmware,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
    /// Where everything goes that the guest writes to its serial port.
    pub serial_log: String,
    /// What it is connected to in a cluster; absent: QEMU's own network, and a
    /// terminal as console.
    pub sockets: Option<Sockets>,
    /// What QEMU's Ceph client goes by, where a disk needs one.
    pub ceph_config: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its hardware address.
    pub mac: String,
    /// What the guest sees it as.
    pub model: InterfaceModel,
}

/// What a guest sees a network interface as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InterfaceModel {
    /// The fast one.
    #[default]
    Virtio,
    /// For guests without a virtio driver.
    E1000,
}

impl InterfaceModel {
    /// As libvirt writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000 => "e1000",
        }
    }

    /// As QEMU calls the device.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Self::Virtio => "virtio-net-pci",
            Self::E1000 => "e1000",
        }
    }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A disk.
    Disk,
    /// A CD-ROM.
    Cdrom,
    /// A SCSI unit to which the guest's commands go through as they are.
    Lun,
}

impl DeviceKind {
    /// As libvirt writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Cdrom => "cdrom",
            Self::Lun => "lun",
        }
    }
}

/// One disk of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Disk, CD-ROM or unit.
    pub device: DeviceKind,
    /// What QEMU opens.
    pub top: Layer,
    /// What that is laid over, topmost first.
    pub below: Vec<Layer>,
    /// Where the guest finds it.
    pub target: Target,
    /// What the guest knows it by.
    pub serial: Serial,
    /// The guest cannot write.
    pub read_only: bool,
    /// Other guests write to it as well.
    pub shareable: bool,
    /// What is read from below is kept in the top layer.
    pub copy_on_read: bool,
    /// Its turn when the guest looks for something to boot.
    pub boot: Option<u32>,
    /// How the host treats it.
    pub tuning: Tuning,
    /// How much of it the guest may use in a second.
    pub limits: IoLimits,
}

impl Domain {
    /// The same, where servers that were named have the addresses that were found
    /// for them; see [`Network::by_address`]. Nothing if a disk has no server left.
    #[must_use]
    pub fn by_address(&self, found: &dyn Fn(&Endpoint) -> Option<Vec<IpAddr>>) -> Option<Self> {
        let mut domain = self.clone();
        for disk in &mut domain.disks {
            for layer in std::iter::once(&mut disk.top).chain(&mut disk.below) {
                if let Location::Network { network, .. } = &mut layer.at {
                    *network = network.by_address(found)?;
                }
            }
        }
        Some(domain)
    }
}

impl Disk {
    /// Whether QEMU asks a Ceph cluster for some of it.
    pub(crate) fn is_in_ceph(&self) -> bool {
        let mut layers = std::iter::once(&self.top).chain(&self.below);
        layers.any(|layer| {
            matches!(
                layer.at,
                Location::Network {
                    network: Network::Rbd(_),
                    ..
                }
            )
        })
    }
}

/// Something with a format, at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Where.
    pub at: Location,
    /// What is there.
    pub format: Format,
}

/// Where bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In a file.
    File(String),
    /// On a block device.
    Block {
        /// Its path.
        path: String,
        /// The part of it that is meant; absent: all.
        slice: Option<Slice>,
    },
    /// At a server.
    Network {
        /// Which.
        network: Network,
        /// Who asks.
        auth: Option<Auth>,
    },
}

impl Layer {
    /// A file.
    #[must_use]
    pub fn file(path: &str, format: Format) -> Self {
        Self {
            at: Location::File(path.to_owned()),
            format,
        }
    }

    /// A whole device, raw.
    #[must_use]
    pub fn device(path: &str) -> Self {
        Self {
            at: Location::Block {
                path: path.to_owned(),
                slice: None,
            },
            format: Format::Raw,
        }
    }
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins.
    pub offset: u64,
    /// How long it is, once known.
    pub size: Option<u64>,
}

/// A user of a server, and the libvirt secret with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// The user; of Ceph without `client.`
    pub user: String,
    /// What sort of key it is.
    pub kind: KeyKind,
    /// The libvirt secret's UUID.
    pub secret: Uuid,
}

/// What sort of key a secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// A cephx key, in base64 as Ceph prints it.
    Ceph,
    /// A CHAP password of an iSCSI target.
    Iscsi,
    /// A password of a web server; only clones use one, so libvirt never
    /// hears of it.
    Web,
}

impl KeyKind {
    /// As libvirt writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ceph => "ceph",
            Self::Iscsi => "iscsi",
            Self::Web => "web",
        }
    }
}
