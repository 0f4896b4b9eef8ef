//! The start of a domain whose disks are at servers.
//!
//! QEMU opens its disks before it says a word, and waits for most servers as long
//! as they keep it waiting; libvirt waits for QEMU, and we for libvirt. So somebody
//! watches, and ends it.
//!
//! And libvirt may end a QEMU that nobody wanted to end: when an earlier one of the same
//! domain closes its monitor, libvirt 9 notes that for later, and then ends whichever QEMU
//! the domain has by that time, maybe the one that is being started. Later ones look first
//! whether it is still the same.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use disklet_block::convert::Watch;
use disklet_core::domain::Location;
use disklet_core::source::{Network, Servers};
use uuid::Uuid;

use super::{Executor, refused};
use crate::failure::{Failure, Result};
use crate::knock::{Answer, SOON, knock};
use crate::libvirt::Libvirt;

/// How long a start may take if disks are at servers; Ceph ends by itself after half
/// of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Soon enough for whoever has changed their mind.
const LOOK: Duration = Duration::from_millis(200);

impl Executor<'_> {
    /// Starts the domain, within a time if servers have a say in it.
    pub(super) fn start(&self, paused: bool) -> Result<()> {
        match self.try_to_start(paused) {
            // An end that was meant for the QEMU before it comes once.
            Err(failure) if failure.is_unexplained() && !self.watch.cancelled() => {
                self.try_to_start(paused)
            }
            outcome => outcome,
        }
    }

    fn try_to_start(&self, paused: bool) -> Result<()> {
        let disks = self.at_servers();
        let (libvirt, uuid, watch) = (self.libvirt, self.plan.uuid, self.watch);
        if disks.is_empty() {
            return libvirt.start(uuid, paused);
        }
        let (started, waiting) = channel::<()>();
        std::thread::scope(|scope| {
            let watched = scope.spawn(move || watched(libvirt, uuid, watch, &waiting));
            let outcome = libvirt.start(uuid, paused);
            drop(started);
            match watched.join() {
                Ok(Some(Ended::Late)) => Err(late(&disks)),
                Ok(Some(Ended::Unwanted)) => Err(Failure::cancelled()),
                _ => outcome.map_err(|failure| refused::told(failure, &disks)),
            }
        })
    }

    /// What QEMU opens at servers, with the names of the disks.
    pub(super) fn at_servers(&self) -> Vec<(&str, &Network)> {
        let disks = self.plan.disks.iter().zip(&self.plan.domain.disks);
        let layers = disks.flat_map(|(planned, disk)| {
            let layers = std::iter::once(&disk.top).chain(&disk.below);
            layers.map(|layer| (planned.name.as_str(), &layer.at))
        });
        let networks = layers.filter_map(|(name, at)| match at {
            Location::Network { network, .. } => Some((name, network)),
            _ => None,
        });
        networks.collect()
    }
}

/// Why a domain was ended that was being started.
enum Ended {
    Late,
    Unwanted,
}

/// Until it is started, or is ended.
fn watched(
    libvirt: &Libvirt,
    uuid: Uuid,
    watch: &dyn Watch,
    started: &Receiver<()>,
) -> Option<Ended> {
    let until = Instant::now() + PATIENCE;
    loop {
        match started.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return None,
        }
        let why = match watch.cancelled() {
            true => Ended::Unwanted,
            false if Instant::now() > until => Ended::Late,
            false => continue,
        };
        // If it has not come so far yet, or that fails, it is tried again.
        if libvirt.destroy(uuid).unwrap_or(false) {
            return Some(why);
        }
    }
}

/// Tells of the disks whose servers do not answer now; else of all, since one of
/// them has kept QEMU waiting.
fn late(disks: &[(&str, &Network)]) -> Failure {
    let silent: Vec<_> = std::thread::scope(|scope| {
        let asked = disks.iter().map(|disk| {
            let servers = Servers::of(disk.1);
            scope.spawn(move || match knock(&servers, SOON) {
                Answer::Given => None,
                Answer::Silent | Answer::None | Answer::Unreached(_) => Some(disk),
            })
        });
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|thread| thread.join().ok().flatten());
        answers.flatten().collect()
    });
    let blamed: Vec<_> = match silent.is_empty() {
        true => disks.iter().collect(),
        false => silent,
    };
    let words: Vec<_> = blamed
        .iter()
        .map(|(name, network)| format!("disk {name}: {network}"))
        .collect();
    Failure::new(format!(
        "{} has not answered for {} seconds",
        words.join(", or "),
        PATIENCE.as_secs()
    ))
    .help("see that the server runs and can be reached, and say disklet up again")
}
