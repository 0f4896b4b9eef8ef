//! Whether servers that were away still take the key that a guest was started with.
//!
//! QEMU, which has that key, logs in again and again, and tells nobody that it is refused.
//! To try it costs a server more than to ask whether it is there, so only one that did not
//! answer is tried, when it does again.

use std::collections::BTreeSet;

use disklet_block::convert::Unwatched;
use disklet_core::config::Config;
use disklet_core::plan::{NetworkKey, Plan, PlannedDisk, Source};
use disklet_core::source::{Network, Servers};

use crate::executor::Opener;
use crate::failure::Failure;
use crate::libvirt::QemuUser;

/// A disk at a server that wants to know who comes.
#[derive(Debug)]
pub(super) struct Keyed {
    pub(super) disk: String,
    network: Network,
    key: NetworkKey,
    /// Names of its servers that users gave.
    names: Vec<String>,
}

impl Keyed {
    /// Those of a guest, of the disks that are in doubt.
    pub(super) fn of(plan: Option<&Plan>, doubted: &BTreeSet<String>) -> Vec<Self> {
        let disks = plan.into_iter().flat_map(|plan| &plan.disks);
        let keyed = |disk: &PlannedDisk| {
            let Source::Network { key: Some(key), .. } = &disk.source else {
                return None;
            };
            Some(Self {
                disk: disk.name.clone(),
                network: disk.at_servers()?.clone(),
                key: key.clone(),
                names: disk.server_names.clone(),
            })
        };
        let disks = disks.filter(|disk| doubted.contains(&disk.name));
        disks.filter_map(keyed).collect()
    }

    /// In words, how its server refuses the key; nothing if it takes it, or if something
    /// else is in the way, which may be in the way of a second client only.
    pub(super) fn refused(&self, config: &Config, user: Option<QemuUser>) -> Option<String> {
        let opener = Opener {
            config,
            user,
            watch: &Unwatched,
        };
        let opened = opener.open(
            &self.network,
            Some(&self.key),
            self.names.iter(),
            |_| Ok(()),
        );
        let failure = opened.err().filter(Failure::is_of_key)?;
        let servers = Servers::of(&self.network);
        Some(format!(
            "{servers} is there, and refuses the user or the key that the guest was started with: {failure}"
        ))
    }
}
