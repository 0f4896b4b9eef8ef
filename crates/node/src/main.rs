//! `disklet-node`: carries plans out on this machine. Usually `disklet` starts
//! it; it is the only program that links libvirt.

mod agent;
mod behind;
mod console;
mod cut;
mod describe;
mod differences;
mod disk_names;
mod executor;
mod failure;
mod interrupt;
mod kept;
mod knock;
mod leases;
mod libvirt;
mod live;
mod logs;
mod moved;
mod placing;
mod plans;
mod pools;
mod ps;
mod record;
mod remote;
mod rivals;
mod serial;
mod taken;
mod trial;
mod up;
mod verbs;
mod vms;
mod wait;

use std::process::ExitCode;

use agent::AgentArgs;
use clap::{Parser, Subcommand};
use disklet::report;
use disklet::vms::{PoolsCommand, VmCommand};

/// Runs the VMs of this machine.
#[derive(Debug, Parser)]
#[command(name = "disklet-node", version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Agent(AgentArgs),
    #[command(flatten)]
    Vm(VmCommand),
}

fn main() -> ExitCode {
    let Args { command } = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report::misused(&error, 2),
    };
    interrupt::listen();
    // QEMU's user passes through our directories, whatever the user's habit.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let outcome = match &command {
        Command::Agent(args) => agent::agent(args),
        Command::Vm(VmCommand::Up(args)) => up::up(args),
        Command::Vm(VmCommand::Down(args)) => vms::down(args),
        Command::Vm(VmCommand::Ps(args)) => ps::ps(args),
        Command::Vm(VmCommand::Describe(args)) => describe::describe(args),
        Command::Vm(VmCommand::Console(args)) => vms::console(args),
        Command::Vm(VmCommand::Logs(args)) => logs::logs(args),
        Command::Vm(VmCommand::Leases(args)) => leases::leases(args),
        Command::Vm(VmCommand::Disk(args)) => live::disk(&args.command),
        Command::Vm(VmCommand::Gc(args)) => vms::gc(args),
        Command::Vm(VmCommand::Pools {
            command: PoolsCommand::Ls(args),
        }) => pools::ls(args),
    };
    match outcome {
        Ok(text) => report::print(text.as_bytes(), "the answer"),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.exit_code())
        }
    }
}
