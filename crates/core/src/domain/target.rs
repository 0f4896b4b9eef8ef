//! Where a disk sits on the virtual machine, and the names that follow.
//!
//! The machine is QEMU's `pc`: on its PCI bus virtio devices are
//! transitional, so that guests as old as the first CirrOS find them.
//!
//! ```text
//!   slot 0x01 the chipset      0x03 network       0x04 virtio-scsi controller
//!   slots 0x05 … 0x18 virtio-blk disks a … t      0x1c SATA controller
//!   0x1d entropy       0x1e balloon
//! ```

use std::fmt;

use sha2::{Digest, Sha256};

use super::DeviceKind;
use super::element::{Element, element};
use crate::guest::GuestDevice;
use crate::manifest::DiskDriver;

/// What a disk hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bus {
    /// The one virtio-scsi controller.
    Scsi,
    /// PCI, each disk on its own.
    Virtio,
    /// The one AHCI controller, for guests without virtio drivers.
    Sata,
}

impl From<DiskDriver> for Bus {
    fn from(driver: DiskDriver) -> Self {
        match driver {
            DiskDriver::Scsi => Self::Scsi,
            DiskDriver::Virtio => Self::Virtio,
        }
    }
}

impl Bus {
    /// As libvirt writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scsi => "scsi",
            Self::Virtio => "virtio",
            Self::Sata => "sata",
        }
    }

    /// All of them.
    pub const ALL: [Self; 3] = [Self::Scsi, Self::Virtio, Self::Sata];

    /// How many disks a VM pod may have on it, root and cloud-init included:
    /// the letters of the alphabet, what Virtlet promises for virtio-blk, and
    /// the ports of an AHCI controller.
    #[must_use]
    pub fn limit(self) -> u8 {
        match self {
            Self::Scsi => 26,
            Self::Virtio => 20,
            Self::Sata => 6,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Scsi | Self::Sata => "sd",
            Self::Virtio => "vd",
        }
    }
}

pub(super) const NETWORK_SLOT: u8 = 0x03;
pub(super) const SCSI_SLOT: u8 = 0x04;
const FIRST_DISK_SLOT: u8 = 0x05;
pub(super) const SATA_SLOT: u8 = 0x1c;
pub(super) const ENTROPY_SLOT: u8 = 0x1d;
pub(super) const BALLOON_SLOT: u8 = 0x1e;

/// A disk's place: its bus and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    bus: Bus,
    index: u8,
}

impl Target {
    /// The n-th disk of a bus, if the bus has that many.
    #[must_use]
    pub fn new(bus: Bus, index: usize) -> Option<Self> {
        let index = u8::try_from(index).ok().filter(|n| *n < bus.limit())?;
        Some(Self { bus, index })
    }

    /// The disk of a bus by its name, such as `sdb`.
    #[must_use]
    pub fn named(bus: Bus, name: &str) -> Option<Self> {
        match name.strip_prefix(bus.prefix())?.as_bytes() {
            [letter @ b'a'..=b'z'] => Self::new(bus, usize::from(letter - b'a')),
            _ => None,
        }
    }

    /// The bus.
    #[must_use]
    pub fn bus(self) -> Bus {
        self.bus
    }

    /// `sda`, `vdb` and so on.
    #[must_use]
    pub fn name(self) -> String {
        let letter = char::from(b'a' + self.index);
        format!("{}{letter}", self.bus.prefix())
    }

    /// The links by which a guest with udev finds the disk.
    #[must_use]
    pub fn guest_device(self, device: DeviceKind, serial: &Serial) -> GuestDevice {
        match self.bus {
            Bus::Scsi => {
                let product = match device {
                    DeviceKind::Disk | DeviceKind::Lun => "HARDDISK",
                    DeviceKind::Cdrom => "CD-ROM",
                };
                GuestDevice {
                    by_id: format!("/dev/disk/by-id/scsi-0QEMU_QEMU_{product}_{serial}"),
                    by_path: format!(
                        "/dev/disk/by-path/pci-0000:00:{SCSI_SLOT:02x}.0-scsi-0:0:0:{}",
                        self.index
                    ),
                }
            }
            Bus::Sata => GuestDevice {
                by_id: format!("/dev/disk/by-id/ata-QEMU_HARDDISK_{serial}"),
                by_path: format!(
                    "/dev/disk/by-path/pci-0000:00:{SATA_SLOT:02x}.0-ata-{}",
                    self.index + 1
                ),
            },
            Bus::Virtio => GuestDevice {
                by_id: format!("/dev/disk/by-id/virtio-{serial}"),
                by_path: format!("/dev/disk/by-path/pci-0000:00:{:02x}.0", self.slot()),
            },
        }
    }

    fn slot(self) -> u8 {
        FIRST_DISK_SLOT + self.index
    }

    pub(super) fn address(self) -> Element {
        match self.bus {
            // SATA has units only, and SCSI one target with all units.
            Bus::Scsi | Bus::Sata => element("address")
                .with("type", "drive")
                .with("controller", 0)
                .with("bus", 0)
                .with("target", 0)
                .with("unit", self.index),
            Bus::Virtio => pci(self.slot()),
        }
    }
}

/// The address of a device on the root bus.
pub(super) fn pci(slot: u8) -> Element {
    element("address")
        .with("type", "pci")
        .with("domain", "0x0000")
        .with("bus", "0x00")
        .with("slot", format!("{slot:#04x}"))
        .with("function", "0x0")
}

/// A disk's serial number: at most 20 characters (virtio-blk shows no more),
/// unique in its VM, and the same as long as the volume keeps its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(String);

impl Serial {
    const MOST: usize = 20;
    const HASH_DIGITS: usize = 8;
    const STEM: usize = Self::MOST - Self::HASH_DIGITS - 1;

    /// What a user may choose.
    pub const ALLOWED: &str = "1 to 20 letters, digits, '-', '_', '.' and '+'";

    /// A user's own.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.+".contains(&b);
        let valid = (1..=Self::MOST).contains(&text.len()) && text.bytes().all(fits);
        valid.then(|| Self(text.to_owned()))
    }

    /// The root disk's.
    #[must_use]
    pub fn root() -> Self {
        Self("root".to_owned())
    }

    /// The cloud-init image's.
    #[must_use]
    pub fn cloud_init() -> Self {
        Self("cloud-init".to_owned())
    }

    /// A volume's: its name, where that fits and is nobody else's. Other names
    /// are shortened and end in a part of their hash; a name that looks like
    /// that already is treated so too, so the two kinds never meet.
    #[must_use]
    pub fn of_volume(name: &str) -> Self {
        let reserved = ["root", "cloud-init"].contains(&name);
        if name.len() <= Self::MOST && !reserved && !Self::looks_hashed(name) {
            return Self(name.to_owned());
        }
        let stem: String = name.chars().take(Self::STEM).collect();
        let hash = Sha256::digest(name.as_bytes());
        let digits: String = hash
            .iter()
            .take(Self::HASH_DIGITS / 2)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self(format!("{stem}-{digits}"))
    }

    fn looks_hashed(name: &str) -> bool {
        name.rsplit_once('-').is_some_and(|(_, tail)| {
            tail.len() == Self::HASH_DIGITS && tail.bytes().all(|b| b.is_ascii_hexdigit())
        })
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_lettered_up_to_the_limit() {
        assert_eq!(Target::new(Bus::Scsi, 25).unwrap().name(), "sdz");
        assert_eq!(Target::new(Bus::Scsi, 26), None);
        assert_eq!(Target::new(Bus::Virtio, 19).unwrap().name(), "vdt");
        assert_eq!(Target::new(Bus::Virtio, 20), None);
    }

    #[test]
    fn the_last_virtio_disk_does_not_meet_other_devices() {
        let last = Target::new(Bus::Virtio, 19).unwrap();
        assert!(last.slot() < SATA_SLOT && SATA_SLOT < ENTROPY_SLOT);
    }

    #[test]
    fn serials_fit_and_do_not_collide() {
        let long = "a-very-long-volume-name-of-a-database";
        let names = [
            "vol1",
            "root",
            "cloud-init",
            long,
            "a-very-long-volume-name-of-a-datastore",
        ];
        let serials: Vec<_> = names.map(Serial::of_volume).to_vec();
        assert!(serials.iter().all(|serial| serial.as_str().len() <= 20));
        let shortened = serials[3].as_str().to_owned();
        let mut all = serials;
        all.extend([
            Serial::root(),
            Serial::cloud_init(),
            Serial::of_volume(&shortened),
        ]);
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "{all:?}");
    }
}
