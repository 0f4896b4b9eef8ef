//! The command lines of the commands that run VMs. `disklet` shows them in its
//! help and hands them over; `disklet-node` carries them out.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use crate::manifests::ManifestArgs;

/// The commands that run VMs.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Prepare the disks of VMs and start them
    ///
    /// Every refusal comes before anything is made. What is there already is
    /// kept: after an interrupted `up`, say it again.
    Up(UpArgs),
    /// Stop VMs and remove what was made for them
    Down(DownArgs),
    /// List the VMs of this machine
    Ps(PsArgs),
}

/// `up`.
#[derive(Debug, ClapArgs)]
pub struct UpArgs {
    /// The VMs and what they refer to.
    #[command(flatten)]
    pub manifests: ManifestArgs,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
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

    /// Configuration of the node (see docs/formats/config.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// `ps`.
#[derive(Debug, ClapArgs)]
pub struct PsArgs {
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = PsOutput::Table)]
    pub output: PsOutput,

    /// Configuration of the node (see docs/formats/config.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// A form of the list of VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PsOutput {
    /// For people
    Table,
    /// A list, for programs
    Json,
}

/// Where libvirt is.
#[derive(Debug, ClapArgs)]
pub struct LibvirtArgs {
    /// The libvirt daemon [default: the system's]
    #[arg(long, value_name = "URI", env = "LIBVIRT_DEFAULT_URI")]
    pub connect: Option<String>,
}
