//! What a record says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use disklet_core::plan::Plan;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A VM of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The daemon that has its domain.
    pub(crate) libvirt: String,
    /// How far it is.
    pub(crate) phase: Phase,
    /// The UID of the pod that it runs for, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<String>,
    /// How many disks it has.
    pub(crate) disks: usize,
    /// The digests of the images that it uses: they stay in the store.
    #[serde(default)]
    pub(crate) images: Vec<String>,
    /// Which of them each name of an image stood for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) image_names: BTreeMap<String, String>,
    /// What may be there because of it, in the order of making.
    pub(crate) made: Vec<Made>,
}

/// How far a VM is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// Its things are being made; no guest has run yet.
    Preparing,
    /// All is there.
    Ready,
    /// Its guest was let run for a launcher.
    Running,
    /// Only its volumes are there, by the user's wish.
    Kept,
    /// It is being removed.
    Releasing,
}

/// Something that was made for a VM, or was about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum Made {
    /// A file that can be made again at any time.
    File { path: PathBuf },
    /// A file that the guest writes to.
    Volume { path: PathBuf },
    /// A device node of ours for a device of the machine.
    Device {
        path: PathBuf,
        number: String,
        /// Absent in records of old: alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access: Option<String>,
    },
    /// A file of the machine, shown at a path of ours.
    Mount {
        path: PathBuf,
        from: PathBuf,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access: Option<String>,
    },
    /// The right to use storage at a server, for as long as the VM runs.
    Lease {
        storage: String,
        /// Servers that have it; none where its name says that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hosts: Vec<String>,
        access: String,
    },
    /// A secret in libvirt's memory.
    Secret { uuid: Uuid },
    /// A pool that libvirt lists; other VMs may use it as well.
    Pool { uuid: Uuid },
    /// A domain.
    Domain { uuid: Uuid },
}

pub(super) const VERSION: u32 = 1;

impl Made {
    /// Where it is, if it is a file, a device or shown as one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path }
            | Self::Volume { path }
            | Self::Device { path, .. }
            | Self::Mount { path, .. } => Some(path),
            Self::Lease { .. } | Self::Secret { .. } | Self::Pool { .. } | Self::Domain { .. } => {
                None
            }
        }
    }

    /// Whether both stand for the same thing of ours, whatever is behind it.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device { path: one, .. }, Self::Device { path: two, .. })
            | (Self::Mount { path: one, .. }, Self::Mount { path: two, .. }) => one == two,
            _ => self == other,
        }
    }
}

impl Record {
    /// The record of a VM that is about to be made.
    pub(crate) fn of(plan: &Plan, libvirt: String, made: Vec<Made>) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            version: VERSION,
            namespace: plan.namespace.to_string(),
            name: plan.name.to_string(),
            uuid: plan.uuid,
            created: since_1970.map_or(0, |time| time.as_secs()),
            libvirt,
            phase: Phase::Preparing,
            pod: plan.launcher.as_ref().map(|it| it.pod.to_string()),
            disks: plan.disks.len(),
            images: plan.images().map(|digest| digest.to_string()).collect(),
            image_names: plan
                .named_images()
                .map(|(image, digest)| (image.as_written().to_owned(), digest.to_string()))
                .collect(),
            made,
        }
    }

    /// As users write it.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}
