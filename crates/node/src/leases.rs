//! `leases`: who of this machine's VMs uses storage that others can use as well.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use disklet::shown::{age, table};
use disklet::vms::{LeasesArgs, LeasesCommand, PsOutput};
use serde::Serialize;
use uuid::Uuid;

use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Leased, Made, Phase, Record, Records};
use crate::verbs::Node;
use crate::vms::configuration;

/// A lease as programs see it.
#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    storage: String,
    access: String,
    namespace: String,
    name: String,
    uuid: Uuid,
    /// Seconds since 1970: when it was taken.
    since: u64,
    state: State,
    why: String,
    /// The Lease object by which other nodes know.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
}

/// Whether a lease keeps others out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It does: the VM runs, or somebody works on it.
    Live,
    /// It does: nobody here can ask whether the VM runs.
    Unknown,
    /// It keeps out who would write: the VM is off, and has an overlay over it.
    Kept,
    /// It does not: the VM is off.
    Stale,
    /// It does not: somebody has released it, and the VM may run.
    Released,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Unknown => "unknown",
            Self::Kept => "kept",
            Self::Stale => "stale",
            Self::Released => "released",
        }
    }
}

pub(crate) fn leases(args: &LeasesArgs) -> Result<String> {
    let (config, libvirt) = match &args.command {
        LeasesCommand::Ls(args) => (&args.config, &args.libvirt),
        LeasesCommand::Release(args) => (&args.config, &args.libvirt),
    };
    let config = configuration(config.as_deref())?;
    let records = Records::of(&config);
    let all = records.list()?;
    // Without VMs there is nothing to ask libvirt.
    let libvirt = match all.is_empty() {
        true => None,
        false => Some(Libvirt::open(libvirt.connect.as_deref())?),
    };
    let node = libvirt.as_ref().map(|libvirt| Node {
        libvirt,
        config: &config,
        records: &records,
        launcher: None,
        leases: None,
    });
    let shown = match &node {
        Some(node) => node.leases_of(&all)?,
        None => Vec::new(),
    };
    match &args.command {
        LeasesCommand::Ls(args) => list(&shown, args.output),
        LeasesCommand::Release(args) => {
            let lease = select(&shown, &args.id)?;
            match &node {
                Some(node) => node.release_lease(lease, args.force),
                None => Ok(String::new()),
            }
        }
    }
}

/// Whether a lease keeps others out, and why.
type Standing = (State, String);

impl Node<'_> {
    fn leases_of(&self, records: &[Record]) -> Result<Vec<Shown>> {
        let mut shown = Vec::new();
        for record in records {
            let works = record.phase != Phase::Kept && self.records.is_held(record.uuid);
            let vm = match works {
                true => (State::Live, "a command works on the VM".to_owned()),
                false => self.of_idle(record)?,
            };
            shown.extend(self.shown_of(record, &vm));
        }
        Ok(shown)
    }

    /// How the leases of a VM are that nobody works on, or whoever asks.
    fn of_idle(&self, record: &Record) -> Result<Standing> {
        let said = |state, why: &str| Ok((state, why.to_owned()));
        if record.phase == Phase::Kept {
            return said(State::Stale, "only the VM's volumes are kept");
        }
        if self.libvirt.address()? != record.libvirt {
            let why = format!("the VM is at another daemon, {}", record.libvirt);
            return Ok((State::Unknown, why));
        }
        match self.libvirt.is_running(record.uuid)? {
            Some(true) => said(State::Live, "the VM runs"),
            Some(false) => said(State::Stale, "the VM is off"),
            None => said(State::Stale, "libvirt does not have the VM"),
        }
    }

    /// The same of one of them.
    fn standing(&self, record: &Record, made: &Made, vm: &Standing) -> Standing {
        let (state, why) = vm;
        if record.has_released(made) {
            return (State::Released, format!("by force; {why}"));
        }
        let upon = match state {
            State::Stale => self.disk_upon(record, made),
            _ => None,
        };
        match upon {
            Some(disk) => (
                State::Kept,
                format!("{why}, and its disk {disk} is over it"),
            ),
            None => vm.clone(),
        }
    }

    fn shown_of(&self, record: &Record, vm: &Standing) -> Vec<Shown> {
        let leased = record.made.iter().filter_map(|made| {
            let Leased {
                storage,
                access,
                object,
            } = made.leased()?;
            let (state, why) = self.standing(record, made, vm);
            let since = record.taken(made);
            Some(Shown {
                id: made.lease_id(record.uuid)?,
                storage,
                access: access.to_owned(),
                namespace: record.namespace.clone(),
                name: record.name.clone(),
                uuid: record.uuid,
                since: since.unwrap_or_else(|| self.records.since(record.uuid)),
                state,
                why,
                object: object.map(str::to_owned),
            })
        });
        // Two disks of a VM may have one. It is kept for either.
        let mut shown: Vec<Shown> = Vec::new();
        for lease in leased {
            match shown.iter_mut().find(|other| other.id == lease.id) {
                Some(other) if lease.state == State::Kept => *other = lease,
                Some(_) => {}
                None => shown.push(lease),
            }
        }
        shown
    }
}

fn list(shown: &[Shown], output: PsOutput) -> Result<String> {
    match output {
        PsOutput::Table => Ok(shown_table(shown, 6)),
        PsOutput::Wide => Ok(shown_table(shown, 8)),
        PsOutput::Json => serde_json::to_string_pretty(shown)
            .map(|text| text + "\n")
            .map_err(|error| Failure::new("the list cannot be written").because(error)),
    }
}

fn shown_table(shown: &[Shown], columns: usize) -> String {
    let head = [
        "ID", "STORAGE", "ACCESS", "VM", "STATE", "SINCE", "WHY", "UUID",
    ];
    let rows = shown.iter().map(|lease| {
        vec![
            lease.id.clone(),
            lease.storage.clone(),
            lease.access.clone(),
            format!("{}/{}", lease.namespace, lease.name),
            lease.state.name().to_owned(),
            age(UNIX_EPOCH + Duration::from_secs(lease.since)),
            lease.why.clone(),
            lease.uuid.to_string(),
        ]
    });
    let head = head.map(str::to_owned).to_vec();
    let mut lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    for line in &mut lines {
        line.truncate(columns);
    }
    table(&lines, &[])
}

impl Node<'_> {
    fn release_lease(&self, lease: &Shown, force: bool) -> Result<String> {
        let vm = format!("{}/{}", lease.namespace, lease.name);
        let storage = &lease.storage;
        if lease.object.is_some() {
            return Err(Failure::new(format!("{storage} is leased to VM {vm} by the cluster"))
                .help("delete the VM there; SEMANTICS.md, On a cluster, says what to do if its node is lost"));
        }
        if lease.state == State::Released {
            return Ok(format!("{} {storage} was released before\n", lease.id));
        }
        lease.demand_force(force)?;
        let held = self.records.hold(lease.uuid)?;
        let Some(mut record) = held.read()? else {
            return Err(Failure::new(format!(
                "VM {vm} is gone, and its leases with it"
            )));
        };
        // Whoever had it until now may have started the VM.
        let now = self.shown_of(&record, &self.of_idle(&record)?);
        let Some(now) = now.iter().find(|now| now.id == lease.id) else {
            return Err(Failure::new(format!("VM {vm} has {storage} no more")));
        };
        now.demand_force(force)?;
        record.released.push(lease.id.clone());
        held.write(&record)?;
        if let Some(warning) = now.warning() {
            let _ = writeln!(io::stderr(), "warning: {warning}");
        }
        Ok(format!("{} {storage} released\n", lease.id))
    }
}

impl Shown {
    /// Refuses to release by a slip what keeps others out.
    fn demand_force(&self, force: bool) -> Result<()> {
        let vm = format!("{}/{}", self.namespace, self.name);
        let harm = match self.state {
            State::Stale | State::Released => return Ok(()),
            _ if force => return Ok(()),
            State::Kept => format!(
                "disklet down {vm} removes that disk and releases it; --force releases it all \
                 the same: whoever writes there destroys that disk"
            ),
            State::Live | State::Unknown => format!(
                "disklet down {vm} ends the VM and releases it; --force releases it all the same: \
                 two VMs that write to one disk destroy it"
            ),
        };
        let (storage, why) = (&self.storage, &self.why);
        Err(Failure::new(format!("{storage} is leased to VM {vm}: {why}")).help(harm))
    }

    /// What may become of it, once it was released.
    fn warning(&self) -> Option<String> {
        let vm = format!("{}/{}", self.namespace, self.name);
        let (storage, why) = (&self.storage, &self.why);
        match self.state {
            State::Stale | State::Released => None,
            State::Kept => Some(format!(
                "VM {vm} was not removed ({why}): if another VM writes to {storage}, what that disk \
                 has is destroyed\n  help: disklet down {vm} removes it, if nobody needs it"
            )),
            State::Live | State::Unknown => Some(format!(
                "VM {vm} was not ended ({why}): if it still writes to {storage} and another VM \
                 does as well, what is on it is destroyed\n  help: make sure that it cannot write any \
                 more before you start another VM with this storage"
            )),
        }
    }
}

/// Fewer characters of an ID are too easily those of another.
const FEWEST: usize = 4;

/// The lease of an ID, or of the beginning of one.
fn select<'s>(shown: &'s [Shown], wanted: &str) -> Result<&'s Shown> {
    let mut found = shown
        .iter()
        .filter(|lease| !wanted.is_empty() && lease.id.starts_with(wanted));
    match (found.next(), found.next()) {
        (Some(_), _) if wanted.len() < FEWEST => Err(Failure::new(format!(
            "{wanted} is too short for the ID of a lease"
        ))
        .help("say at least 4 characters of the ID, which disklet leases ls shows")),
        (Some(lease), None) => Ok(lease),
        (Some(_), Some(_)) => Err(Failure::new(format!("several leases begin with {wanted}"))
            .help("say more of the ID, which disklet leases ls shows")),
        (None, _) => Err(
            Failure::new(format!("there is no lease {wanted:?} on this machine"))
                .help("disklet leases ls lists those there are"),
        ),
    }
}
