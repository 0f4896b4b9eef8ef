//! `disklet`: virtual-machine disks for Kubernetes, from the command line.

mod args;
mod controller;
mod crd;
mod handover;
mod image;
mod images;
mod install;
mod launch;
mod plan;
mod plugin;
mod populate;
mod refusal;
mod registry;
mod serve;
mod uninstall;
mod upload;
mod webhook;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command};
use disklet::report;

fn main() -> ExitCode {
    if let Some(called) = plugin::called() {
        return plugin::run(called);
    }
    let Args { command } = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report::misused(&error, code_of_misuse()),
    };
    match command {
        Command::Plan(args) => plan::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Populate(args) => populate::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Upload(args) => upload::run(&args),
        Command::Launch(args) => launch::run(&args),
        Command::Controller(args) => controller::run(&args),
        Command::Crd(args) => crd::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Vm(_) => handover::hand_over(),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "disklet", &mut script);
            report::print(&script, "the script")
        }
    }
}

/// Where 2 means a corrupt image, a slip of the pen must not.
fn code_of_misuse() -> u8 {
    let is_check = std::env::args_os().skip(1).take(2).eq(["image", "check"]);
    if is_check { 1 } else { 2 }
}
