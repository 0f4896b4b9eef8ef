//! `kubectl disklet`: this program under the name `kubectl-disklet`, which is how
//! kubectl finds its plugins.

mod cluster;
mod complete;
mod console;
mod describe;
mod flags;
mod gather;
mod leases;
pub(crate) mod names;
mod plan;
mod validate;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use disklet::report;
use disklet_core::names::{Namespace, ObjectName};

use crate::args::Output;
use crate::refusal::Refusal;
use cluster::Cluster;
use flags::KubeArgs;
use validate::VmPodCommand;

/// By which name the program was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    /// As the plugin.
    Plugin,
    /// As what completes the plugin's command line.
    Completer,
}

/// How this program was called, if as a part of kubectl.
pub(crate) fn called() -> Option<Called> {
    let own = std::env::args_os().next()?;
    match Path::new(&own).file_name()?.to_str()? {
        "kubectl-disklet" => Some(Called::Plugin),
        "kubectl_complete-disklet" => Some(Called::Completer),
        _ => None,
    }
}

/// VMs of a cluster, and their disks.
///
/// It sees and does what you may: your kubeconfig says which cluster, and as whom
/// you come. Nothing is changed but by `leases release`.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-disklet",
    bin_name = "kubectl disklet",
    version,
    max_term_width = 100
)]
struct PluginArgs {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    kube: KubeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(PlanArgs),
    Describe(DescribeArgs),
    Console(ConsoleArgs),
    Leases(leases::LeasesArgs),
    /// VM pods: ordinary Pods that are VMs
    VmPod {
        #[command(subcommand)]
        command: VmPodCommand,
    },
    /// Print a completion script for kubectl-disklet itself
    ///
    /// `kubectl disklet` is completed by kubectl's own script: put this program
    /// under the name kubectl_complete-disklet into PATH.
    Completion {
        /// Which shell
        shell: Shell,
    },
}

/// Show what the disks of VMs would be, with what the cluster has
///
/// The VM objects come from files, or from the cluster by their names. The claims,
/// volumes, Secrets, ConfigMaps and Endpoints that they refer to are taken from the
/// files, and else from the cluster, as far as you may read them. What you may not
/// read is said to be "known at launch"; it is not refused for that. The nodes'
/// configuration is that of the ConfigMap disklet-config, if you may read it, or
/// that of --config.
///
/// No node is looked at, nothing is changed, and no secret is shown.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = PLAN_EXAMPLES)]
struct PlanArgs {
    /// VM objects of the cluster
    #[arg(
        value_name = "NAME",
        required_unless_present = "files",
        conflicts_with = "files",
        value_parser = names::object
    )]
    names: Vec<ObjectName>,

    /// Manifests of VMs: a YAML or JSON file, a directory of them, or - for
    /// standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    files: Vec<PathBuf>,

    /// Read directories with all directories below them
    #[arg(short = 'R', long, requires = "files")]
    recursive: bool,

    /// How to show the plan
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    /// Configuration of the nodes (see docs/formats/config.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where Disklet is installed
    #[arg(long, value_name = "NAMESPACE", value_parser = names::namespace, default_value = crate::install::DEFAULT_NAMESPACE)]
    disklet_namespace: Namespace,

    /// How to tell what is wrong
    #[arg(long, value_enum, default_value_t = report_format(), value_name = "FORMAT")]
    diagnostics: disklet::manifests::DiagnosticsFormat,
}

fn report_format() -> disklet::manifests::DiagnosticsFormat {
    disklet::manifests::DiagnosticsFormat::Text
}

/// Show a VM: what it is, how it is, its disks, its pod, and what happened
#[derive(Debug, ClapArgs)]
#[command(after_long_help = DESCRIBE_EXAMPLES)]
struct DescribeArgs {
    /// A VM object
    #[arg(value_parser = names::object)]
    name: ObjectName,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = DescribeOutput::Text)]
    output: DescribeOutput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DescribeOutput {
    /// For people
    Text,
    /// The objects themselves
    Json,
    /// The objects themselves
    Yaml,
}

/// Connect this terminal with a VM's serial console
///
/// Ctrl-] detaches; the VM runs on. It also ends, and says why, when the VM ends
/// or the connection is lost. Whoever else is attached sees and types the same.
/// What is no terminal is read to its end and passed on.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = CONSOLE_EXAMPLES)]
struct ConsoleArgs {
    /// A VM object
    #[arg(value_parser = names::object)]
    name: ObjectName,
}

const PLAN_EXAMPLES: &str = "\
Examples:
  kubectl disklet plan db                     a VM of the cluster
  kubectl disklet plan -f vm.yaml -o tree     before it is applied
  kubectl disklet plan -f vms/ -n prod -o json | jq '.[].disks[] | {name, source}'

Exit code: 0 planned, 1 refused (every reason is on standard error), 2 wrong usage.";

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  kubectl disklet describe db -n prod
  kubectl disklet describe db -o json | jq .vm.status.conditions

Exit code: 0 shown, 1 there is no such VM or it may not be read, 2 wrong usage.";

const CONSOLE_EXAMPLES: &str = "\
Examples:
  kubectl disklet console db
  echo reboot | kubectl disklet console db --context staging -n prod

You need the right to create pods/attach. What was written before is in `kubectl logs NAME`.

Exit code: 0 detached or the VM has ended, 1 not connected or lost, 2 wrong usage.";

/// Does what kubectl's user says.
pub(crate) fn run(called: Called) -> ExitCode {
    if called == Called::Completer {
        return complete::run();
    }
    let args = match PluginArgs::try_parse() {
        Ok(args) => args,
        Err(error) => return report::misused(&error, 2),
    };
    if let Command::Completion { shell } = args.command {
        let mut script = Vec::new();
        clap_complete::generate(
            shell,
            &mut PluginArgs::command(),
            "kubectl-disklet",
            &mut script,
        );
        return report::print(&script, "the script");
    }
    match within_a_runtime(obey(&args)) {
        Ok(code) => code,
        Err(refusal) => refusal.tell(),
    }
}

fn within_a_runtime<T>(work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Refusal::new(format!("no runtime: {error}")))?;
    let done = runtime.block_on(work);
    // Whatever still waits for a key is not waited for.
    runtime.shutdown_background();
    done
}

async fn obey(args: &PluginArgs) -> Result<ExitCode, Refusal> {
    let cluster = Cluster::connect(&args.kube).await?;
    match &args.command {
        Command::Plan(args) => plan::plan(args, &cluster).await,
        Command::Describe(args) => describe::describe(args, &cluster).await,
        Command::Console(args) => console::console(args, &cluster).await,
        Command::Leases(args) => leases::leases(args, &cluster).await,
        Command::VmPod {
            command: VmPodCommand::Validate(args),
        } => validate::validate(args, &cluster).await,
        Command::Completion { .. } => Ok(ExitCode::SUCCESS),
    }
}
