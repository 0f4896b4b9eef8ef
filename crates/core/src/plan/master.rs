//! What a copy is made of.

use std::fmt;

use super::{PlannedDisk, Source};
use crate::domain::{Auth, Format, Layer, Location, Slice};
use crate::source::Network;

/// What is below a copy of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Master {
    /// A file or a device, at a path that QEMU may open.
    Path(String),
    /// Storage at a server.
    Network(Network),
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Network(network) => write!(f, "{network}"),
        }
    }
}

impl serde::Serialize for Master {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl PlannedDisk {
    /// What a copy is made of; nothing as long as that is not known.
    pub(super) fn master(&self) -> Option<Master> {
        Some(match &self.source {
            Source::Network { network, .. } => Master::Network(network.clone()),
            Source::Image { store_file, .. } => Master::Path(store_file.clone()),
            Source::NewVolume(volume) => Master::Path(volume.path.clone()),
            Source::RawDevice(path)
            | Source::BlockClaim(path)
            | Source::DiskImage { file: path, .. }
            | Source::PersistentRoot { device: path, .. } => Master::Path(path.exposed.clone()),
            Source::CloudInit { path } => Master::Path(path.clone()),
            Source::Later(_) => return None,
        })
    }

    /// The master as QEMU opens it.
    pub(super) fn master_layer(&self) -> Option<Layer> {
        let at = match &self.source {
            Source::RawDevice(device) | Source::BlockClaim(device) => Location::Block {
                path: device.exposed.clone(),
                slice: None,
            },
            Source::PersistentRoot {
                device,
                device_size,
                data_offset,
                ..
            } => Location::Block {
                path: device.exposed.clone(),
                slice: Some(Slice {
                    offset: *data_offset,
                    size: device_size.map(|size| size.as_bytes().saturating_sub(*data_offset)),
                }),
            },
            Source::Network { network, key } => Location::Network {
                network: network.clone(),
                auth: key.as_ref().map(|key| Auth {
                    user: key.user.clone(),
                    kind: key.kind,
                    secret: key.uuid,
                }),
            },
            Source::Image { store_file, .. } => Location::File(store_file.clone()),
            Source::NewVolume(volume) => Location::File(volume.path.clone()),
            Source::DiskImage { file, .. } => Location::File(file.exposed.clone()),
            Source::CloudInit { path } => Location::File(path.clone()),
            Source::Later(_) => return None,
        };
        let format: Format = self.master_format;
        Some(Layer { at, format })
    }
}
