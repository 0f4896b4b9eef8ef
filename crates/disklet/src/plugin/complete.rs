//! Completion of `kubectl disklet`: kubectl calls `kubectl_complete-disklet` with
//! the words so far, and reads one candidate a line.

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use kube::ResourceExt;
use kube::api::ListParams;

use disklet::report;

use super::cluster::Cluster;
use super::flags::KubeArgs;
use super::{PluginArgs, within_a_runtime};
use crate::refusal::Refusal;

/// Who presses Tab does not wait longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// No names of files follow (cobra's directive).
const NO_FILES: &str = ":4";
/// The shell's usual completion.
const USUAL: &str = ":0";

pub(super) fn run() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let (begun, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, rest)| (last.as_str(), rest));
    let (mut candidates, directive) = candidates(begun, before);
    candidates.retain(|candidate| candidate.starts_with(begun));
    candidates.push(directive.to_owned());
    report::print((candidates.join("\n") + "\n").as_bytes(), "the candidates")
}

fn candidates(begun: &str, before: &[String]) -> (Vec<String>, &'static str) {
    let plugin = PluginArgs::command();
    let said = before.iter().find_map(|word| plugin.find_subcommand(word));
    let flags = |command: &clap::Command| {
        let all = command.get_arguments().filter_map(clap::Arg::get_long);
        all.map(|flag| format!("--{flag}")).collect::<Vec<_>>()
    };
    if begun.starts_with('-') {
        let own = said.map(flags).unwrap_or_default();
        return ([own, flags(&plugin)].concat(), NO_FILES);
    }
    match said.map(clap::Command::get_name) {
        None => {
            let all = plugin.get_subcommands().map(|it| it.get_name().to_owned());
            (all.collect(), NO_FILES)
        }
        Some("plan")
            if before
                .last()
                .is_some_and(|word| word == "-f" || word == "--filename") =>
        {
            (Vec::new(), USUAL)
        }
        Some("plan" | "describe" | "console") => (names(before), NO_FILES),
        Some(_) => (Vec::new(), NO_FILES),
    }
}

/// The flags alone, wherever they stand.
#[derive(Debug, Parser)]
#[command(ignore_errors = true, disable_help_flag = true)]
struct Flags {
    #[command(flatten)]
    kube: KubeArgs,
    #[arg(trailing_var_arg = false, num_args = 0..)]
    rest: Vec<String>,
}

/// The VMs of the namespace; nobody is told that they cannot be listed.
fn names(before: &[String]) -> Vec<String> {
    let words = ["kubectl-disklet".to_owned()]
        .into_iter()
        .chain(before.iter().cloned());
    let Ok(flags) = Flags::try_parse_from(words) else {
        return Vec::new();
    };
    let names = async {
        let cluster = Cluster::connect(&flags.kube).await?;
        let how = ListParams::default().limit(500);
        let vms = cluster.vms();
        let listed = tokio::time::timeout(PATIENCE, vms.list_metadata(&how)).await;
        let listed = listed.map_err(|_| Refusal::new("no answer"))?;
        let listed = listed.map_err(|error| Refusal::new(error.to_string()))?;
        Ok(listed.items.iter().map(ResourceExt::name_any).collect())
    };
    within_a_runtime(names).unwrap_or_default()
}
