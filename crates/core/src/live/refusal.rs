//! Why something about a disk cannot be changed while its VM runs, and what
//! can be done instead.

use std::fmt;

use crate::units::ByteSize;

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The VM has no such disk.
    NoDisk {
        /// What was asked for.
        wanted: String,
        /// What may be meant.
        near: Option<String>,
        /// What it has.
        there: Vec<String>,
    },
    /// The words fit two disks.
    Ambiguous {
        /// The name of one, and the target of the other.
        wanted: String,
        /// The other's name.
        other: String,
    },
    /// The guest runs from it.
    Boots,
    /// It is made for the VM.
    CloudInit,
    /// A CD-ROM.
    Cdrom,
    /// On a bus without hot-plug.
    Sata,
    /// The guest asks the unit itself.
    Unit,
    /// A part of a device.
    PersistentRoot,
    /// The guest cannot write to it.
    ReadOnly,
    /// The size is what it was when it was opened.
    Opened(&'static str),
    /// It is not known what is behind it.
    Unknown,
    /// No size was given, and nothing tells one.
    NoSize,
    /// The same of what a server has, which tells it to nobody without the key.
    NoSizeOfServer,
    /// It would become smaller.
    Shrinks {
        /// Its size.
        from: ByteSize,
        /// What was asked for.
        to: ByteSize,
    },
    /// No image of ours is that large.
    TooLarge(ByteSize),
    /// The device behind it has another size.
    OtherDevice {
        /// What the device has.
        device: ByteSize,
        /// What was asked for.
        wanted: ByteSize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDisk { wanted, .. } => write!(f, "the VM has no disk {wanted:?}"),
            Self::Ambiguous { wanted, other } => write!(
                f,
                "{wanted:?} is the name of one disk and the target of another, {other}"
            ),
            Self::Boots => f.write_str("the guest boots from it"),
            Self::CloudInit => f.write_str("it is made for the VM, and goes with it"),
            Self::Cdrom => f.write_str("a CD-ROM does not change while the VM runs"),
            Self::Sata => f.write_str("a disk on the sata bus does not change while the VM runs"),
            Self::Unit => f.write_str("a unit tells the guest its size itself"),
            Self::PersistentRoot => {
                f.write_str("it begins a MiB into its device, and a part of a device cannot grow while the VM runs")
            }
            Self::ReadOnly => f.write_str("the guest cannot write to it, so it does not grow"),
            Self::Opened(kind) => {
                write!(f, "{kind} keeps the size that it had when the VM was started")
            }
            Self::Unknown => f.write_str("what is behind it is not known here"),
            Self::NoSize | Self::NoSizeOfServer => {
                f.write_str("how large it shall be is not said")
            }
            Self::Shrinks { from, to } => write!(f, "it has {from}, and disks do not shrink to {to}"),
            Self::TooLarge(size) => write!(f, "no volume can have {size}"),
            Self::OtherDevice { device, wanted } => {
                write!(f, "the device behind it has {device}, not {wanted}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

const AT_START: &str = "change the manifests, then say disklet down and up";

impl Refusal {
    /// What to do instead.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::NoDisk {
                near: Some(near), ..
            } => format!("did you mean {near:?}?"),
            Self::NoDisk { there, .. } => format!("it has {}", there.join(", ")),
            Self::Ambiguous { other, .. } => {
                format!("say {other:?} for that one; the other can be said by its target")
            }
            Self::Boots => "disklet down ends the VM with its disks".to_owned(),
            Self::CloudInit | Self::Cdrom => AT_START.to_owned(),
            Self::Sata => format!("{AT_START}; disks on scsi and virtio can change at any time"),
            Self::Unit => {
                "have the guest ask again: echo 1 > /sys/class/block/sdX/device/rescan".to_owned()
            }
            Self::PersistentRoot => {
                "grow the device, then say disklet down and up: at each start the disk is as large as its device".to_owned()
            }
            Self::ReadOnly => "grow what is behind it; the next start shows its size".to_owned(),
            Self::Opened(_) => "grow it at its server, then say disklet down and up".to_owned(),
            Self::Unknown => AT_START.to_owned(),
            Self::NoSize => "add a size, such as 20Gi".to_owned(),
            Self::NoSizeOfServer => {
                "add the size that it has at its server: what is beyond a smaller one would be cut off there".to_owned()
            }
            Self::Shrinks { .. } => {
                "what is beyond the end would be lost: copy what is needed to a smaller disk".to_owned()
            }
            Self::TooLarge(_) => "less than 16 TiB is possible".to_owned(),
            Self::OtherDevice { .. } => {
                "grow the device first; without a size, the guest is told what the device has".to_owned()
            }
        }
    }
}
