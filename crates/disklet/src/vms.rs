//! The command lines of the commands that run VMs. `disklet` shows them in its
//! help and hands them over; `disklet-node` carries them out.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use crate::disks::DiskArgs;
use crate::manifests::ManifestArgs;

/// The commands that run VMs.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Prepare the disks of VMs and start them
    ///
    /// What the manifests and this machine show to be wrong is refused before
    /// anything is made or fetched. What shows only later, such as a device that
    /// is in use, undoes what was made for that VM; VMs before it run. What is
    /// there already is kept: after an interrupted `up`, say it again.
    Up(UpArgs),
    /// Stop VMs and remove what was made for them
    Down(DownArgs),
    /// List the VMs of this machine
    Ps(PsArgs),
    /// Show a VM: its disks, the chain of files below each, what they take
    Describe(DescribeArgs),
    /// Connect this terminal with a VM's serial console
    ///
    /// Ctrl-] detaches; the VM runs on. It also ends, and says why, when the VM
    /// ends, when somebody else takes the console over, and when libvirt goes
    /// away.
    Console(ConsoleArgs),
    /// Show what a VM has written to its serial console
    Logs(LogsArgs),
    /// Who uses storage that others can use as well
    Leases(LeasesArgs),
    /// Attach, detach and grow disks of VMs that run
    Disk(DiskArgs),
    /// Remove what interrupted commands have left
    ///
    /// VMs that were never complete and VMs that were being removed go, with
    /// all that was made for them; so do device nodes and trial disks that a
    /// crash has left. Nothing else is touched, and nothing that is in use.
    Gc(GcArgs),
    /// Look at the directories that hold VMs' volumes
    Pools {
        /// What to do.
        #[command(subcommand)]
        command: PoolsCommand,
    },
}

/// `pools`.
#[derive(Debug, Subcommand)]
pub enum PoolsCommand {
    /// List the pools of this machine
    ///
    /// SIZE and FREE are those of the filesystem, whoever else writes to it. USED is
    /// what the files of VMs take now, PROMISED what they may grow to, and LIMIT
    /// how much may be promised: the setting `overcommit` times the size
    /// (see docs/formats/config.md). Beyond it, `up` refuses.
    Ls(PoolsLsArgs),
}

/// `pools ls`.
#[derive(Debug, ClapArgs)]
pub struct PoolsLsArgs {
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = PoolsOutput::Table)]
    pub output: PoolsOutput,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// A form of the list of pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PoolsOutput {
    /// For people
    Table,
    /// A list, sizes in bytes, for programs
    Json,
}

/// `up`.
#[derive(Debug, ClapArgs)]
pub struct UpArgs {
    /// The VMs and what they refer to.
    #[command(flatten)]
    pub manifests: ManifestArgs,

    /// Return only when the VMs are ready (cloud-init is done; without it, there
    /// is a login on the serial console) or have ended
    #[arg(long, value_enum, value_name = "FOR")]
    pub wait: Option<WaitFor>,

    /// Wait no longer than this, such as 90s, 5m or 1h; the VMs run on
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    pub timeout: Option<Duration>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    /// The guest has booted
    Ready,
    /// The guest has switched itself off
    Exit,
}

/// A time as users write it: a number and s, m or h; without one, seconds.
///
/// # Errors
/// What is allowed.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("use a number and s, m or h, such as 90s".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "use a number and s, m or h, such as 90s".to_owned())?;
    // Longer than anybody waits, and short enough to be added to the clock.
    Ok(Duration::from_secs(
        number.saturating_mul(unit).min(1 << 32),
    ))
}

/// `down`.
#[derive(Debug, ClapArgs)]
pub struct DownArgs {
    /// VMs, as NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,

    /// Namespace of names without one
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    /// Ask the guest to switch itself off and wait so long before it is ended;
    /// 0 ends it at once
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub grace: Duration,

    /// Keep the root overlay and the ephemeral volumes for the next `up`
    #[arg(long)]
    pub keep_volumes: bool,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// `ps` and `leases ls`.
#[derive(Debug, ClapArgs)]
pub struct PsArgs {
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = PsOutput::Table)]
    pub output: PsOutput,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// `leases`.
#[derive(Debug, ClapArgs)]
pub struct LeasesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LeasesCommand,
}

/// What can be done with leases.
#[derive(Debug, Subcommand)]
pub enum LeasesCommand {
    /// List the leases of this machine's VMs
    ///
    /// A lease is live while its VM runs, and keeps others out who do not agree.
    /// A stale one, of a VM that is off, keeps nobody out; but one that is kept, as an
    /// overlay of that VM stands on it, keeps out who would write. What a VM of another
    /// daemon does is unknown, and its leases keep others out as well.
    Ls(PsArgs),
    /// Let others use storage although its VM may still use it
    ///
    /// The VM is not told and not ended: if it runs, it goes on reading and
    /// writing. Two VMs that write to one disk destroy what is on it. End the VM
    /// instead (`disklet down`), which releases its leases; force is for a VM
    /// that cannot write any more, and whose libvirt daemon cannot say so. The
    /// lease is taken again when the VM is started again. Files and devices of
    /// this machine are locked by QEMU itself as well, which this does not change.
    Release(ReleaseArgs),
}

/// `leases release`.
#[derive(Debug, ClapArgs)]
pub struct ReleaseArgs {
    /// The lease, by the ID that `ls` shows, or the beginning of it
    pub id: String,

    /// Release it although the VM runs, or nobody can say that it does not, or has an
    /// overlay over it
    #[arg(long)]
    pub force: bool,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// A form of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PsOutput {
    /// For people
    Table,
    /// For people, with more columns
    Wide,
    /// A list, for programs
    Json,
}

/// `describe`.
#[derive(Debug, ClapArgs)]
pub struct DescribeArgs {
    /// A VM, as NAME or NAMESPACE/NAME
    pub name: String,

    /// Namespace of a name without one
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    /// How to show it
    #[arg(short, long, value_enum, default_value_t = DescribeOutput::Text)]
    pub output: DescribeOutput,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// A form of a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DescribeOutput {
    /// For people
    Text,
    /// For programs: the plan, the state, and each disk's chain
    Json,
}

/// `console`.
#[derive(Debug, ClapArgs)]
pub struct ConsoleArgs {
    /// A VM, as NAME or NAMESPACE/NAME
    pub name: String,

    /// Namespace of a name without one
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    /// Take the console over from whoever has it
    #[arg(long)]
    pub force: bool,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// `logs`.
#[derive(Debug, ClapArgs)]
pub struct LogsArgs {
    /// A VM, as NAME or NAMESPACE/NAME
    pub name: String,

    /// Namespace of a name without one
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    /// Go on with what it writes from now on, until it ends
    #[arg(short, long)]
    pub follow: bool,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `gc`.
#[derive(Debug, ClapArgs)]
pub struct GcArgs {
    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// Where libvirt is.
#[derive(Debug, ClapArgs)]
pub struct LibvirtArgs {
    /// The libvirt daemon, on this machine [default: root's is the system's,
    /// qemu:///system, and is started if it does not run; a user's is their own,
    /// qemu:///session] [env: `LIBVIRT_DEFAULT_URI`]
    // Read where it is connected to: an empty variable is none.
    #[arg(long, value_name = "URI", value_parser = daemon)]
    pub connect: Option<String>,
}

fn daemon(text: &str) -> Result<String, String> {
    match text {
        "" => Err(
            "it is empty: name a daemon, such as qemu:///system, or leave --connect out".to_owned(),
        ),
        uri => Ok(uri.to_owned()),
    }
}
