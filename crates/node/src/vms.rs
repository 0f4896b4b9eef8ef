//! `down` and `ps`: the VMs that are there.

use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use disklet::manifests::{DiagnosticsFormat, configuration_file};
use disklet::report::report;
use disklet::vms::{DownArgs, PsArgs, PsOutput};
use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Made, Record, Records};
use crate::up::undo;

pub(crate) fn down(args: &DownArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let records = Records::of(&config.data_dir);
    let all = records.list()?;
    let mut wanted = Vec::new();
    for name in &args.names {
        let (namespace, short) = name
            .split_once('/')
            .unwrap_or((args.namespace.as_str(), name));
        let record = all
            .iter()
            .find(|record| record.namespace == namespace && record.name == short)
            .ok_or_else(|| {
                Failure::new(format!(
                    "there is no VM {namespace}/{short} on this machine"
                ))
                .help("disklet ps lists those there are")
            })?;
        wanted.push(record);
    }
    let libvirt = Libvirt::open(args.libvirt.connect.as_deref())?;
    let mut text = String::new();
    for record in wanted {
        let name = format!("{}/{}", record.namespace, record.name);
        let held = records.hold(record.uuid)?;
        undo(&libvirt, held).map_err(|failure| failure.of(&name))?;
        let _ = writeln!(text, "{name} removed");
    }
    Ok(text)
}

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
    let libvirt = Libvirt::open(args.libvirt.connect.as_deref())?;
    let mut shown = Vec::new();
    for record in &records {
        shown.push(Shown {
            namespace: &record.namespace,
            name: &record.name,
            uuid: record.uuid.to_string(),
            state: match libvirt.is_running(record.uuid)? {
                Some(true) => "running",
                Some(false) => "stopped",
                None => "incomplete",
            },
            disks: disks_of(record),
            created: record.created,
        });
    }
    match args.output {
        PsOutput::Table => Ok(table(&shown)),
        PsOutput::Json => serde_json::to_string_pretty(&shown)
            .map(|text| text + "\n")
            .map_err(|error| Failure::new("the list cannot be written").because(error)),
    }
}

fn disks_of(record: &Record) -> usize {
    let is_file = |made: &&Made| matches!(made, Made::File { .. });
    record.made.iter().filter(is_file).count()
}

fn table(shown: &[Shown<'_>]) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let width = |of: fn(&Shown<'_>) -> usize, least: usize| {
        shown.iter().map(of).max().unwrap_or(0).max(least)
    };
    let namespaces = width(|vm| vm.namespace.len(), 9);
    let names = width(|vm| vm.name.len(), 4);
    let mut text = format!(
        "{:namespaces$}  {:names$}  {:10}  {:>5}  AGE\n",
        "NAMESPACE", "NAME", "STATE", "DISKS"
    );
    for vm in shown {
        let age = age(now.saturating_sub(vm.created));
        let _ = writeln!(
            text,
            "{:namespaces$}  {:names$}  {:10}  {:>5}  {age}",
            vm.namespace, vm.name, vm.state, vm.disks
        );
    }
    text
}

/// As kubectl shows it.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

fn configuration(path: Option<&Path>) -> Result<Config> {
    let mut diags = Diagnostics::default();
    let config = configuration_file(path, &mut diags);
    let errors = diags.errors();
    report(
        &diags.into_sorted(),
        errors,
        DiagnosticsFormat::Text,
        "changed",
    );
    match errors {
        0 => Ok(config),
        _ => Err(Failure::already_told()),
    }
}
