//! `disklet install`: everything that a cluster needs, as manifests.

mod documents;
mod per_node;
mod settings;
mod template;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum};
use disklet::manifests::DiagnosticsFormat;
use disklet::report::{print, report};
use disklet_core::diag::Diagnostics;

pub(crate) use per_node::NODE as NODE_OF;
pub(crate) use settings::DEFAULT_NAMESPACE;
use settings::Settings;

/// Print what a cluster needs to run VMs, for `kubectl apply`.
///
/// Nothing is changed, and no cluster is asked. What is printed:
///
///   a namespace, and the definition of VM objects (see `disklet crd`)
///   rights, for each program its own and no more (see docs/rbac.md)
///   disklet-libvirt, on each node: libvirtd, and QEMU. It is replaced only when
///     you delete its pod; VMs run on
///   disklet-agent, on each node: prepares disks and runs VMs. It also puts the
///     FlexVolume driver where the kubelet looks for it
///   disklet-controller: makes a pod for each VM object, and says of objects that
///     cannot be run why
///   disklet-webhook: VM objects and VM pods that cannot be run are refused when they
///     are written, by the controllers, and launchers take the place of VM pods.
///     Without any of them VM objects are taken, and refused afterwards. Its
///     certificates are made and replaced by themselves
///   the nodes' configuration, from the file that you give
///
/// Say it again with other options, or with a newer disklet, and apply that: what
/// has changed is changed, and VMs run on. `disklet uninstall` removes it all.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_long_help = EXAMPLES)]
pub(crate) struct InstallArgs {
    /// The image of controller and launchers; script/images builds it
    #[arg(long, value_name = "NAME", default_value = settings::DEFAULT_IMAGE)]
    image: String,

    /// The image of agent and libvirt, with QEMU in it
    #[arg(long, value_name = "NAME", default_value = settings::DEFAULT_NODE_IMAGE)]
    node_image: String,

    /// The namespace; one of its own, which goes with `disklet uninstall`
    #[arg(short, long, default_value = DEFAULT_NAMESPACE)]
    namespace: String,

    /// Whose libvirtd runs VMs
    #[arg(long, value_enum, default_value_t = LibvirtChoice::Pod)]
    libvirt: LibvirtChoice,

    /// Configuration of the nodes (see docs/formats/config.md); its directories
    /// and pools are shown to the pods
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Nodes that have pools of their own, each a claim (see docs/formats/per-node.md):
    /// each of them has an agent and a libvirt of its own, with these claims mounted
    #[arg(long, value_name = "FILE")]
    per_node: Option<PathBuf>,

    /// Which devices VM pods may use: comma-separated globs below /dev, the same
    /// on all nodes [default: as the configuration says, else loop*]
    #[arg(long, value_name = "GLOBS")]
    raw_devices: Option<String>,

    /// Where the kubelets keep their pods' volumes [default: as the
    /// configuration says, else /var/lib/kubelet]
    #[arg(long, value_name = "DIR")]
    kubelet_root: Option<String>,

    /// Where the kubelets look for FlexVolume drivers: their
    /// --volume-plugin-dir
    #[arg(long, value_name = "DIR", default_value = settings::DEFAULT_FLEXVOLUME_DIR)]
    flexvolume_dir: String,

    /// Only nodes with this label run VMs; may be given several times
    #[arg(long, value_name = "LABEL=VALUE")]
    node_selector: Vec<String>,

    /// Guests are not reached at ports below 1024: for clusters that take no pods
    /// with the capability `NET_BIND_SERVICE`, which launchers have else
    #[arg(long)]
    no_low_ports: bool,

    /// Where agents serve their metrics: for their own nodes only, or, with
    /// 0.0.0.0:9473, for whoever reaches the nodes. Neither keys nor names of VMs
    /// are in them (see docs/metrics.md)
    #[arg(long, value_name = "ADDRESS:PORT", default_value = settings::DEFAULT_METRICS_ADDRESS)]
    metrics_address: String,

    /// How many controllers; one of them leads, the others take over
    #[arg(long, value_name = "N", default_value = "2")]
    replicas: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LibvirtChoice {
    /// One of ours, in a pod; a libvirtd of the node itself is not touched
    Pod,
    /// That of the node, installed by its administrator
    Host,
}

const EXAMPLES: &str = "\
Examples:
  disklet install | kubectl apply -f -
  disklet install --image registry.example.com/disklet:1 \\
      --node-image registry.example.com/disklet-node:1 --config nodes.yaml > disklet.yaml
  disklet install --per-node storage.yaml | kubectl apply -f -
  disklet install --raw-devices 'loop*,mapper/vm-*' --node-selector vms=yes | kubectl diff -f -

Exit code: 0 printed, 1 refused (every reason is on standard error), 2 wrong usage.";

pub(crate) fn run(args: &InstallArgs) -> ExitCode {
    let mut diags = Diagnostics::default();
    let settings = Settings::read(args, &mut diags);
    let errors = diags.errors();
    let all = diags.into_sorted();
    report(&all, errors, DiagnosticsFormat::Text, "printed");
    match settings.filter(|_| errors == 0) {
        Some(settings) => print(
            settings.documents().join("---\n").as_bytes(),
            "the manifests",
        ),
        None => ExitCode::from(1),
    }
}
