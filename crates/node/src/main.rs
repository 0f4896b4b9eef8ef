//! `disklet-node`: carries plans out on this machine. Usually `disklet` starts
//! it; it is the only program that links libvirt.

mod console;
mod cut;
mod describe;
mod differences;
mod disk_names;
mod executor;
mod failure;
mod interrupt;
mod kept;
mod libvirt;
mod logs;
mod placing;
mod plans;
mod ps;
mod record;
mod rivals;
mod serial;
mod taken;
mod trial;
mod up;
mod verbs;
mod vms;
mod wait;

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
    interrupt::listen();
    // QEMU's user passes through our directories, whatever the user's habit.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let outcome = match &command {
        VmCommand::Up(args) => up::up(args),
        VmCommand::Down(args) => vms::down(args),
        VmCommand::Ps(args) => ps::ps(args),
        VmCommand::Describe(args) => describe::describe(args),
        VmCommand::Console(args) => vms::console(args),
        VmCommand::Logs(args) => logs::logs(args),
        VmCommand::Gc(args) => vms::gc(args),
    };
    match outcome {
        Ok(text) => disklet::report::finish(io::stdout().write_all(text.as_bytes()), "the answer"),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.exit_code())
        }
    }
}
