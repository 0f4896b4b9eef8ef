//! `up`: manifests in, running VMs out.

use std::time::Instant;

use disklet::vms::UpArgs;
use disklet_core::config::Config;
use disklet_core::plan::Plan;

use crate::failure::{Result, say};
use crate::interrupt::UntilInterrupted;
use crate::libvirt::{Libvirt, State};
use crate::plans::{Planned, Request};
use crate::record::{Phase, Records};
use crate::verbs::Node;
use crate::wait::Waiting;

pub(crate) fn up(args: &UpArgs) -> Result<String> {
    let begun = Instant::now();
    let request = Request::read(args)?;
    // A machine that runs no VMs needs no images.
    let (libvirt, mut waiting) = open(args, request.config(), begun)?;
    libvirt.demand_emulator(&request.config().emulator)?;
    let Planned {
        config,
        plans,
        images,
    } = request.plan()?;
    let records = Records::of(&config);
    let node = Node {
        libvirt: &libvirt,
        config: &config,
        records: &records,
        launcher: None,
        leases: None,
    };
    let mut started = Vec::new();
    for plan in &plans {
        if let Some(waiting) = &mut waiting {
            waiting.expect(plan.uuid);
        }
        let outcome = start(&node, plan).map_err(|failure| failure.of(&plan.full_name()))?;
        say(&format!("{} {}", plan.full_name(), outcome.word()))?;
        // What shall not run is not waited for.
        if plan.is_to_run() {
            started.push((plan, outcome == Outcome::Started));
        }
    }
    // The records name the images from here on.
    drop(images);
    if let Some(waiting) = &mut waiting {
        for (plan, now) in started {
            let outcome = waiting.until(&libvirt, plan.uuid, now);
            let outcome = outcome.map_err(|failure| failure.of(&plan.full_name()))?;
            say(&format!("{} {outcome}", plan.full_name()))?;
        }
    }
    Ok(String::new())
}

fn open(args: &UpArgs, config: &Config, begun: Instant) -> Result<(Libvirt, Option<Waiting>)> {
    let uri = args.libvirt.connect.as_deref();
    let Some(wait) = args.wait else {
        return Ok((Libvirt::open(uri)?, None));
    };
    let (libvirt, events) = Libvirt::open_listening(uri)?;
    let deadline = args.timeout.map(|timeout| begun + timeout);
    let waiting = Waiting::new(wait, deadline, events, uri, &config.data_dir);
    Ok((libvirt, Some(waiting)))
}

/// What has become of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Started,
    /// It was running before.
    Running,
    /// It was started before, and somebody or an error of a disk has stopped it
    /// for a while.
    Paused,
    /// All is there, and it shall not run.
    Prepared,
    /// It was running before, and shall not run.
    RunsOn,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Running => "is running",
            Self::Paused => "is paused",
            Self::Prepared => "is prepared and not started: running is false",
            Self::RunsOn => "is running, although running is false: disklet down ends it",
        }
    }
}

/// Has a VM run, if it shall. Who comes second waits for the first and finds it done.
fn start(node: &Node<'_>, plan: &Plan) -> Result<Outcome> {
    let held = node.records.hold(plan.uuid)?;
    let mut before = held.read()?;
    if let Some(record) = &before {
        node.libvirt.demand_daemon_of(record)?;
        node.libvirt.demand_started(plan.uuid)?;
        node.settle(&held)?;
        before = held.read()?;
    }
    if let Some(before) = &before
        && node.libvirt.is_running(plan.uuid)? == Some(true)
    {
        // Were it being removed, that has not come far: it runs.
        node.set_phase(&held, Phase::Ready)?;
        node.tell_differences(plan)?;
        node.tell_moved(before, plan)?;
        return Ok(match node.libvirt.state(plan.uuid)? {
            _ if !plan.is_to_run() => Outcome::RunsOn,
            Some(State::Paused) => Outcome::Paused,
            _ => Outcome::Running,
        });
    }
    node.tell_left_out(plan);
    let held = node.prepare(plan, held, &UntilInterrupted)?;
    match node.start(plan, &held, &UntilInterrupted) {
        Ok(()) if plan.is_to_run() => Ok(Outcome::Started),
        Ok(()) => Ok(Outcome::Prepared),
        Err(failure) if before.is_some() && node.libvirt.is_alive() => Err(failure),
        Err(failure) => Err(node.undone(held, failure)),
    }
}
