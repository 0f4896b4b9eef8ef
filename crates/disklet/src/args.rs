//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use disklet::manifests::ManifestArgs;
use disklet::vms::VmCommand;

use crate::controller::ControllerArgs;
use crate::crd::CrdArgs;
use crate::image::ImageArgs;
use crate::images::ImagesArgs;
use crate::install::InstallArgs;
use crate::launch::LaunchArgs;
use crate::populate::PopulateArgs;
use crate::serve::ServeArgs;
use crate::uninstall::UninstallArgs;
use crate::upload::UploadArgs;

/// Virtual-machine disks for Kubernetes.
///
/// Disklet reads the manifests of VMs, finds out where each disk's bytes come
/// from, and says what has to be done to have them.
#[derive(Debug, Parser)]
#[command(name = "disklet", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Plan(PlanArgs),
    #[command(flatten)]
    Vm(VmCommand),
    Images(ImagesArgs),
    Image(ImageArgs),
    Populate(PopulateArgs),
    Serve(ServeArgs),
    Upload(UploadArgs),
    Launch(LaunchArgs),
    Controller(ControllerArgs),
    Crd(CrdArgs),
    Install(InstallArgs),
    Uninstall(UninstallArgs),
    /// Print a completion script for a shell
    ///
    /// For bash: `disklet completion bash > /etc/bash_completion.d/disklet`
    Completion {
        /// Which shell
        shell: Shell,
    },
}

/// Show what the disks of VMs would be, and change nothing.
///
/// A VM is a Pod with the annotation `kubernetes.io/target-runtime:
/// virtlet.cloud` or with `runtimeClassName: disklet`, or an object of kind VM
/// (see docs/vm-objects.md). The objects that it refers to
/// (PersistentVolumeClaim, PersistentVolume, ConfigMap, Secret, Endpoints) must
/// be in the input as well; its ServiceAccount counts if it is there. Claims
/// without a status are bound as the cluster would bind them.
///
/// The plan shows each VM's disks in order, where their bytes come from, where
/// the guest mounts them, the steps that would be carried out, the libvirt
/// domain and the cloud-init data. Devices, files and the image store (below
/// dataDir of the configuration, and a user's own) are looked at where this
/// runs, and left as they are. What cannot be known yet is said to be "known
/// after pull" or "known on the node".
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_long_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) manifests: ManifestArgs,

    /// How to show the plan
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,

    /// Take what is true of the node from a file instead of looking at this
    /// machine (see docs/formats/node-facts.md)
    #[arg(long, value_name = "FILE", conflicts_with = "offline")]
    pub(crate) facts: Option<PathBuf>,

    /// Do not look at this machine: devices and files are known on the node,
    /// images after pull
    #[arg(long)]
    pub(crate) offline: bool,

    /// Show secrets that go into the guest: the content of Secret volumes,
    /// passwords, keys. (A Ceph key goes to libvirt alone and never shows.)
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Disks as a table, then the steps
    Table,
    /// Disks with the chain of files below each, then the steps
    Tree,
    /// A list of plans
    Json,
    /// A list of plans
    Yaml,
    /// The libvirt domain alone, one document per VM; before each of several, a comment with its name
    Xml,
}

const EXAMPLES: &str = "\
Examples:
  disklet plan -f pod.yaml                      the disks of one VM
  disklet plan -f pod.yaml -f claims/ -o tree   with claims from a directory
  kubectl get pod,pvc,pv,cm -o yaml | disklet plan -f - --offline
                                                plan what a cluster has
  disklet plan -f pod.yaml -o xml | virsh define /dev/stdin
                                                one VM's domain for libvirt; it starts once
                                                the other steps of its plan are done
  disklet plan -f pods/ -o xml | csplit -z - '/^<!-- VM /' '{*}'
                                                several domains, each into a file xxNN
  disklet plan -f pod.yaml -o json | jq '.[].disks[] | {name, target, source}'

Exit code: 0 planned, 1 refused (every reason is on standard error), 2 wrong usage.";
