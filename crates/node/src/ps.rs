//! `ps`: the VMs of this machine.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use disklet::vms::{PsArgs, PsOutput};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Phase, Record, Records};
use crate::vms::configuration;

/// A VM as programs see it.
#[derive(Debug, Serialize)]
struct Shown<'r> {
    namespace: &'r str,
    name: &'r str,
    uuid: String,
    state: &'static str,
    disks: usize,
    created: u64,
}

pub(crate) fn ps(args: &PsArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let records = Records::of(&config.data_dir).list()?;
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
            disks: record.disks,
            created: record.created,
        });
    }
    match args.output {
        PsOutput::Table => Ok(table(&shown, false)),
        PsOutput::Wide => Ok(table(&shown, true)),
        PsOutput::Json => serde_json::to_string_pretty(&shown)
            .map(|text| text + "\n")
            .map_err(|error| Failure::new("the list cannot be written").because(error)),
    }
}

/// What a VM does, in a word.
pub(crate) fn state(libvirt: Option<&Libvirt>, record: &Record) -> Result<&'static str> {
    let running = match libvirt {
        Some(libvirt) => libvirt.is_running(record.uuid)?,
        None => None,
    };
    Ok(match (running, record.phase) {
        (Some(true), _) => "running",
        (_, Phase::Preparing | Phase::Releasing) => "incomplete",
        (_, Phase::Kept) => "kept",
        (Some(false), Phase::Ready) => "stopped",
        // Somebody has removed its domain; `up` makes it again.
        (None, Phase::Ready) => "incomplete",
    })
}

fn table(shown: &[Shown<'_>], wide: bool) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let head = ["NAMESPACE", "NAME", "STATE", "DISKS", "AGE", "UUID"].map(str::to_owned);
    let rows = shown.iter().map(|vm| {
        [
            vm.namespace.to_owned(),
            vm.name.to_owned(),
            vm.state.to_owned(),
            vm.disks.to_string(),
            age(now.saturating_sub(vm.created)),
            vm.uuid.clone(),
        ]
    });
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
    let columns = if wide { 6 } else { 5 };
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<_> = widths
            .iter()
            .zip(row)
            .map(|(width, cell)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// As kubectl shows it.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}
