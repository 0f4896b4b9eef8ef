//! The command line of `disklet launch`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use disklet_core::launch::ports::Ports;
use disklet_core::launch::protocol::DIRECTORY;

/// Hold a VM's place in its pod: what launcher pods run
///
/// A VM on a cluster is a pod that runs this, and a machine that the agent of
/// the pod's node runs for it. This command makes three sockets (see
/// docs/formats/launcher.md): `agent`, at which the agent comes to say how the
/// VM is; `serial`, the VM's console; `net`, the VM's network. It then waits for
/// the VM's end.
///
/// The console is standard output and standard input, so that kubectl logs and
/// kubectl attach show it; input that ends changes nothing. What nobody reads
/// is kept up to 1 MiB, then the guest waits; after 10 seconds without a reader
/// it goes on, and the oldest output is lost. All that this command itself has
/// to say is on standard error and begins with "disklet: ".
///
/// The network is the pod's own, by passt: the guest gets the pod's address by
/// DHCP, and connections to the ports below reach it.
///
/// SIGTERM, as from kubectl delete, switches the guest off by its power button.
/// The guest has the pod's grace, less 5 seconds (at most half) for the end by
/// force. A second SIGTERM leaves it 5 seconds, a third none.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_long_help = AFTER)]
pub(crate) struct LaunchArgs {
    /// Where the sockets are made: a directory that the node's agent knows
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    pub(crate) directory: PathBuf,

    /// How long the pod has to end: its terminationGracePeriodSeconds
    #[arg(
        long,
        value_name = "SECONDS",
        env = "DISKLET_GRACE",
        default_value_t = 30
    )]
    pub(crate) grace: u32,

    /// TCP ports at which the guest is reached, such as 22,8000-8099, or none
    #[arg(long, value_name = "PORTS", value_parser = Ports::parse, default_value = Ports::TCP)]
    pub(crate) tcp_ports: Ports,

    /// UDP ports at which the guest is reached
    #[arg(long, value_name = "PORTS", value_parser = Ports::parse, default_value = Ports::UDP)]
    pub(crate) udp_ports: Ports,

    /// The VM has no network
    #[arg(long, conflicts_with_all = ["tcp_ports", "udp_ports"])]
    pub(crate) no_network: bool,

    /// The passt program
    #[arg(long, value_name = "PROGRAM", default_value = "passt")]
    pub(crate) passt: PathBuf,

    /// Where the reason of a bad end is written, if the file is there
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    pub(crate) termination_log: PathBuf,
}

const AFTER: &str = "\
Each port costs memory of the pod, about 5 KiB for TCP and 4 KiB for UDP, since passt listens at each.
Ports below 1024 need the capability NET_BIND_SERVICE, in the pod and for the program's file.

Exit code:
    0  the guest has switched itself off, or was told to and did
    1  the guest or QEMU has crashed
    2  wrong usage
   64  the VM was refused; the reason is on standard error
   70  it could not be started; the reason is on standard error
  137  it was ended by force";
