//! Disks of a domain that runs.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use disklet_block::convert::Watch;
use disklet_core::domain::{Disk, Location};
use disklet_core::plan::{PlannedDisk, Source};
use disklet_core::source::Servers as Doors;
use disklet_core::units::ByteSize;
use uuid::Uuid;

use super::masters::sized;
use super::{Executor, servers};
use crate::failure::{Failure, Result};
use crate::knock::{Answer, knock};
use crate::libvirt::Libvirt;

/// What is known of the servers of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Servers {
    /// It has none.
    None,
    /// They answer.
    Answer,
    /// They cannot be reached from here.
    Elsewhere,
}

/// How long a server is waited for before a guest is made to wait for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long QEMU may take to open a disk that was opened a moment ago, or to change one.
const OPENING: Duration = Duration::from_secs(60);

/// Soon enough for whoever has changed their mind.
const LOOK: Duration = Duration::from_millis(200);

impl Executor<'_> {
    /// Puts a disk into the domain, unless it is there.
    pub(super) fn attach(&self, name: &str, target: &str) -> Result<()> {
        if self.libvirt.disk_at(self.plan.uuid, target)?.is_some() {
            return Ok(());
        }
        let (names, at_servers) = (self.server_names(), self.at_servers());
        let told = |disk: &str| disk == name;
        let networks = &self.config.networks;
        let domain = servers::pinned(&self.plan.domain, &at_servers, told, names, networks)?;
        let mut disks = self.plan.disks.iter().zip(&domain.disks);
        let Some((planned, disk)) = disks.find(|(planned, _)| planned.name == name) else {
            return Err(Failure::new("what is behind it is not known"));
        };
        let servers = demand_answer(disk)?;
        if servers == Servers::Answer {
            self.demand_open(planned)?;
        }
        let xml = match self.user {
            Some(_) => domain.disk_xml(disk),
            None => domain.session_disk_xml(disk),
        };
        match servers {
            Servers::None => self.libvirt.attach(self.plan.uuid, &xml),
            Servers::Answer | Servers::Elsewhere => self.attach_in_time(xml),
        }
    }

    /// A server may take connections and have nothing to give, such as a Ceph cluster whose
    /// daemons hang. So its disk is opened once where no guest waits for it.
    fn demand_open(&self, disk: &PlannedDisk) -> Result<()> {
        let Source::Network { network, .. } = &disk.source else {
            return Ok(());
        };
        let opened = |bytes: std::sync::Arc<_>| sized(network, &*bytes).map(drop);
        self.read_from(Some(&disk.source), network, opened)
    }

    fn attach_in_time(&self, xml: String) -> Result<()> {
        let (libvirt, uuid) = (self.libvirt.clone(), self.plan.uuid);
        let attach = move || libvirt.attach(uuid, &xml);
        in_time(self.watch, "QEMU may still get the disk", attach)
    }
}

/// libvirt waits for QEMU, and QEMU for the server, without end. Whoever does not want to
/// wait any more leaves them to it: what becomes of the disk is settled later.
fn in_time(
    watch: &dyn Watch,
    else_what: &str,
    act: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    let (done, waiting) = channel();
    std::thread::spawn(move || done.send(act()));
    let until = Instant::now() + OPENING;
    loop {
        match waiting.recv_timeout(LOOK) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("libvirt was not asked to the end"));
            }
            Err(RecvTimeoutError::Timeout) if watch.cancelled() => {
                return Err(Failure::cancelled_but(else_what));
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > until => return Err(late()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn late() -> Failure {
    Failure::new(format!(
        "QEMU has waited for its server for {} seconds, and its guest for QEMU",
        OPENING.as_secs()
    ))
    .help("they go on as soon as the server answers; else disklet down ends the VM")
}

/// While QEMU opens a disk, its guest stands still: nobody shall wait there for a server
/// that says nothing. One that cannot be reached from here may be from where QEMU is,
/// which will tell at once.
fn demand_answer(disk: &Disk) -> Result<Servers> {
    let mut found = Servers::None;
    for layer in std::iter::once(&disk.top).chain(&disk.below) {
        let Location::Network { network, .. } = &layer.at else {
            continue;
        };
        found = match knock(&Doors::of(network), PATIENCE) {
            Answer::Given => Servers::Answer,
            Answer::Unreached(_) => Servers::Elsewhere,
            Answer::Silent | Answer::None => {
                return Err(Failure::new(format!(
                    "{network} has not answered for {} seconds",
                    PATIENCE.as_secs()
                ))
                .help("see that the server runs and can be reached"));
            }
        };
    }
    Ok(found)
}

/// Asks the guest to let go of a disk, unless it has. That it does is told later.
pub(crate) fn ask_to_let_go(libvirt: &Libvirt, domain: Uuid, target: &str) -> Result<()> {
    match libvirt.disk_at(domain, target)? {
        Some(disk) => libvirt.ask_to_let_go(domain, &disk.alias.unwrap_or_default()),
        None => Ok(()),
    }
}

/// Makes a disk larger, and tells the guest.
pub(crate) fn enlarge(
    libvirt: &Libvirt,
    domain: Uuid,
    target: &str,
    size: ByteSize,
    watch: &dyn Watch,
) -> Result<()> {
    let now = ByteSize::from_bytes(libvirt.capacity(domain, target)?);
    // libvirt would make it smaller.
    if now > size {
        return Err(Failure::new(format!("it has {now} by now")));
    }
    let (libvirt, target) = (libvirt.clone(), target.to_owned());
    let resize = move || libvirt.resize(domain, &target, size.as_bytes());
    in_time(watch, "QEMU may still make the disk larger", resize)
}
