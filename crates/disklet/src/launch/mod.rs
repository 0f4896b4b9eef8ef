//! `disklet launch`: a VM's launcher, the first process of its pod.
//!
//! ```text
//!   agent --agent--> [events] --> course --> exit code
//!   QEMU  --serial-> console <--> standard input and output
//!   QEMU  --net----> passt, one for each connection
//! ```
//!
//! Threads that may block, each at one thing: nothing that a peer, a reader or
//! a guest does holds the others up.

mod agent;
mod args;
mod backlog;
mod children;
mod console;
mod course;
mod net;
mod reach;
mod signals;
mod sockets;
mod tell;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use disklet_core::launch::protocol::{Ended, How};

pub(crate) use args::LaunchArgs;

use agent::Event;
use children::Children;
use console::Console;
use course::Course;
use net::{Network, Passt};
use reach::Reach;
use sockets::Sockets;
use tell::Teller;

/// Then whoever should read has gone.
const TO_READ_THE_REST: Duration = Duration::from_secs(5);
/// More of a message is not kept by the kubelet.
const MOST_TERMINATION: usize = 4096;

/// Runs it; the exit code.
pub(crate) fn run(args: &LaunchArgs) -> ExitCode {
    let teller = Teller::start();
    let ended = launch(args, &teller).unwrap_or_else(|why| Ended {
        how: How::Failed,
        why,
    });
    teller.tell(&told(&ended));
    if ended.how != How::Off {
        let _ = write_termination(&args.termination_log, &ended.why);
    }
    teller.finish(TO_READ_THE_REST);
    ExitCode::from(ended.how.exit_code())
}

fn launch(args: &LaunchArgs, teller: &Teller) -> Result<Ended, String> {
    let (sender, events) = sync_channel(16);
    let children = Arc::new(Children::default());
    signals::listen(Arc::clone(&children), sender.clone())
        .map_err(|error| format!("signals cannot be listened to: {error}"))?;
    let Sockets {
        agent,
        serial,
        net,
        shown,
    } = Sockets::make(&args.directory)?;
    // A VM without a network has a socket that nobody serves.
    let mut unserved = None;
    match network(args, children, teller)? {
        Some(network) => network.serve(net),
        None => unserved = Some(net),
    }
    let console = Console::serve(serial)
        .map_err(|error| format!("standard input or output cannot be used: {error}"))?;
    agent::listen(agent, sender);
    shown.show()?;
    teller.tell("waiting for the agent of this node");
    let ended = course(args, teller, &events);
    shown.hide();
    drop(unserved);
    console.finish(TO_READ_THE_REST);
    Ok(ended)
}

fn course(args: &LaunchArgs, teller: &Teller, events: &Receiver<Event>) -> Ended {
    let grace = Duration::from_secs(args.grace.into());
    Course::new(grace, teller.clone()).run(events)
}

/// The network, if the VM has one, and it works.
fn network(
    args: &LaunchArgs,
    children: Arc<Children>,
    teller: &Teller,
) -> Result<Option<Network>, String> {
    if args.no_network {
        return Ok(None);
    }
    let reach = Reach {
        tcp: args.tcp_ports.clone(),
        udp: args.udp_ports.clone(),
    };
    let reach = reach.here(teller);
    let passt = Passt {
        program: args.passt.clone(),
        tcp_ports: reach.tcp.to_string(),
        udp_ports: reach.udp.to_string(),
    };
    passt.trial(&children)?;
    Ok(Some(Network {
        passt,
        children,
        teller: teller.clone(),
    }))
}

fn told(ended: &Ended) -> String {
    let how = match ended.how {
        How::Off => "the VM is off",
        How::Crashed => "the VM has crashed",
        How::Killed => "the VM was ended by force",
        How::Refused => "the VM was refused",
        How::Failed => "the VM could not be started",
    };
    match ended.why.as_str() {
        "" => how.to_owned(),
        why => format!("{how}: {why}"),
    }
}

/// The kubelet makes the file; elsewhere there is none.
fn write_termination(path: &Path, why: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    let end = why.floor_char_boundary(MOST_TERMINATION);
    file.write_all(&why.as_bytes()[..end])
}
