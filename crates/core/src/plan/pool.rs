//! What a VM's files take of the pools.

use std::collections::BTreeMap;

use super::{Copy, PlannedDisk, Source};
use crate::config::{Config, Overcommit};
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

/// What there is of a pool, and what others were promised of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolAccount {
    /// The size of its filesystem.
    pub size: ByteSize,
    /// What VMs were promised.
    pub promised: ByteSize,
    /// How many times its size may be promised.
    pub overcommit: Option<Overcommit>,
}

impl PoolAccount {
    /// How much may be promised in all.
    #[must_use]
    pub fn limit(&self) -> Option<ByteSize> {
        self.overcommit.map(|times| times.of(self.size))
    }

    /// Whether so much more can be promised; else the limit that is in the way.
    pub fn promise(&self, wanted: ByteSize) -> Result<(), ByteSize> {
        let all = self.promised.as_bytes().saturating_add(wanted.as_bytes());
        match self.limit() {
            // Who wants nothing takes nothing, however much was promised when there
            // was another limit.
            Some(limit) if all > limit.as_bytes() && wanted.as_bytes() > 0 => Err(limit),
            _ => Ok(()),
        }
    }
}

impl PlannedDisk {
    /// Whether what QEMU writes to is a file of ours.
    fn is_ours(&self) -> bool {
        self.copy != Copy::None || matches!(self.source, Source::NewVolume(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_limit_is_not_promised() {
        let bytes = ByteSize::from_bytes;
        let account = |promised, times: Option<&str>| PoolAccount {
            size: bytes(1000),
            promised: bytes(promised),
            overcommit: times.and_then(Overcommit::parse),
        };
        assert_eq!(account(1400, Some("1.5")).promise(bytes(100)), Ok(()));
        assert_eq!(
            account(1400, Some("1.5")).promise(bytes(101)),
            Err(bytes(1500))
        );
        assert_eq!(account(5000, Some("1.5")).promise(bytes(0)), Ok(()));
        assert_eq!(account(5000, None).promise(bytes(u64::MAX)), Ok(()));
        assert_eq!(
            account(u64::MAX, Some("1")).promise(bytes(1)),
            Err(bytes(1000))
        );
    }
}
