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
    let said = said(&plugin, before);
    let flags = |command: &clap::Command| {
        let all = command.get_arguments().filter_map(clap::Arg::get_long);
        all.map(|flag| format!("--{flag}")).collect::<Vec<_>>()
    };
    if begun.starts_with('-') {
        let own = said.map(flags).unwrap_or_default();
        return ([own, flags(&plugin)].concat(), NO_FILES);
    }
    let next = said.unwrap_or(&plugin).get_subcommands();
    let next: Vec<_> = next.map(|it| it.get_name().to_owned()).collect();
    match said.map(clap::Command::get_name) {
        _ if !next.is_empty() => (next, NO_FILES),
        Some("validate") => (Vec::new(), USUAL),
        Some("plan")
            if before
                .last()
                .is_some_and(|word| word == "-f" || word == "--filename") =>
        {
            (Vec::new(), USUAL)
        }
        Some("plan" | "describe" | "console") => (names(before), NO_FILES),
        _ => (Vec::new(), NO_FILES),
    }
}

/// The command so far, such as `plan`, or `validate` of `vm-pod`.
fn said<'c>(plugin: &'c clap::Command, before: &[String]) -> Option<&'c clap::Command> {
    let mut words = before.iter();
    let mut said = words.find_map(|word| plugin.find_subcommand(word))?;
    for word in words {
        said = said.find_subcommand(word).unwrap_or(said);
    }
    Some(said)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_commands_are_completed() {
        let completed = |begun: &str, words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            candidates(begun, &words)
        };
        assert!(completed("", &[]).0.contains(&"vm-pod".to_owned()));
        assert_eq!(
            completed("", &["vm-pod"]),
            (vec!["validate".to_owned()], NO_FILES)
        );
        assert_eq!(
            completed("", &["-n", "a", "vm-pod", "validate"]),
            (Vec::new(), USUAL)
        );
        let (flags, _) = completed("--", &["vm-pod", "validate"]);
        for flag in ["--recursive", "--output", "--namespace"] {
            assert!(flags.contains(&flag.to_owned()), "{flag}");
        }
    }
}
