//! `ps`: the VMs of this machine.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use disklet::shown::{age, table};
use disklet::vms::{PsArgs, PsOutput};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::libvirt::{Libvirt, State};
use crate::record::{Phase, Record, Records};
use crate::vms::configuration;

/// A VM as programs see it.
#[derive(Debug, Serialize)]
struct Shown<'r> {
    namespace: &'r str,
    name: &'r str,
    uuid: String,
    state: &'static str,
    libvirt: &'r str,
    disks: usize,
    created: u64,
}

pub(crate) fn ps(args: &PsArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let records = Records::of(&config).list()?;
    // Without VMs there is nothing to ask libvirt.
    let libvirt = match records.is_empty() {
        true => None,
        false => Some(Libvirt::open(args.libvirt.connect.as_deref())?),
    };
    let mut shown = Vec::new();
    for record in &records {
        shown.push(Shown {
            namespace: &record.namespace,
            name: &record.name,
            uuid: record.uuid.to_string(),
            state: state(libvirt.as_ref(), record)?,
            libvirt: &record.libvirt,
            disks: record.disks,
            created: record.created,
        });
    }
    tell_elsewhere(&shown);
    match args.output {
        PsOutput::Table => Ok(shown_table(&shown, false)),
        PsOutput::Wide => Ok(shown_table(&shown, true)),
        PsOutput::Json => serde_json::to_string_pretty(&shown)
            .map(|text| text + "\n")
            .map_err(|error| Failure::new("the list cannot be written").because(error)),
    }
}

/// What a VM's state is called whose daemon was not asked.
const ELSEWHERE: &str = "elsewhere";

/// What a VM does, in a word.
pub(crate) fn state(libvirt: Option<&Libvirt>, record: &Record) -> Result<&'static str> {
    let state = match libvirt {
        // Of those that are kept no daemon has anything.
        Some(libvirt) if record.phase != Phase::Kept && libvirt.address()? != record.libvirt => {
            return Ok(ELSEWHERE);
        }
        Some(libvirt) => libvirt.state(record.uuid)?,
        None => None,
    };
    Ok(match (state, record.phase) {
        (Some(State::Running), _) => "running",
        (Some(State::Paused), _) => "paused",
        (Some(State::Starting), _) => "starting",
        (_, Phase::Preparing | Phase::Releasing) => "incomplete",
        (_, Phase::Kept) => "kept",
        (Some(State::Off(_)), Phase::Ready | Phase::Running) => "stopped",
        // Somebody has removed its domain; `up` makes it again.
        (None, Phase::Ready | Phase::Running) => "incomplete",
    })
}

/// Tells for each other daemon how to ask it.
fn tell_elsewhere(shown: &[Shown<'_>]) {
    let mut daemons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for vm in shown.iter().filter(|vm| vm.state == ELSEWHERE) {
        let name = format!("{}/{}", vm.namespace, vm.name);
        daemons.entry(vm.libvirt).or_default().push(name);
    }
    for (daemon, vms) in daemons {
        let _ = writeln!(
            io::stderr(),
            "notice: {}: at another daemon, {daemon}\n  help: disklet ps --connect '{daemon}' \
             shows what it does",
            vms.join(", ")
        );
    }
}

fn shown_table(shown: &[Shown<'_>], wide: bool) -> String {
    let head = [
        "NAMESPACE",
        "NAME",
        "STATE",
        "DISKS",
        "AGE",
        "UUID",
        "LIBVIRT",
    ];
    let columns = if wide { 7 } else { 5 };
    let rows = shown.iter().map(|vm| {
        let since = UNIX_EPOCH + Duration::from_secs(vm.created);
        vec![
            vm.namespace.to_owned(),
            vm.name.to_owned(),
            vm.state.to_owned(),
            vm.disks.to_string(),
            age(since),
            vm.uuid.clone(),
            vm.libvirt.to_owned(),
        ]
    });
    let head = head.map(str::to_owned).to_vec();
    let mut lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    for line in &mut lines {
        line.truncate(columns);
    }
    table(&lines, &[3])
}
