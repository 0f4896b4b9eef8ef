//! How much of a disk a guest may use in a second.

use super::element::{Element, element, text};

/// Limits on a disk, as libvirt has them; absent: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IoLimits {
    /// Bytes in a second, whichever way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes_sec: Option<u64>,
    /// Bytes read in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes_sec: Option<u64>,
    /// Bytes written in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes_sec: Option<u64>,
    /// Requests in a second, whichever way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_iops_sec: Option<u64>,
    /// Reads in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops_sec: Option<u64>,
    /// Writes in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops_sec: Option<u64>,
}

impl IoLimits {
    /// Each limit that is set, by libvirt's name.
    #[must_use]
    pub fn named(self) -> Vec<(&'static str, u64)> {
        [
            ("total_bytes_sec", self.total_bytes_sec),
            ("read_bytes_sec", self.read_bytes_sec),
            ("write_bytes_sec", self.write_bytes_sec),
            ("total_iops_sec", self.total_iops_sec),
            ("read_iops_sec", self.read_iops_sec),
            ("write_iops_sec", self.write_iops_sec),
        ]
        .into_iter()
        .filter_map(|(name, limit)| Some((name, limit?)))
        .collect()
    }

    pub(super) fn element(self) -> Option<Element> {
        let limits = self.named();
        let children = limits.iter().map(|(name, limit)| text(name, limit));
        (!limits.is_empty()).then(|| element("iotune").children(children))
    }
}
