//! Waiting for VMs: libvirt tells of their ends, their serial logs of their
//! readiness. Nothing is asked again and again.

use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

use disklet::vms::WaitFor;
use uuid::Uuid;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::libvirt::{End, Event, Events, Libvirt, State};
use crate::serial::{self, SerialLog};

/// What is waited for, until when.
pub(crate) struct Waiting {
    wanted: WaitFor,
    deadline: Option<Instant>,
    uri: Option<String>,
    data_dir: String,
    events: Events,
    /// The daemon that was there when the first had gone; its events come as
    /// long as it lives.
    again: Option<Libvirt>,
    vms: HashMap<Uuid, Told>,
}

/// What was told of a VM since it was first asked for.
#[derive(Debug, Default)]
struct Told {
    /// What is told of its end is about this run, not about an earlier one.
    begun: bool,
    end: Option<End>,
    ready: bool,
    /// What earlier runs have written to its log.
    log_before: Option<File>,
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
        interrupt::tell(events.sender.clone());
        Self {
            wanted,
            deadline,
            uri: uri.map(str::to_owned),
            data_dir: data_dir.to_owned(),
            events,
            again: None,
            vms: HashMap::new(),
        }
    }

    /// Will be waited for; to be said before it is started. What its log holds
    /// from earlier runs does not count.
    pub(crate) fn expect(&mut self, uuid: Uuid) {
        let log_before = SerialLog::of(&self.data_dir, uuid).at_end();
        self.vms.entry(uuid).or_default().log_before = log_before;
    }

    /// Until a VM is ready or has ended. One that did not have to be `started`
    /// is in the midst of its run.
    pub(crate) fn until(
        &mut self,
        libvirt: &Libvirt,
        uuid: Uuid,
        started: bool,
    ) -> Result<&'static str> {
        let told = self.vms.entry(uuid).or_default();
        told.begun |= !started;
        if self.wanted == WaitFor::Ready {
            let from = told.log_before.take().filter(|_| started);
            let log = SerialLog::of(&self.data_dir, uuid);
            let sender = self.events.sender.clone();
            serial::when_ready(log, from, move || {
                let _ = sender.send(Event::Ready(uuid));
            });
        }
        while let Ok(event) = self.events.receiver.try_recv() {
            self.hear(event, uuid)?;
        }
        // Who ran already may have ended before anybody listened.
        let asked = self.again.as_ref().unwrap_or(libvirt).end_of(uuid)?;
        let told = self.vms.entry(uuid).or_default();
        if let (None, Some(end)) = (told.end, asked) {
            told.end = Some(end);
        }
        loop {
            let told = self.vms.entry(uuid).or_default();
            match (told.ready, told.end) {
                (true, _) => return Ok("is ready"),
                (_, Some(end)) => return self.ended(end),
                _ => {}
            }
            let Some(event) = self.next() else {
                let libvirt = self.again.as_ref().unwrap_or(libvirt);
                return Err(self.late(libvirt.state(uuid).ok().flatten()));
            };
            self.hear(event, uuid)?;
        }
    }

    /// Writes down what was told, of whichever VM.
    fn hear(&mut self, event: Event, waited_for: Uuid) -> Result<()> {
        match event {
            Event::Started(uuid) => {
                let told = self.vms.entry(uuid).or_default();
                (told.begun, told.end) = (true, None);
            }
            Event::Stopped(uuid, end) => {
                let told = self.vms.entry(uuid).or_default();
                told.end = told.begun.then_some(end);
            }
            Event::Paused(_) | Event::Resumed(_) | Event::Removed(_) | Event::Kept(_) => {}
            Event::Ready(uuid) => self.vms.entry(uuid).or_default().ready = true,
            Event::Lost => return self.find_again(waited_for),
            Event::Interrupted => return Err(Failure::cancelled_but("the VMs run on")),
        }
        Ok(())
    }

    fn ended(&self, end: End) -> Result<&'static str> {
        match (self.wanted, end) {
            (WaitFor::Exit, End::Shutdown | End::Unknown) => Ok(end.in_words()),
            (WaitFor::Ready, End::Shutdown | End::Unknown) => {
                Err(Failure::new("ended before it was ready")
                    .help("disklet logs shows what it wrote to its serial console"))
            }
            (_, End::Destroyed) => Err(Failure::new(end.in_words())),
            (_, End::Failed) => Err(Failure::new(end.in_words())
                .help("disklet logs shows what it wrote to its serial console")),
        }
    }

    /// What happens next, in time.
    fn next(&self) -> Option<Event> {
        // A sender is kept here: it is the time that is over.
        self.events.receiver.recv_timeout(self.left()).ok()
    }

    fn left(&self) -> Duration {
        self.deadline.map_or(LONG, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        })
    }

    fn late(&self, state: Option<State>) -> Failure {
        Failure::new(match self.wanted {
            WaitFor::Ready => "is not ready in time",
            WaitFor::Exit => "has not ended in time",
        })
        .help(match state {
            Some(State::Paused) => {
                "it is paused: virsh resume has it go on, unless a disk is full or gone; disklet \
                 logs shows what it wrote, disklet down ends it"
            }
            _ => "it runs on; disklet logs shows what it writes, disklet down ends it",
        })
    }

    /// The daemon was restarted, under running VMs: they are still there, and
    /// what happens from now on is told again.
    fn find_again(&mut self, uuid: Uuid) -> Result<()> {
        let until = Instant::now() + self.left().min(Duration::from_secs(30));
        loop {
            match Libvirt::open_telling(self.uri.as_deref(), &self.events) {
                Ok(libvirt) => {
                    let end = libvirt.end_of(uuid)?;
                    let told = self.vms.entry(uuid).or_default();
                    (told.begun, told.end) = (true, end);
                    self.again = Some(libvirt);
                    return Ok(());
                }
                Err(_) if interrupt::asked() => {
                    return Err(Failure::cancelled_but("the VMs run on"));
                }
                Err(failure) if Instant::now() > until => return Err(failure),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}
