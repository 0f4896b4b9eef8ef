//! What is being done to the disks of a VM that runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Made;

/// Something that was begun. Whether it is done, its domain tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum Change {
    /// A disk is being attached.
    Attach {
        /// As the plan has it.
        disk: Value,
        /// As the domain has it.
        xml: String,
        /// What is there because of it alone.
        made: Vec<Made>,
    },
    /// The guest is asked to let go of a disk.
    Detach {
        name: String,
        target: String,
        /// What is there because of it alone.
        made: Vec<Made>,
        /// What its file was promised, by pools.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        promised: BTreeMap<String, u64>,
    },
    /// A disk is being made larger.
    Resize {
        name: String,
        target: String,
        /// In bytes.
        size: u64,
    },
}

impl Change {
    /// Where the guest finds the disk.
    pub(crate) fn target(&self) -> &str {
        match self {
            Self::Attach { disk, .. } => disk["target"].as_str().unwrap_or_default(),
            Self::Detach { target, .. } | Self::Resize { target, .. } => target,
        }
    }

    /// Whether the guest is asked to let go of a disk.
    pub(crate) fn detaches(&self, disk: &str) -> bool {
        matches!(self, Self::Detach { name, .. } if name == disk)
    }
}
