//! A domain that somebody else is starting.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{Event, Libvirt, State};
use crate::failure::{Failure, Result};
use crate::interrupt;

/// QEMU is there within a second or two, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

impl Libvirt {
    /// Gives a domain time that somebody is starting. One whose daemon was ended
    /// meanwhile never runs.
    pub(crate) fn demand_started(&self, uuid: Uuid) -> Result<()> {
        if self.state(uuid)? != Some(State::Starting) {
            return Ok(());
        }
        // A connection of its own: each has one listener for its end.
        let (libvirt, events) = Self::open_listening(Some(&self.address()?))?;
        interrupt::tell(events.sender.clone());
        let until = Instant::now() + PATIENCE;
        // What happened before anybody listened, a look tells, as whatever happens after.
        while libvirt.state(uuid)? == Some(State::Starting) {
            if interrupt::asked() {
                return Err(Failure::cancelled());
            }
            let left = until.saturating_duration_since(Instant::now());
            match events.receiver.recv_timeout(left) {
                Ok(Event::Interrupted) => return Err(Failure::cancelled()),
                Ok(_) => {}
                Err(_) => return Err(self.never_ends(uuid)?),
            }
        }
        Ok(())
    }

    fn never_ends(&self, uuid: Uuid) -> Result<Failure> {
        Ok(
            Failure::new("its start has begun and does not end").help(format!(
                "libvirtd was ended while it started the VM, or is busy with it: end it with \
                 virsh -c '{}' destroy {uuid}, if need be after libvirtd was started again, \
                 and say disklet up again",
                self.address()?
            )),
        )
    }
}
