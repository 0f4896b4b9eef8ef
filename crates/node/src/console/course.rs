//! Why a console ends: the user leaves, the VM ends, somebody else takes it, or
//! libvirt goes away.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Session;
use crate::failure::{Failure, Result, unwritten};
use crate::interrupt;
use crate::libvirt::{End, Event, Events, Libvirt};

/// How long the last of a pipe takes to get to the guest: QEMU looks once a
/// second whether somebody is at the other end of its terminal.
const PARTING: Duration = Duration::from_millis(1500);

/// How long the last that was typed before leaving takes to be sent, unless the
/// guest does not read.
const SENDING: Duration = Duration::from_millis(300);

/// How long after the console's end libvirt takes to tell why.
const SETTLING: Duration = Duration::from_secs(2);

/// Why a console has ended without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    /// The user has had enough, or nobody reads any more.
    Left,
    /// The VM runs no more.
    Ended(End),
}

/// What has become of a console so far.
pub(super) struct Course<'c> {
    libvirt: &'c Libvirt,
    /// The console's own.
    apart: &'c Libvirt,
    uuid: Uuid,
    events: Events,
    ended: Option<End>,
    /// Until when what is still on its way is waited for.
    over: Option<Instant>,
}

impl<'c> Course<'c> {
    pub(super) fn new(
        libvirt: &'c Libvirt,
        apart: &'c Libvirt,
        uuid: Uuid,
        events: Events,
    ) -> Self {
        Self {
            libvirt,
            apart,
            uuid,
            events,
            ended: None,
            over: None,
        }
    }

    /// How it has ended, if it has.
    pub(super) fn outcome(&mut self, session: &Session) -> Option<Result<Parting>> {
        while let Ok(event) = self.events.receiver.try_recv() {
            match event {
                Event::Stopped(whose, end) if whose == self.uuid => self.ended = Some(end),
                Event::Lost => return Some(Err(lost())),
                _ => {}
            }
        }
        if let Some(error) = session.unheard.take() {
            return Some(unwritten(error).map(|()| Parting::Left));
        }
        let is_sent = session.to_guest.is_done();
        let detached = session.detached.get();
        let is_off = detached.is_some_and(|since| is_sent || since.elapsed() > SENDING);
        if is_off || interrupt::asked() {
            return Some(Ok(Parting::Left));
        }
        if session.to_guest.has_failed() && !session.closed.get() {
            session.close();
        }
        let has_left = session.left.get() && is_sent;
        match (self.ended, session.closed.get(), has_left) {
            (Some(end), true, _) => Some(Ok(Parting::Ended(end))),
            // What was said last has to come here.
            (Some(end), false, _) if self.is_over(PARTING) => Some(Ok(Parting::Ended(end))),
            // What was typed last has to get to the guest, and its answer back.
            (None, _, true) if self.is_over(PARTING) => Some(Ok(Parting::Left)),
            // Why it was closed, libvirt tells later.
            (None, true, false) if self.is_over(SETTLING) => Some(self.closed()),
            _ => None,
        }
    }

    fn is_over(&mut self, patience: Duration) -> bool {
        let now = Instant::now();
        now > *self.over.get_or_insert(now + patience)
    }

    /// Closed, and no word from libvirt that the VM has ended.
    fn closed(&self) -> Result<Parting> {
        match self.libvirt.end_of(self.uuid)? {
            Some(end) => Ok(Parting::Ended(end)),
            None if !self.apart.is_alive() => Err(Failure::new(
                "libvirt has closed the console: the guest does not read what was typed",
            )
            .help("the VM runs on; disklet console connects again")),
            None => Err(Failure::new("somebody else has taken the console over")
                .help("disklet console --force takes it back; the VM runs on")),
        }
    }
}

fn lost() -> Failure {
    Failure::new("libvirt has gone away, and the console with it")
        .help("the VM runs on: connect again once libvirtd answers")
}
