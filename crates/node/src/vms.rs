//! The commands on VMs that are there: `down`, `console`, `gc`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use disklet::manifests::{DiagnosticsFormat, configuration_file};
use disklet::report::report;
use disklet::vms::{ConsoleArgs, DownArgs, GcArgs};
use disklet_core::config::Config;
use disklet_core::diag::{Diagnostics, shortened};

use crate::console::{self, Parting};
use crate::failure::{Failure, Result, say};
use crate::interrupt;
use crate::libvirt::{Events, Libvirt};
use crate::moved::Moved;
use crate::record::{Record, Records};
use crate::verbs::Node;

pub(crate) fn down(args: &DownArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let records = Records::of(&config);
    let all = records.list()?;
    let wanted: Vec<_> = args
        .names
        .iter()
        .map(|name| select(&all, name, &args.namespace))
        .collect::<Result<_>>()
        .map_err(|failure| match args.names.len() {
            1 => failure,
            _ => failure.of("no VM is stopped or removed"),
        })?;
    for record in &wanted {
        refuse_pods(
            record,
            "delete it there: its node's agent then frees what it has, its leases as well",
        )?;
    }
    let (libvirt, events) = Libvirt::open_listening(args.libvirt.connect.as_deref())?;
    interrupt::tell(events.sender.clone());
    let node = Node {
        libvirt: &libvirt,
        config: &config,
        records: &records,
        launcher: None,
        leases: None,
    };
    for record in wanted {
        let name = record.full_name();
        let done = take_down(&node, record, &events, args).map_err(|failure| failure.of(&name))?;
        say(&format!("{name} {done}"))?;
    }
    Ok(String::new())
}

/// VMs of a cluster are its agent's: it alone knows their leases.
pub(crate) fn refuse_pods(record: &Record, instead: &str) -> Result<()> {
    match &record.pod {
        Some(pod) => {
            let name = record.full_name();
            Err(Failure::new(format!("{name}: runs for pod {pod} of a cluster")).help(instead))
        }
        None => Ok(()),
    }
}

/// Stops a VM and removes what was made for it; what became of it.
fn take_down(
    node: &Node<'_>,
    record: &Record,
    events: &Events,
    args: &DownArgs,
) -> Result<&'static str> {
    let held = node.records.hold(record.uuid)?;
    node.libvirt.demand_daemon_of(record)?;
    let moved = node.moved(record, None)?;
    // The next `up` would find the volumes that are kept, and not what was
    // written elsewhere.
    if let (true, Some(moved)) = (args.keep_volumes, moved.first()) {
        return Err(node.explained(record, moved)?);
    }
    node.stop(events, record.uuid, args.grace)
        .map_err(|failure| node.libvirt.if_gone(failure, WHOLE))?;
    let (outcome, done) = match args.keep_volumes {
        true => (
            node.release_but_volumes(&held),
            "stopped, its volumes are kept",
        ),
        false => (node.release(held), "removed"),
    };
    match outcome {
        Ok(()) => {
            tell_left(&moved);
            Ok(done)
        }
        Err(failure) => Err(node.libvirt.if_gone(failure, IN_PART)),
    }
}

/// Files that somebody has put below a VM.
fn tell_left(moved: &[Moved]) {
    for moved in moved {
        let _ = writeln!(
            io::stderr(),
            "notice: {} was not made by disklet, and stays; what was below it is gone",
            moved.to
        );
    }
}

const WHOLE: &str = "nothing of the VM is removed, and it may still run: say disklet down again once libvirtd answers";
const IN_PART: &str =
    "a part of the VM is still there: say disklet down again once libvirtd answers";

pub(crate) fn console(args: &ConsoleArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let all = Records::of(&config).list()?;
    let record = select(&all, &args.name, &args.namespace)?;
    // The console's own loop delivers the events.
    let libvirt = Libvirt::open_for_console(args.libvirt.connect.as_deref())?;
    let name = record.full_name();
    libvirt
        .demand_daemon_of(record)
        .map_err(|failure| failure.of(&name))?;
    if libvirt.is_running(record.uuid)? != Some(true) {
        return Err(Failure::new(format!("{name}: does not run"))
            .help("disklet logs shows what it wrote, disklet up starts it"));
    }
    let apart = Libvirt::open_for_console(args.libvirt.connect.as_deref())?;
    let parting = console::attach(&libvirt, &apart, record.uuid, &name, args.force)
        .map_err(|failure| failure.of(&name))?;
    if let Parting::Ended(end) = parting {
        let _ = writeln!(io::stderr(), "{name} {}", end.in_words());
    }
    Ok(String::new())
}

pub(crate) fn gc(args: &GcArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let libvirt = Libvirt::open(args.libvirt.connect.as_deref())?;
    let records = Records::of(&config);
    let node = Node {
        libvirt: &libvirt,
        config: &config,
        records: &records,
        launcher: None,
        leases: None,
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
    let shown = shortened(&format!("{namespace}/{short}"));
    let mut named = all
        .iter()
        .filter(|record| record.namespace == namespace && record.name == short);
    match (named.next(), named.next()) {
        (Some(record), None) => Ok(record),
        (Some(_), Some(_)) => Err(Failure::new(format!(
            "there are several VMs {shown} on this machine"
        ))
        .help("say its UUID instead, which disklet ps -o wide shows")),
        (None, _) => Err(
            Failure::new(format!("there is no VM {shown} on this machine"))
                .help("disklet ps lists those there are"),
        ),
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
