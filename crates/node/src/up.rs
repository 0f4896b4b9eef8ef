//! `up`: manifests in, running VMs out.

use std::fmt::Write;
use std::time::Instant;

use disklet::manifests::look;
use disklet::report::report;
use disklet::store::{Reliance, Store};
use disklet::vms::UpArgs;
use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use disklet_core::facts::Questions;
use disklet_core::plan::{Plan, Step};
use disklet_core::resolve::resolve;

use crate::failure::{Failure, Result};
use crate::interrupt::UntilInterrupted;
use crate::libvirt::Libvirt;
use crate::record::Records;
use crate::trial;
use crate::verbs::Node;
use crate::wait::Waiting;

pub(crate) fn up(args: &UpArgs) -> Result<String> {
    let begun = Instant::now();
    let (config, plans) = plans(args)?;
    let uri = args.libvirt.connect.as_deref();
    let (libvirt, waiting) = match args.wait {
        None => (Libvirt::open(uri)?, None),
        Some(wait) => {
            let (libvirt, events) = Libvirt::open_listening(uri)?;
            let deadline = args.timeout.map(|timeout| begun + timeout);
            let waiting = Waiting::new(wait, deadline, events, uri, &config.data_dir);
            (libvirt, Some(waiting))
        }
    };
    let records = Records::of(&config.data_dir);
    let node = Node {
        libvirt: &libvirt,
        config: &config,
        records: &records,
    };
    let mut text = String::new();
    let mut started = Vec::new();
    for plan in &plans {
        let now = start(&node, plan).map_err(|failure| failure.of(&vm_name(plan)))?;
        let word = if now { "started" } else { "is running" };
        let _ = writeln!(text, "{} {word}", vm_name(plan));
        started.push((plan, now));
    }
    if let Some(mut waiting) = waiting {
        for (plan, now) in started {
            let outcome = waiting.until(&libvirt, plan.uuid, now);
            let outcome = outcome.map_err(|failure| failure.of(&vm_name(plan)))?;
            let _ = writeln!(text, "{} {outcome}", vm_name(plan));
        }
    }
    Ok(text)
}

/// The plans; the images that they rely on stay until the last is dropped,
/// which must not be before the records that name them are durable.
fn plans(args: &UpArgs) -> Result<(Config, Vec<Plan>, Reliance)> {
    let mut diags = Diagnostics::default();
    let mut planned = None;
    if let Some(mut given) = args.manifests.read(None, &mut diags) {
        if diags.errors() == 0 {
            trial::decide(&mut given.config, args.libvirt.connect.as_deref())?;
        }
        let questions = Questions::of(&given.objects);
        let mut facts = look(&questions, &given.config);
        let store = Store::of(&given.config.data_dir);
        let unread = |error| Failure::new("the image store cannot be read").because(error);
        let images = store.rely().map_err(unread)?;
        store.answer(&questions, &mut facts).map_err(unread)?;
        let plans = resolve(&given.objects, &given.config, &facts, &mut diags);
        given.demand_a_vm(&mut diags);
        planned = Some((given.config, plans, images));
    }
    let errors = diags.errors();
    let format = args.manifests.diagnostics;
    report(&diags.into_sorted(), errors, format, "changed");
    match planned {
        Some(planned) if errors == 0 => Ok(planned),
        _ => Err(Failure::already_told()),
    }
}

fn vm_name(plan: &Plan) -> String {
    format!("{}/{}", plan.namespace, plan.name)
}

/// Has a VM run; whether it did not before. Who comes second waits for the
/// first and finds it done.
fn start(node: &Node<'_>, plan: &Plan) -> Result<bool> {
    let held = node.records.hold(plan.uuid)?;
    let before = held.read()?;
    if before.is_some() && node.libvirt.is_running(plan.uuid)? == Some(true) {
        return Ok(false);
    }
    let is_new = before.is_none();
    let held = node.prepare(plan, held, &UntilInterrupted)?;
    if let Err(failure) = node.start(plan, &UntilInterrupted) {
        if is_new {
            node.release(held)?;
        }
        return Err(failure);
    }
    Ok(true)
}
