//! The commands on VMs that are there: `down`, `console`, `logs`, `gc`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use disklet::manifests::{DiagnosticsFormat, configuration_file};
use disklet::report::report;
use disklet::vms::{ConsoleArgs, DownArgs, GcArgs, LogsArgs};
use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;

use crate::console;
use crate::failure::{Failure, Result, say};
use crate::interrupt;
use crate::libvirt::Libvirt;
use crate::record::{Record, Records};
use crate::serial::SerialLog;
use crate::verbs::Node;

pub(crate) fn down(args: &DownArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let records = Records::of(&config.data_dir);
    let all = records.list()?;
    let wanted: Vec<_> = args
        .names
        .iter()
        .map(|name| select(&all, name, &args.namespace))
        .collect::<Result<_>>()?;
    let (libvirt, events) = Libvirt::open_listening(args.libvirt.connect.as_deref())?;
    interrupt::tell(events.sender.clone());
    let node = Node {
        libvirt: &libvirt,
        config: &config,
        records: &records,
    };
    for record in wanted {
        let name = record.full_name();
        let held = records.hold(record.uuid)?;
        node.demand_same_daemon(record)
            .map_err(|failure| failure.of(&name))?;
        node.stop(&events, record.uuid, args.grace)
            .map_err(|failure| failure.of(&name))?;
        if args.keep_volumes {
            node.release_but_volumes(&held)
                .map_err(|failure| failure.of(&name))?;
            say(&format!("{name} stopped, its volumes are kept"))?;
        } else {
            node.release(held).map_err(|failure| failure.of(&name))?;
            say(&format!("{name} removed"))?;
        }
    }
    Ok(String::new())
}

pub(crate) fn console(args: &ConsoleArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let all = Records::of(&config.data_dir).list()?;
    let record = select(&all, &args.name, &args.namespace)?;
    // The console's own loop delivers the events.
    virt::event::event_register_default_impl()
        .map_err(|error| Failure::new("libvirt's events cannot be had").because(error))?;
    let libvirt = Libvirt::open(args.libvirt.connect.as_deref())?;
    let name = record.full_name();
    if libvirt.is_running(record.uuid)? != Some(true) {
        return Err(Failure::new(format!("{name}: does not run"))
            .help("disklet logs shows what it wrote, disklet up starts it"));
    }
    console::attach(&libvirt, record.uuid, &name, args.force)
        .map_err(|failure| failure.of(&name))?;
    Ok(String::new())
}

pub(crate) fn logs(args: &LogsArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let all = Records::of(&config.data_dir).list()?;
    let record = select(&all, &args.name, &args.namespace)?;
    let log = SerialLog::of(&config.data_dir, record.uuid);
    let failed = |error| {
        Failure::new(format!("{}: its log cannot be read", record.full_name())).because(error)
    };
    let parts = log.parts();
    let mut out = io::stdout().lock();
    let (older, current) = parts.split_at(parts.len() - 1);
    for part in older {
        copy(part, &mut out).map_err(failed)?;
    }
    if args.follow {
        log.follow(|bytes| out.write_all(bytes).and_then(|()| out.flush()).is_ok())
            .map_err(failed)?;
    } else {
        for part in current {
            copy(part, &mut out).map_err(failed)?;
        }
    }
    Ok(String::new())
}

/// A part that is not there yet has nothing in it; a reader that has gone away
/// wants no more.
fn copy(from: &Path, to: &mut impl Write) -> io::Result<()> {
    let outcome = File::open(from).and_then(|mut file| io::copy(&mut file, to));
    match outcome {
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::BrokenPipe
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

pub(crate) fn gc(args: &GcArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let libvirt = Libvirt::open(args.libvirt.connect.as_deref())?;
    let records = Records::of(&config.data_dir);
    let node = Node {
        libvirt: &libvirt,
        config: &config,
        records: &records,
    };
    let removed = node.reconcile()?;
    let mut text = String::new();
    for name in removed {
        let _ = writeln!(text, "{name} was half made or half removed, and is removed");
    }
    Ok(text)
}

/// The VM of a name, as NAME or NAMESPACE/NAME, or of a UUID.
pub(crate) fn select<'r>(all: &'r [Record], name: &str, namespace: &str) -> Result<&'r Record> {
    if let Some(record) = all.iter().find(|record| record.uuid.to_string() == name) {
        return Ok(record);
    }
    let (namespace, short) = name.split_once('/').unwrap_or((namespace, name));
    let mut named = all
        .iter()
        .filter(|record| record.namespace == namespace && record.name == short);
    match (named.next(), named.next()) {
        (Some(record), None) => Ok(record),
        (Some(_), Some(_)) => Err(Failure::new(format!(
            "there are several VMs {namespace}/{short} on this machine"
        ))
        .help("say its UUID instead, which disklet ps -o wide shows")),
        (None, _) => Err(Failure::new(format!(
            "there is no VM {namespace}/{short} on this machine"
        ))
        .help("disklet ps lists those there are")),
    }
}

pub(crate) fn configuration(path: Option<&Path>) -> Result<Config> {
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
