//! `disklet uninstall`: takes from a cluster what `disklet install` has given it.

mod agentless;
mod cluster;
mod forsaken;
mod held;
mod ours;
mod remove;
mod vms;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use disklet_core::names::Namespace;

use crate::install::DEFAULT_NAMESPACE;
use crate::plugin::names;
use crate::refusal::Refusal;
use cluster::Cluster;

/// Remove Disklet from a cluster.
///
/// Refuses while VMs are on nodes: without agents nobody would end them, free
/// their storage or even see them. Stop them first (`running: false`, or delete
/// them).
///
/// VM objects that do not run stay in the cluster, and with them the definition of
/// VM objects: after a new installation they are there again. Without VM objects
/// the definition goes, too. Finalizers of ours are taken off VM objects and claims,
/// so that they can be deleted, and off nodes the label that agents have put there.
///
/// What stays on the nodes: their data directory (/var/lib/disklet) with the images, and
/// the FlexVolume driver in the kubelet's directory of plugins, which
/// `disklet-flexvolume uninstall DIR` removes.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_long_help = EXAMPLES)]
pub(crate) struct UninstallArgs {
    /// Where it is installed
    #[arg(short, long, value_parser = names::namespace, default_value = DEFAULT_NAMESPACE)]
    namespace: Namespace,

    /// Delete all VM objects and VM pods first, running or not, and wait until their
    /// nodes have freed everything. Lost are: what guests have not written to their
    /// disks yet, root overlays, clones and ephemeral volumes, and the VM objects
    /// themselves. Claims and disks at servers stay. VM pods that a Deployment or its
    /// like makes are not deleted: scale it to 0 before. If the namespace is not there
    /// any more, VMs are let go of as soon as nothing of them runs
    #[arg(long)]
    force: bool,

    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,

    /// How long to wait for VMs to end, and for the namespace to go, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,

    /// The kubeconfig [default: as kubectl: KUBECONFIG, ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  disklet uninstall --dry-run
  kubectl delete vms --all --all-namespaces && disklet uninstall

Exit code: 0 removed, 1 refused or failed (the reason is on standard error), 2 wrong usage.";

pub(crate) fn run(args: &UninstallArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(uninstall(args)),
        Err(error) => Err(Refusal::new(format!("no runtime: {error}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => refusal.tell(),
    }
}

async fn uninstall(args: &UninstallArgs) -> Result<(), Refusal> {
    let cluster = Cluster::connect(args).await?;
    let patience = Duration::from_secs(args.timeout);
    cluster.demand_our_namespace().await?;
    let vms = cluster.vms().await?;
    if !args.force {
        vms.demand_none_on_nodes()?;
    } else if vms.exist() {
        cluster.delete_vms(&vms, patience).await?;
    }
    let keeps_vms = !args.force && vms.exist();
    if keeps_vms {
        tell(&format!(
            "VM objects stay ({}), and so does their definition; kubectl delete vms --all --all-namespaces before this removes them",
            vms.objects()
        ));
    }
    cluster.remove_all(keeps_vms, patience).await?;
    let ended = cluster.wait_for_end(patience).await;
    cluster.let_go().await?;
    ended
}

/// Says what is done. That nobody reads it is nobody's concern.
fn tell(what: &str) {
    let _ = writeln!(io::stdout(), "{what}");
}
