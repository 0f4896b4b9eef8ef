//! `disklet`: virtual-machine disks for Kubernetes, from the command line.

mod args;
mod image;
mod plan;
mod report;
mod style;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command};

fn main() -> ExitCode {
    let Args { command } = Args::parse();
    match command {
        Command::Plan(args) => plan::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "disklet", &mut script);
            report::finish(std::io::stdout().write_all(&script), "the script")
        }
    }
}
