//! `leases`: who of this machine's VMs uses storage that others can use as well.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use disklet::shown::{age, table};
use disklet::vms::{LeasesArgs, LeasesCommand, PsOutput};
use disklet_core::lease;
use disklet_core::plan::Access;
use serde::Serialize;
use uuid::Uuid;

use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Made, Phase, Record, Records};
use crate::taken::known_as;
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
    /// Seconds since 1970: when its VM was last prepared.
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
    let records = Records::of(&configuration(config.as_deref())?);
    let shown = look(&records, libvirt.connect.as_deref())?;
    match &args.command {
        LeasesCommand::Ls(args) => list(&shown, args.output),
        LeasesCommand::Release(args) => {
            let uri = args.libvirt.connect.as_deref();
            release(&records, &shown, &args.id, args.force, uri)
        }
    }
}

fn look(records: &Records, uri: Option<&str>) -> Result<Vec<Shown>> {
    let mut shown = Vec::new();
    let all = records.list()?;
    // Without VMs there is nothing to ask libvirt.
    if all.is_empty() {
        return Ok(shown);
    }
    let libvirt = Libvirt::open(uri)?;
    for record in &all {
        let (state, why) = state(&libvirt, records, record)?;
        let since = records.since(record.uuid);
        shown.extend(shown_of(record, since, state, &why));
    }
    Ok(shown)
}

/// Whether a VM's leases keep others out, and why.
fn state(libvirt: &Libvirt, records: &Records, record: &Record) -> Result<(State, String)> {
    if record.phase != Phase::Kept && records.is_held(record.uuid) {
        return Ok((State::Live, "a command works on the VM".to_owned()));
    }
    state_of_idle(libvirt, record)
}

/// The same of a VM that nobody works on, or whoever asks.
fn state_of_idle(libvirt: &Libvirt, record: &Record) -> Result<(State, String)> {
    let said = |state, why: &str| Ok((state, why.to_owned()));
    if record.phase == Phase::Kept {
        return said(State::Stale, "only the VM's volumes are kept");
    }
    if libvirt.address()? != record.libvirt {
        let why = format!("the VM is at another daemon, {}", record.libvirt);
        return Ok((State::Unknown, why));
    }
    match libvirt.is_running(record.uuid)? {
        Some(true) => said(State::Live, "the VM runs"),
        Some(false) => said(State::Stale, "the VM is off"),
        None => said(State::Stale, "libvirt does not have the VM"),
    }
}

fn shown_of(record: &Record, since: u64, state: State, why: &str) -> Vec<Shown> {
    let leased = record.made.iter().filter_map(|made| {
        let Leased {
            storage,
            access,
            object,
        } = made.leased()?;
        let (state, why) = match record.has_released(made) {
            true => (State::Released, format!("by force; {why}")),
            false => (state, why.to_owned()),
        };
        Some(Shown {
            id: id(record.uuid, made)?,
            storage,
            access: access.to_owned(),
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            uuid: record.uuid,
            since,
            state,
            why,
            object: object.map(str::to_owned),
        })
    });
    // Two disks of a VM may have one.
    let mut shown: Vec<Shown> = Vec::new();
    for lease in leased {
        if !shown.iter().any(|other| other.id == lease.id) {
            shown.push(lease);
        }
    }
    shown
}

/// What somebody has the right to use.
struct Leased<'m> {
    storage: String,
    access: &'m str,
    object: Option<&'m str>,
}

impl Made {
    fn leased(&self) -> Option<Leased<'_>> {
        let alone = Access::WriteExclusive.name();
        let leased = |storage, access, object| {
            Some(Leased {
                storage,
                access,
                object,
            })
        };
        match self {
            Self::Lease {
                storage,
                hosts,
                access,
                object,
            } => {
                let at = match hosts.is_empty() {
                    true => String::new(),
                    false => format!(" at {}", hosts.join(", ")),
                };
                leased(format!("{storage}{at}"), access, object.as_deref())
            }
            Self::Device { number, access, .. } => {
                let access = access.as_deref().unwrap_or(alone);
                leased(format!("device {}", known_as(number)), access, None)
            }
            // A socket of a launcher has no access: it is nobody else's.
            Self::Mount {
                from,
                access: Some(access),
                ..
            } => leased(from.display().to_string(), access, None),
            _ => None,
        }
    }

    /// What it is, whatever it is called today.
    fn identity(&self) -> Option<String> {
        match self {
            Self::Device { number, .. } => Some(format!("device {number}")),
            other => other.leased().map(|leased| leased.storage),
        }
    }
}

/// What a lease is called: the same as long as its VM has it.
fn id(uuid: Uuid, made: &Made) -> Option<String> {
    let hash = lease::hash(&format!("{uuid} {}", made.identity()?));
    Some(hash.chars().take(12).collect())
}

impl Record {
    /// Whether somebody has released it by force.
    pub(crate) fn has_released(&self, made: &Made) -> bool {
        id(self.uuid, made).is_some_and(|id| self.released.contains(&id))
    }

    /// What it gets anew was released by nobody.
    pub(crate) fn take_back(&mut self, made: &[Made]) {
        let new: Vec<_> = made.iter().filter_map(|made| id(self.uuid, made)).collect();
        self.released.retain(|id| !new.contains(id));
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

fn release(
    records: &Records,
    shown: &[Shown],
    wanted: &str,
    force: bool,
    uri: Option<&str>,
) -> Result<String> {
    let lease = select(shown, wanted)?;
    let vm = format!("{}/{}", lease.namespace, lease.name);
    let storage = &lease.storage;
    if lease.object.is_some() {
        return Err(Failure::new(format!("{storage} is leased to VM {vm} by the cluster"))
            .help("delete the VM there; SEMANTICS.md, On a cluster, says what to do if its node is lost"));
    }
    if lease.state == State::Released {
        return Ok(format!("{} {storage} was released before\n", lease.id));
    }
    let refuse_live = |state: State, why: &str| match state != State::Stale && !force {
        true => Err(
            Failure::new(format!("{storage} is leased to VM {vm}: {why}")).help(format!(
                "disklet down {vm} ends the VM and releases it; --force releases it all the same: \
             two VMs that write to one disk destroy it"
            )),
        ),
        false => Ok(()),
    };
    refuse_live(lease.state, &lease.why)?;
    let held = records.hold(lease.uuid)?;
    let Some(mut record) = held.read()? else {
        return Err(Failure::new(format!(
            "VM {vm} is gone, and its leases with it"
        )));
    };
    // Whoever had it until now may have started the VM.
    let (state, why) = state_of_idle(&Libvirt::open(uri)?, &record)?;
    refuse_live(state, &why)?;
    record.released.push(lease.id.clone());
    held.write(&record)?;
    if state != State::Stale {
        let _ = writeln!(
            io::stderr(),
            "warning: VM {vm} was not ended ({why}): if it still writes to {storage} and another VM \
             does as well, what is on it is destroyed\n  help: make sure that it cannot write any \
             more before you start another VM with this storage"
        );
    }
    Ok(format!("{} {storage} released\n", lease.id))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_of_the_vm_and_the_storage() {
        let lease = |storage: &str, access: &str| Made::Lease {
            storage: storage.to_owned(),
            hosts: Vec::new(),
            access: access.to_owned(),
            object: None,
        };
        let id = |vm, made: &Made| id(Uuid::from_u128(vm), made).unwrap();
        let one = id(1, &lease("unit", "read-shared"));
        assert_eq!(one.len(), 12);
        assert_eq!(one, id(1, &lease("unit", "write-shared")));
        assert_ne!(one, id(2, &lease("unit", "read-shared")));
        assert_ne!(one, id(1, &lease("other", "read-shared")));
    }

    #[test]
    fn sockets_are_nobody_elses() {
        let mount = |access: Option<&str>| Made::Mount {
            path: "/run/x".into(),
            from: "/srv/disk.img".into(),
            access: access.map(str::to_owned),
        };
        assert!(mount(None).leased().is_none());
        assert_eq!(
            mount(Some("read-shared")).leased().unwrap().storage,
            "/srv/disk.img"
        );
    }
}
