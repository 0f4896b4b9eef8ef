//! What a machine boots with.

use super::element::{Element, text};

/// What a machine boots with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Firmware {
    /// The BIOS of old.
    #[default]
    Bios,
    /// UEFI, from files of the node.
    Uefi(Uefi),
}

/// UEFI and the machine's own variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uefi {
    /// The firmware itself; nobody writes to it.
    pub code: String,
    /// Variables as they are when a machine is new.
    pub template: String,
    /// The machine's own variables.
    pub variables: String,
}

impl Firmware {
    /// The elements of `<os>`. The files are spelled out: libvirt would choose
    /// by what is installed.
    pub(super) fn elements(&self) -> Vec<Element> {
        match self {
            Self::Bios => Vec::new(),
            Self::Uefi(uefi) => vec![
                text("loader", &uefi.code)
                    .with("readonly", "yes")
                    .with("type", "pflash"),
                // Made before the start, so libvirt needs no template.
                text("nvram", &uefi.variables),
            ],
        }
    }
}
