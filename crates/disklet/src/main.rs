//! `disklet`: virtual-machine disks for Kubernetes, from the command line.

mod args;
mod plan;
mod report;
mod style;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command};

fn main() -> ExitCode {
    let Args { command } = Args::parse();
    match command {
        Command::Plan(args) => plan::run(&args),
        Command::Completion { shell } => {
            let mut command = Args::command();
            clap_complete::generate(shell, &mut command, "disklet", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
    }
}
