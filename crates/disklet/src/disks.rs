//! The command line of the commands that change the disks of VMs that run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use disklet_core::diag::Origin;
use disklet_core::manifest::Input;
use disklet_core::units::{ByteSize, parse_quantity};
use serde_json::{Map, Value, json};

use crate::manifests::{DiagnosticsFormat, ManifestArgs};
use crate::vms::{LibvirtArgs, duration};

/// `disk`.
#[derive(Debug, ClapArgs)]
pub struct DiskArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DiskCommand,
}

/// What can be done to the disks of a VM that runs.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Attach a disk to a VM that runs
    ///
    /// The disk is written as in a VM object's list of disks (see
    /// docs/vm-objects.md), by itself in a file, beside the claims, volumes and
    /// Secrets that it refers to; or, in the simple cases, said by --claim or
    /// --image. All that holds for the disks of a manifest holds for it.
    ///
    /// It stays until it is detached, or the VM is taken down. A VM that has
    /// ended is started by `up` with the disks of its manifests: write the disk
    /// there as well to have it then.
    #[command(after_long_help = ATTACH_EXAMPLES)]
    Attach(AttachArgs),
    /// Have a VM that runs let go of a disk
    ///
    /// The guest is asked, and has time to let go: unmount the disk there
    /// first. What was made for the disk (an overlay, a clone, a new volume)
    /// is removed with what the guest wrote to it; claims, devices and storage
    /// at servers stay as they are.
    #[command(after_long_help = DETACH_EXAMPLES)]
    Detach(DetachArgs),
    /// Make a disk of a VM that runs larger
    ///
    /// Volumes, overlays, clones and the disk.img of a claim grow to SIZE. A
    /// device is grown by whoever has it; without SIZE the guest is then told
    /// what it has. A unit of an iSCSI target is grown at its server first.
    /// Partitions and filesystems are the guest's to grow. Nothing shrinks.
    #[command(after_long_help = RESIZE_EXAMPLES)]
    Resize(ResizeArgs),
}

/// Which VM.
#[derive(Debug, ClapArgs)]
pub struct VmArgs {
    /// A VM, as NAME or NAMESPACE/NAME
    #[arg(value_name = "VM")]
    pub vm: String,

    /// Namespace of a name without one
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    /// How to show what was done
    #[arg(short, long, value_enum, default_value_t = DiskOutput::Text)]
    pub output: DiskOutput,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
}

/// A form of what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiskOutput {
    /// For people
    Text,
    /// For programs: the disk as in a plan
    Json,
}

/// `disk attach`.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("simple").args(["claim", "image"]))]
pub struct AttachArgs {
    /// The VM.
    #[command(flatten)]
    pub vm: VmArgs,

    /// The disk, and what it refers to: a YAML or JSON file, a directory of
    /// them, or - for standard input; may be given several times
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE|DIR|-",
        required_unless_present_any = ["claim", "image"]
    )]
    pub files: Vec<PathBuf>,

    /// The disk is this claim's; the claim and its volume come with -f
    #[arg(long, value_name = "NAME", requires = "files")]
    pub claim: Option<String>,

    /// The disk is an overlay of its own over this image
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Its name in the VM [default: that of its target]
    #[arg(long, value_name = "NAME", requires = "simple")]
    pub name: Option<String>,

    /// Where the guest finds it, such as sdc or vdb [default: the first that is free]
    #[arg(long, value_name = "TARGET", requires = "simple")]
    pub target: Option<String>,

    /// What it hangs on: scsi or virtio [default: by its target, else scsi]
    #[arg(long, value_name = "BUS", requires = "simple")]
    pub bus: Option<String>,

    /// What the guest knows it by [default: its name]
    #[arg(long, value_name = "SERIAL", requires = "simple")]
    pub serial: Option<String>,

    /// Who may use what is behind it at the same time: write-exclusive,
    /// write-shared or read-shared
    #[arg(long, value_name = "MODE", requires = "simple")]
    pub access_mode: Option<String>,

    /// Copy it: none, copy-on-write, copy-on-read or clone
    #[arg(long, value_name = "MODE", requires = "simple")]
    pub copy: Option<String>,

    /// Show what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// How to tell what is wrong
    #[arg(long, value_enum, default_value_t = DiagnosticsFormat::Text, value_name = "FORMAT")]
    pub diagnostics: DiagnosticsFormat,
}

/// `disk detach`.
#[derive(Debug, ClapArgs)]
pub struct DetachArgs {
    /// The VM.
    #[command(flatten)]
    pub vm: VmArgs,

    /// The disk, by its name or its target, as disklet describe shows them
    #[arg(value_name = "DISK")]
    pub disk: String,

    /// How long the guest has to let go; the disk stays if it does not
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub timeout: Duration,
}

/// `disk resize`.
#[derive(Debug, ClapArgs)]
pub struct ResizeArgs {
    /// The VM.
    #[command(flatten)]
    pub vm: VmArgs,

    /// The disk, by its name or its target, as disklet describe shows them
    #[arg(value_name = "DISK")]
    pub disk: String,

    /// How large it shall be, such as 20Gi; without it, as large as the device or
    /// the unit of an iSCSI target behind it
    #[arg(value_name = "SIZE", value_parser = size)]
    pub size: Option<ByteSize>,
}

/// A size as Kubernetes writes it.
fn size(text: &str) -> Result<ByteSize, String> {
    let size = parse_quantity(text)
        .map_err(|error| format!("{error}; use a quantity such as 20Gi or 500M"))?;
    match size.as_bytes() {
        0 => Err("a disk has at least a byte; use a quantity such as 20Gi".to_owned()),
        _ => Ok(size),
    }
}

impl AttachArgs {
    /// The files, and how to read them for a VM of a namespace.
    #[must_use]
    pub fn manifests(&self, namespace: &str) -> ManifestArgs {
        ManifestArgs {
            files: self.files.clone(),
            recursive: false,
            namespace: namespace.to_owned(),
            config: self.vm.config.clone(),
            raw_devices: None,
            kubelet_root: None,
            diagnostics: self.diagnostics,
        }
    }

    /// The disk that the flags say, as a file would.
    #[must_use]
    pub fn disk(&self) -> Option<Input> {
        let source = match (&self.claim, &self.image) {
            (Some(claim), _) => json!({"pvc": {"claimname": claim}}),
            (None, Some(image)) => json!({"image": {"name": image}}),
            (None, None) => return None,
        };
        let mut disk = Map::new();
        disk.insert("source".to_owned(), source);
        for (field, value) in [
            ("name", &self.name),
            ("serial", &self.serial),
            ("access-mode", &self.access_mode),
        ] {
            disk.extend(
                value
                    .as_ref()
                    .map(|it| (field.to_owned(), it.as_str().into())),
            );
        }
        let mut target = Map::new();
        for (field, value) in [("bus", &self.bus), ("device", &self.target)] {
            target.extend(
                value
                    .as_ref()
                    .map(|it| (field.to_owned(), it.as_str().into())),
            );
        }
        if !target.is_empty() {
            disk.insert("target".to_owned(), target.into());
        }
        if let Some(mode) = &self.copy {
            disk.insert("copy".to_owned(), json!({"mode": mode}));
        }
        Some(Input {
            name: Origin::object("command line"),
            text: Value::Object(disk).to_string(),
        })
    }
}

const ATTACH_EXAMPLES: &str = "\
Examples:
  disklet disk attach web -f disk.yaml              a disk, written as in a VM's list of disks
  disklet disk attach web --claim data -f claims/   what a claim stands for
  disklet disk attach web --image debian.example/tools --name tools
                                                    an overlay of its own over an image
  echo 'source: {nbd: {host: {name: 10.0.0.7}, export: data}}' | disklet disk attach web -f -
                                                    what a server has

Exit code: 0 attached, 1 refused or failed (nothing is left of it), 2 wrong usage.";

const DETACH_EXAMPLES: &str = "\
Examples:
  disklet disk detach web sdc                by its target
  disklet disk detach web data --timeout 2m  by its name, with more time for the guest

Exit code: 0 detached, 1 refused, or the guest did not let go, 2 wrong usage.";

const RESIZE_EXAMPLES: &str = "\
Examples:
  disklet disk resize web root 40Gi     the overlay that the VM boots from
  lvextend -L +10G /dev/vg/data && disklet disk resize web data
                                        tell the guest what its device has now

Exit code: 0 it has that size, 1 refused or failed, 2 wrong usage.";
