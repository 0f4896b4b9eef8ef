//! libvirt, as far as VMs need it.

mod capabilities;
mod daemon;
mod disks;
mod events;
mod ffi;
mod live;
mod nodes;
mod pools;
mod rivals;
mod secrets;
mod starting;

use std::time::{Duration, Instant};

use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::{
    Domain, DomainPausedReason, DomainState, DomainStateReason, DomainStateReasonEnum,
};
use virt::enumutil::Enum;
use virt::error::{Error, ErrorNumber};
use virt::stream::Stream;
use virt::sys;

use crate::failure::{Failure, Result};
use crate::record::Record;

pub(crate) use capabilities::QemuUser;
pub(crate) use disks::{DomainDisk, disks_in};
pub(crate) use events::{End, Event, Events, Pause};
pub(crate) use nodes::{BlockNode, Storage};
pub(crate) use pools::pool_uuid;
pub(crate) use rivals::Known;

/// A connection to a daemon; the same one if it is cloned.
#[derive(Clone)]
pub(crate) struct Libvirt {
    connect: Connect,
}

/// What a domain does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Somebody has stopped it for a while, or QEMU has on an error of a disk.
    Paused,
    /// libvirt is starting it, or was ended while it did.
    Starting,
    Off(End),
}

fn end(reason: &DomainStateReasonEnum) -> End {
    use virt::domain::DomainShutoffReason as Reason;
    match reason {
        Enum::Known(DomainStateReason::Shutoff(Enum::Known(reason))) => match reason {
            Reason::Destroyed => End::Destroyed,
            Reason::Crashed | Reason::Failed => End::Failed,
            Reason::Unknown => End::Unknown,
            _ => End::Shutdown,
        },
        Enum::Known(DomainStateReason::Crashed(_)) => End::Failed,
        _ => End::Shutdown,
    }
}

impl Libvirt {
    /// A daemon that does not answer any more is as one that has gone away.
    pub(crate) fn open(uri: Option<&str>) -> Result<Self> {
        events::deliver()?;
        let connect = daemon::connect(uri)?;
        daemon::notice_silence(&connect);
        Ok(Self { connect })
    }

    /// For whoever runs libvirt's loop themselves. A guest that does not read
    /// what is typed has the daemon not answer on that connection: nobody shall
    /// take that for its end.
    pub(crate) fn open_for_console(uri: Option<&str>) -> Result<Self> {
        events::leave_loop_to_caller()?;
        let connect = daemon::connect(uri)?;
        Ok(Self { connect })
    }

    /// The same, with all that happens from now on.
    pub(crate) fn open_listening(uri: Option<&str>) -> Result<(Self, Events)> {
        let events = Events::new();
        let libvirt = Self::open_telling(uri, &events)?;
        Ok((libvirt, events))
    }

    /// Another connection, whose events go the same way.
    pub(crate) fn open_telling(uri: Option<&str>, events: &Events) -> Result<Self> {
        let libvirt = Self::open(uri)?;
        events::subscribe(&libvirt.connect, events.sender.clone())?;
        Ok(libvirt)
    }

    /// All that happens from now on, for whoever runs libvirt's loop themselves.
    pub(crate) fn listen(&self) -> Result<Events> {
        let events = Events::new();
        events::subscribe(&self.connect, events.sender.clone())?;
        Ok(events)
    }

    /// What to do about a failure, if it came because the daemon has gone away.
    pub(crate) fn if_gone(&self, failure: Failure, help: &str) -> Failure {
        match self.is_alive() {
            true => failure,
            false => failure.help(help),
        }
    }

    /// Whether the daemon is still there.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.connect.is_alive(), Ok(true))
    }

    /// The daemon's address, by which a VM's record knows it again.
    pub(crate) fn address(&self) -> Result<String> {
        self.connect
            .uri()
            .map_err(|error| Failure::new("libvirt does not tell its address").because(error))
    }

    /// Through another daemon a VM's domain is not to be found, and its disks
    /// would be taken from under it.
    pub(crate) fn demand_daemon_of(&self, record: &Record) -> Result<()> {
        let here = self.address()?;
        if record.libvirt == here {
            return Ok(());
        }
        Err(Failure::new(format!(
            "its domain is at {}, not at {here}",
            record.libvirt
        ))
        .help(format!("use --connect '{}'", record.libvirt)))
    }

    /// What a domain does; nothing if it is not defined.
    pub(crate) fn state(&self, uuid: Uuid) -> Result<Option<State>> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(None);
        };
        let state = domain.state().map_err(|error| {
            Failure::new(format!("domain {uuid} cannot be looked at")).because(error)
        })?;
        let is_starting = matches!(
            state.1,
            Enum::Known(DomainStateReason::Paused(Enum::Known(
                DomainPausedReason::StartingUp
            )))
        );
        Ok(Some(match state.0 {
            Enum::Known(DomainState::Paused) if is_starting => State::Starting,
            Enum::Known(DomainState::Paused | DomainState::PMSuspended) => State::Paused,
            Enum::Known(DomainState::Shutoff | DomainState::Crashed) => State::Off(end(&state.1)),
            _ => State::Running,
        }))
    }

    /// Why a guest stands still, if it does.
    pub(crate) fn pause(&self, uuid: Uuid) -> Result<Option<Pause>> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(None);
        };
        let (state, reason) = domain.state().map_err(|error| {
            Failure::new(format!("domain {uuid} cannot be looked at")).because(error)
        })?;
        Ok(match (state, reason) {
            (
                Enum::Known(DomainState::Paused),
                Enum::Known(DomainStateReason::Paused(Enum::Known(DomainPausedReason::IOError))),
            ) => Some(Pause::DiskError),
            (Enum::Known(DomainState::Paused), _) => Some(Pause::Wanted),
            _ => None,
        })
    }

    /// How a domain has ended, if it does not run.
    pub(crate) fn end_of(&self, uuid: Uuid) -> Result<Option<End>> {
        Ok(match self.state(uuid)? {
            Some(State::Running | State::Paused | State::Starting) => None,
            Some(State::Off(end)) => Some(end),
            None => Some(End::Destroyed),
        })
    }

    /// Defines a domain; one of the same UUID takes the new definition.
    pub(crate) fn define(&self, name: &str, xml: &str) -> Result<()> {
        self.connect
            .define_domain_xml(xml)
            .map(drop)
            .map_err(|error| {
                Failure::new(format!("domain {name} cannot be defined")).because(error)
            })
    }

    /// Starts a domain, unless it runs; paused, its guest does not run yet.
    pub(crate) fn start(&self, uuid: Uuid, paused: bool) -> Result<()> {
        let failed = |error: Error| {
            let unexplained = is_unexplained(error.message());
            let failure = Failure::new("the VM cannot be started").because(error);
            match unexplained {
                true => failure.unexplained(),
                false => failure,
            }
        };
        let Some(domain) = self.find(uuid)? else {
            return Err(Failure::new("the VM's domain is gone"));
        };
        if domain.is_active().map_err(failed)? {
            return Ok(());
        }
        // Without a process there is nothing to wait for.
        let flags = match paused && self.has_processes() {
            true => sys::VIR_DOMAIN_START_PAUSED,
            false => 0,
        };
        let started = domain.create_with_flags(flags).map(drop).map_err(failed);
        started.map_err(|failure| match is_too_large(&domain) {
            true => failure.help(
                "the VM has more memory than this machine: give it less, by the memory limit of \
                 its container or the memory of its domain",
            ),
            false => failure,
        })
    }

    /// Ends a domain, also one that is being started; whether there was anything to end.
    pub(crate) fn destroy(&self, uuid: Uuid) -> Result<bool> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(false);
        };
        match domain.destroy() {
            Ok(()) => Ok(true),
            Err(error) if error.code().is(ErrorNumber::OperationInvalid) => Ok(false),
            Err(error) => Err(Failure::new("the VM cannot be ended").because(error)),
        }
    }

    /// Lets a paused guest run.
    pub(crate) fn resume(&self, uuid: Uuid) -> Result<()> {
        let failed = |error| Failure::new("the VM cannot go on").because(error);
        let Some(domain) = self.find(uuid)? else {
            return Err(Failure::new("the VM's domain is gone"));
        };
        match self.state(uuid)? {
            Some(State::Paused) => domain.resume().map(drop).map_err(failed),
            _ => Ok(()),
        }
    }

    /// Whether domains are processes; libvirt's test driver has them in memory.
    pub(crate) fn has_processes(&self) -> bool {
        self.connect
            .driver_type()
            .map_or(true, |driver| driver == "QEMU")
    }

    /// The QEMU of a running domain, by libvirt's own note of it.
    pub(crate) fn process_of(notes: &str, name: &str, uuid: Uuid) -> Result<u32> {
        let note = format!("{notes}/{name}.pid");
        let unknown = || {
            Failure::new("the VM's QEMU process is not known").help(format!(
                "{note} does not name it: libvirt must be that of this node"
            ))
        };
        let text = std::fs::read_to_string(&note).map_err(|error| unknown().because(error))?;
        let process: u32 = text.trim().parse().map_err(|_| unknown())?;
        let arguments = std::fs::read(format!("/proc/{process}/cmdline"));
        let arguments = arguments.map_err(|error| unknown().because(error))?;
        let uuid = uuid.to_string();
        let is_it = arguments
            .split(|byte| *byte == 0)
            .any(|it| it == uuid.as_bytes());
        is_it.then_some(process).ok_or_else(unknown)
    }

    /// Whether a domain runs; nothing if it is not defined.
    pub(crate) fn is_running(&self, uuid: Uuid) -> Result<Option<bool>> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(None);
        };
        let running = domain.is_active().map_err(|error| {
            Failure::new(format!("domain {uuid} cannot be looked at")).because(error)
        })?;
        Ok(Some(running))
    }

    /// Runs a domain that ends with this connection, and that libvirt forgets.
    pub(crate) fn run_once(&self, xml: &str) -> Result<()> {
        self.connect
            .create_domain_xml(xml, sys::VIR_DOMAIN_START_AUTODESTROY)
            .map(drop)
            .map_err(|error| Failure::new("a domain cannot be started").because(error))
    }

    /// Asks a guest to switch itself off. Whether it heard is another question.
    pub(crate) fn ask_to_stop(&self, uuid: Uuid) -> Result<()> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(());
        };
        gone_is_good(domain.shutdown())
            .map_err(|error| Failure::new("the guest cannot be asked to stop").because(error))
    }

    /// A stream from and to a domain's serial console, which never waits.
    pub(crate) fn open_console(&self, uuid: Uuid, force: bool) -> Result<Stream> {
        let failed = |error| {
            Failure::new("its console cannot be opened")
                .because(error)
                .help("--force takes it over from somebody else")
        };
        let Some(domain) = self.find(uuid)? else {
            return Err(Failure::new("its domain is gone"));
        };
        let stream = Stream::new(&self.connect, sys::VIR_STREAM_NONBLOCK).map_err(failed)?;
        let flags = if force {
            sys::VIR_DOMAIN_CONSOLE_FORCE
        } else {
            0
        };
        // Whoever has just left may still seem to be there.
        let until = Instant::now() + Duration::from_millis(500);
        loop {
            match domain.open_console(None, &stream, flags) {
                Ok(()) => return Ok(stream),
                Err(error)
                    if error.code().is(ErrorNumber::OperationFailed) && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Ends a domain and forgets it. That there is none is as good.
    pub(crate) fn remove(&self, uuid: Uuid) -> Result<()> {
        let failed = |error: Error| {
            let is_busy = error.message().contains("state change lock");
            let failure = Failure::new(format!("domain {uuid} cannot be removed")).because(error);
            match is_busy {
                true => failure.help(BUSY),
                false => failure,
            }
        };
        let Some(domain) = self.find(uuid)? else {
            return Ok(());
        };
        if domain.is_active().map_err(failed)? {
            gone_is_good(domain.destroy()).map_err(failed)?;
        }
        let mut with =
            sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA;
        if self.has_processes() {
            // UEFI variables are a file of ours, and go with the others.
            with |=
                sys::VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA;
        }
        let undefined = domain.undefine_flags(with);
        match undefined {
            Err(error) if !error.code().is(ErrorNumber::NoDomain) => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn find(&self, uuid: Uuid) -> Result<Option<Domain>> {
        match self.connect.lookup_domain_by_uuid_string(&uuid.to_string()) {
            Ok(domain) => Ok(Some(domain)),
            Err(error) if error.code().is(ErrorNumber::NoDomain) => Ok(None),
            Err(error) => {
                Err(Failure::new(format!("domain {uuid} cannot be looked up")).because(error))
            }
        }
    }
}

/// Whether a QEMU that was being started has ended without a reason of its own: libvirt has
/// told it to, or it had no time to say a word. What it says last may come late.
fn is_unexplained(message: &str) -> bool {
    let told = message.split_once("terminating on signal 15 from pid ");
    let by_daemon = told.is_some_and(|(_, by)| by.contains("libvirt") || by.contains("virtqemud"));
    let ends = [
        "process exited while connecting to monitor",
        "qemu unexpectedly closed the monitor",
    ];
    let said = ends.iter().find_map(|end| message.split_once(end));
    by_daemon || said.is_some_and(|(_, words)| words.trim_matches([':', ' ', '\n']).is_empty())
}

/// Whether a domain has more memory than there is: how QEMU fails then depends on
/// when it does.
fn is_too_large(domain: &Domain) -> bool {
    let machine = rustix::system::sysinfo();
    let bytes = u128::from(machine.totalram) * u128::from(machine.mem_unit);
    let wanted = domain.max_memory().unwrap_or(0);
    u128::from(wanted) * 1024 > bytes
}

/// What to do about a domain that libvirt is busy with.
const BUSY: &str = "libvirtd is busy with the domain, or waits for a QEMU that does not answer: say \
                    disklet down again in a while; if that does not help, end it with virsh \
                    destroy, or start libvirtd again";

/// Somebody else, or the guest itself, was faster.
fn gone_is_good(outcome: std::result::Result<(), Error>) -> std::result::Result<(), Error> {
    outcome.or_else(|error| match error.code() {
        code if code.is(ErrorNumber::NoDomain) || code.is(ErrorNumber::OperationInvalid) => Ok(()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::is_unexplained;

    #[test]
    fn a_qemu_that_says_why_it_ends_is_not_started_again() {
        let closed = "internal error: qemu unexpectedly closed the monitor";
        let exited = "internal error: process exited while connecting to monitor";
        let ended = "qemu-system-x86_64: terminating on signal 15 from pid 11 (/usr/sbin/libvirtd)";
        for message in [closed, exited, &format!("{closed}: {ended}")] {
            assert!(is_unexplained(message), "{message}");
        }
        let lock = "Failed to get \"write\" lock";
        let by_hand = "terminating on signal 15 from pid 4711 (bash)";
        for message in [
            lock,
            &format!("{exited}: {lock}"),
            &format!("{closed}: {by_hand}"),
        ] {
            assert!(!is_unexplained(message), "{message}");
        }
    }
}
