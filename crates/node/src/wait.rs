//! Waiting for VMs: libvirt tells of their ends, their serial logs of their
//! readiness. Nothing is asked again and again.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use disklet::vms::WaitFor;
use uuid::Uuid;

use crate::failure::{Failure, Result};
use crate::libvirt::{End, Event, Events, Libvirt};
use crate::serial::{self, SerialLog};

/// What is waited for, until when.
pub(crate) struct Waiting {
    wanted: WaitFor,
    deadline: Option<Instant>,
    events: Events,
    uri: Option<String>,
    data_dir: String,
}

/// For ever, as far as anybody lives to see.
const LONG: Duration = Duration::from_secs(86400 * 365);

impl Waiting {
    pub(crate) fn new(
        wanted: WaitFor,
        deadline: Option<Instant>,
        events: Events,
        uri: Option<&str>,
        data_dir: &str,
    ) -> Self {
        crate::interrupt::tell(events.sender.clone());
        Self {
            wanted,
            deadline,
            events,
            uri: uri.map(str::to_owned),
            data_dir: data_dir.to_owned(),
        }
    }

    /// Until a VM is ready or has ended. What is told of one that `started` just
    /// now may be about an earlier run, until it is told that it started.
    pub(crate) fn until(
        &mut self,
        libvirt: &Libvirt,
        uuid: Uuid,
        started: bool,
    ) -> Result<&'static str> {
        let mut begun = !started;
        if self.wanted == WaitFor::Ready {
            let log = SerialLog::of(&self.data_dir, uuid);
            let sender = self.events.sender.clone();
            serial::when_ready(log, move || {
                let _ = sender.send(Event::Ready(uuid));
            });
        }
        // It may have ended before; what ends from now on is told.
        if libvirt.is_running(uuid)? != Some(true) {
            return self.ended(End::Shutdown);
        }
        loop {
            match self.next()? {
                Event::Ready(whose) if whose == uuid => return Ok("is ready"),
                Event::Started(whose) if whose == uuid => begun = true,
                Event::Stopped(whose, end) if whose == uuid && begun => return self.ended(end),
                Event::Lost if self.find_again(uuid)? != Some(true) => {
                    return self.ended(End::Shutdown);
                }
                Event::Interrupted => return Err(Failure::cancelled()),
                _ => {}
            }
        }
    }

    fn ended(&self, end: End) -> Result<&'static str> {
        match (self.wanted, end) {
            (WaitFor::Exit, End::Shutdown) => Ok("has ended"),
            (WaitFor::Ready, End::Shutdown) => Err(Failure::new("ended before it was ready")
                .help("disklet logs shows what it wrote to its serial console")),
            (_, End::Destroyed) => Err(Failure::new("was ended by somebody")),
            (_, End::Failed) => Err(Failure::new("has crashed")),
        }
    }

    fn next(&self) -> Result<Event> {
        let left = self.deadline.map_or(LONG, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        match self.events.receiver.recv_timeout(left) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Err(Failure::new(match self.wanted {
                WaitFor::Ready => "is not ready in time",
                WaitFor::Exit => "has not ended in time",
            })
            .help("it runs on; disklet logs shows what it writes, disklet down ends it")),
            Err(RecvTimeoutError::Disconnected) => Ok(Event::Lost),
        }
    }

    /// The daemon was restarted, under running VMs: they are still there, and
    /// what happens from now on is told again.
    fn find_again(&mut self, uuid: Uuid) -> Result<Option<bool>> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match Libvirt::open_listening(self.uri.as_deref()) {
                Ok((libvirt, events)) => {
                    let running = libvirt.is_running(uuid)?;
                    let sender = self.events.sender.clone();
                    forward(events.receiver, sender);
                    // The connection has to live as long as its events.
                    std::mem::forget(libvirt);
                    return Ok(running);
                }
                Err(failure) if Instant::now() > until => return Err(failure),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

fn forward(from: Receiver<Event>, to: std::sync::mpsc::Sender<Event>) {
    std::thread::spawn(move || {
        for event in from {
            if to.send(event).is_err() {
                break;
            }
        }
    });
}
