//! `disklet-node`: carries plans out on this machine. Usually `disklet` starts
//! it; it is the only program that links libvirt.

mod cut;
mod executor;
mod failure;
mod libvirt;
mod record;
mod up;
mod vms;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use disklet::vms::VmCommand;

/// Runs the VMs of this machine.
#[derive(Debug, Parser)]
#[command(name = "disklet-node", version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: VmCommand,
}

fn main() -> ExitCode {
    let Args { command } = Args::parse();
    let outcome = match &command {
        VmCommand::Up(args) => up::up(args),
        VmCommand::Down(args) => vms::down(args),
        VmCommand::Ps(args) => vms::ps(args),
    };
    match outcome {
        Ok(text) => disklet::report::finish(io::stdout().write_all(text.as_bytes()), "the answer"),
        Err(failure) => {
            failure.tell();
            ExitCode::from(1)
        }
    }
}
