//! `logs`: what a VM has written to its serial console, and goes on to write.

use std::io::{self, Write};
use std::os::fd::AsFd;

use disklet::vms::LogsArgs;
use uuid::Uuid;

use crate::failure::{Failure, Result, unwritten};
use crate::libvirt::{End, Event, Events, Libvirt};
use crate::record::{Record, Records};
use crate::serial::SerialLog;
use crate::vms::{configuration, select};

pub(crate) fn logs(args: &LogsArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let all = Records::of(&config).list()?;
    let record = select(&all, &args.name, &args.namespace)?;
    let name = record.full_name();
    let log = SerialLog::of(&config.data_dir, record.uuid);
    let mut life = args.follow.then(|| Life::of(record));
    let mut refused = None;
    let take = |bytes: &[u8]| {
        let mut out = io::stdout().lock();
        refused = out.write_all(bytes).and_then(|()| out.flush()).err();
        refused.is_none()
    };
    let (outcome, ending) = match life.as_mut().map(|life| (life.has_ended(), life)) {
        None => (log.read(take), None),
        Some((true, _)) => (log.read(take), Some("is not running")),
        Some((false, life)) => {
            let out = io::stdout();
            let outcome = log.follow(out.as_fd(), take, || life.has_ended());
            (outcome, life.end.map(End::in_words))
        }
    };
    outcome
        .map_err(|error| Failure::new(format!("{name}: its log cannot be read")).because(error))?;
    if let Some(error) = refused {
        unwritten(error)?;
    } else if let Some(ending) = ending {
        let _ = writeln!(io::stderr(), "{name} {ending}");
    }
    Ok(String::new())
}

/// Whether a VM still runs, as its daemon tells. While that is away, the VM is
/// taken to run on, as VMs do.
struct Life {
    uuid: Uuid,
    uri: String,
    libvirt: Option<Libvirt>,
    events: Events,
    end: Option<End>,
}

impl Life {
    fn of(record: &Record) -> Self {
        let mut life = Self {
            uuid: record.uuid,
            uri: record.libvirt.clone(),
            libvirt: None,
            events: Events::new(),
            end: None,
        };
        if !life.find_daemon() {
            let _ = writeln!(
                io::stderr(),
                "notice: libvirt at {} does not answer: whether the VM runs is not known",
                life.uri
            );
        }
        life
    }

    fn has_ended(&mut self) -> bool {
        while let Ok(event) = self.events.receiver.try_recv() {
            match event {
                Event::Stopped(whose, end) if whose == self.uuid => self.end = Some(end),
                Event::Lost => self.libvirt = None,
                _ => {}
            }
        }
        if self.libvirt.is_none() {
            self.find_daemon();
        }
        self.end.is_some()
    }

    /// Looks for the daemon and asks it about the VM; whether it answers.
    fn find_daemon(&mut self) -> bool {
        let found = Libvirt::open_telling(Some(&self.uri), &self.events)
            .and_then(|libvirt| Ok((libvirt.end_of(self.uuid)?, libvirt)));
        let Ok((end, libvirt)) = found else {
            return false;
        };
        (self.end, self.libvirt) = (end, Some(libvirt));
        true
    }
}
