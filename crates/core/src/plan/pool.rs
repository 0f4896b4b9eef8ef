//! What a VM's files take of the pools.

use std::collections::BTreeMap;

use super::{Copy, PlannedDisk, Source};
use crate::config::Config;
use crate::names::PoolName;
use crate::units::ByteSize;

/// A pool, and what a VM is promised of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolShare {
    /// The pool.
    pub name: String,
    /// Its directory.
    pub path: String,
    /// Other nodes see the same files.
    pub shared: bool,
    /// What the VM's files in it may grow to, as far as their sizes are known.
    pub promised_bytes: ByteSize,
    /// Whether all sizes are known.
    pub complete: bool,
}

impl PoolShare {
    /// The shares of these disks, by pool.
    pub(super) fn of(disks: &[PlannedDisk], config: &Config) -> Vec<Self> {
        let mut shares: BTreeMap<&PoolName, (u64, bool)> = BTreeMap::new();
        for disk in disks.iter().filter(|disk| disk.is_ours()) {
            let Some(pool) = &disk.pool else { continue };
            let share = shares.entry(pool).or_insert((0, true));
            match disk.size.known() {
                Some(size) => share.0 = share.0.saturating_add(size.as_bytes()),
                None => share.1 = false,
            }
        }
        let share = |(name, (bytes, complete)): (&PoolName, (u64, bool))| {
            let pool = config.pools.get(name)?;
            Some(Self {
                name: name.to_string(),
                path: pool.path.clone(),
                shared: pool.shared,
                promised_bytes: ByteSize::from_bytes(bytes),
                complete,
            })
        };
        shares.into_iter().filter_map(share).collect()
    }
}

impl PlannedDisk {
    /// Whether what QEMU writes to is a file of ours.
    fn is_ours(&self) -> bool {
        self.copy != Copy::None || matches!(self.source, Source::NewVolume(_))
    }
}
