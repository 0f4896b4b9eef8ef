//! `disklet populate`: fills a volume, and is done.

mod http;
mod metrics;
mod registry;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use disklet::fill::{Before, FillError, Filled, Order};
use disklet::progress::ProgressForm;
use disklet::pull::{Order as PullOrder, PullError};
use disklet::report::{print, with_causes};
use disklet::shown::short_size;
use disklet_core::images::Transport;
use disklet_core::names::Sha256;
use disklet_core::units::{ByteSize, parse_quantity};

use http::HttpArgs;
use metrics::Counting;
use registry::RegistryArgs;

/// Fill a volume with a disk, and end when that is durable
///
/// What comes is converted while it comes: qcow2 or raw, inside gzip, xz or zstd or
/// not, becomes a raw disk in one pass, without room for a copy. The target is a
/// file, a block device, or the directory of a volume, whose disk is then disk.img.
/// However it ends, the target holds the whole disk, or none: a file gets its name
/// when it is complete, and a device its first MiB.
///
/// This is what a pod runs that fills a claim. It exits with 0 when the disk is
/// durable.
#[derive(Debug, ClapArgs)]
pub(crate) struct PopulateArgs {
    #[command(subcommand)]
    command: PopulateCommand,
}

#[derive(Debug, Subcommand)]
enum PopulateCommand {
    Http(HttpArgs),
    Registry(RegistryArgs),
}

/// Where the disk goes.
#[derive(Debug, ClapArgs)]
struct TargetArgs {
    /// A file, a block device, or the directory of a volume
    #[arg(long, value_name = "FILE|DEVICE|DIRECTORY")]
    target: PathBuf,
    /// Give up what the target holds; without it a target that holds something is
    /// left alone
    #[arg(long)]
    replace: bool,
    /// The digest that what is fetched must have, as sha256:…
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    digest: Option<Sha256>,
    /// Refuse disks that are larger
    #[arg(long, value_name = "SIZE", default_value = "64Ti", value_parser = size)]
    max_size: ByteSize,
    /// Where an image in an odd order is kept for a while [default: beside the
    /// file, else in TMPDIR]
    #[arg(long, value_name = "DIRECTORY")]
    scratch_dir: Option<PathBuf>,
    /// How to tell how far it has come
    #[arg(long, value_enum, default_value_t = ProgressForm::Auto)]
    progress: ProgressForm,
    /// Where to tell at /metrics how far it has come
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
}

/// How long a server is waited for.
#[derive(Debug, ClapArgs)]
struct PatienceArgs {
    /// How often in a row to try to go on after a lost connection
    #[arg(long, value_name = "TIMES", default_value_t = PullOrder::RETRIES)]
    retries: u32,
    /// How long nothing may come before a connection counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    stall_timeout: u64,
}

impl PatienceArgs {
    fn apply(&self, transport: &mut Transport) {
        transport.stall_timeout = Duration::from_secs(self.stall_timeout);
    }
}

impl TargetArgs {
    fn order(&self) -> Order {
        Order {
            target: self.target.clone(),
            before: match self.replace {
                true => Before::Anything,
                false => Before::Nothing,
            },
            digest: self.digest,
            most: self.max_size,
            scratch: self.scratch_dir.clone(),
        }
    }

    fn counting(&self) -> Result<Counting, Failure> {
        Counting::begin(self.progress, self.metrics_listen)
    }

    fn told(&self, filled: &Filled) -> String {
        let warning = match filled.marked_corrupt {
            true => ", whose image is marked as corrupt by whoever has found it so",
            false => "",
        };
        format!(
            "{}: a disk of {} ({} of data), from sha256:{}{warning}\n",
            self.target.display(),
            short_size(filled.size),
            short_size(filled.written),
            filled.digest
        )
    }
}

fn size(text: &str) -> Result<ByteSize, String> {
    parse_quantity(text).map_err(|error| error.to_string())
}

fn digest(text: &str) -> Result<Sha256, String> {
    text.strip_prefix("sha256:")
        .and_then(Sha256::parse_hex)
        .ok_or_else(|| "a digest is sha256: and 64 hexadecimal digits".to_owned())
}

/// Why nothing was filled.
#[derive(Debug)]
struct Failure {
    what: String,
    help: Option<String>,
}

impl Failure {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: None,
        }
    }
}

impl From<FillError> for Failure {
    fn from(error: FillError) -> Self {
        Self {
            what: error.in_words(),
            help: error.remedy().map(str::to_owned),
        }
    }
}

impl From<PullError> for Failure {
    fn from(error: PullError) -> Self {
        Self {
            what: with_causes(&error),
            help: error.remedy().map(str::to_owned),
        }
    }
}

pub(crate) fn run(args: &PopulateArgs) -> ExitCode {
    let outcome = match &args.command {
        PopulateCommand::Http(args) => http::populate(args),
        PopulateCommand::Registry(args) => registry::populate(args),
    };
    match outcome {
        Ok(told) => print(told.as_bytes(), "the result"),
        Err(Failure { what, help }) => {
            let mut text = format!("error: {what}\n");
            if let Some(help) = help {
                text.push_str(&format!("  help: {help}\n"));
            }
            let _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(1)
        }
    }
}
