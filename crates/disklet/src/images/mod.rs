//! `disklet images`: the store of images that VMs start from.

mod list;
mod pull;
mod remove;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use disklet::manifests::{DiagnosticsFormat, configuration_file};
use disklet::report::{print, report, with_causes};
use disklet::store::{Deed, StoreError};
use disklet_core::diag::{Diagnostics, shortened};
use disklet_core::names::{ImageName, ImageNameError};

use pull::PullArgs;

/// The images that VMs of this machine start from.
#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    command: ImagesCommand,

    /// Configuration of the node (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum ImagesCommand {
    Pull(PullArgs),
    /// List the images
    ///
    /// ALLOCATED is what the disk takes, IN USE by how many VMs it is used. An
    /// image without a name goes with the next `gc` unless a VM uses it. Users
    /// see the system's images as well, which they can use but not remove: STORE
    /// says whose an image is.
    Ls {
        /// How to show them; wide has whole digests and names the VMs
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Remove images
    ///
    /// All of them or, if a VM uses one or a process has it open, none. A disk
    /// goes with the last of its names.
    Rm {
        /// Images, by the names that `ls` shows
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Remove what nobody needs
    ///
    /// Disks that no name leads to and no VM uses, and what interrupted pulls
    /// have left.
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

/// A form of the list of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For people with room
    Wide,
    /// A list, for programs
    Json,
}

/// Why something was not done; lines for standard error.
#[derive(Debug)]
struct Failure(Vec<String>);

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self(vec![message.into()])
    }

    fn help(mut self, help: &str) -> Self {
        if let Some(last) = self.0.last_mut() {
            last.push_str("\n  help: ");
            last.push_str(help);
        }
        self
    }

    fn all(errors: Vec<StoreError>) -> Self {
        let told = errors.into_iter().map(Self::from);
        Self(told.flat_map(|failure| failure.0).collect())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let failure = Self::new(with_causes(&error));
        match error.remedy() {
            Some(remedy) => failure.help(remedy),
            None => failure,
        }
    }
}

pub(crate) fn run(args: &ImagesArgs) -> ExitCode {
    let mut diags = Diagnostics::default();
    let config = configuration_file(args.config.as_deref(), &mut diags);
    let errors = diags.errors();
    report(
        &diags.into_sorted(),
        errors,
        DiagnosticsFormat::Text,
        "done",
    );
    if errors > 0 {
        return ExitCode::from(1);
    }
    let outcome = match &args.command {
        ImagesCommand::Pull(args) => pull::pull(&config, args),
        ImagesCommand::Ls { output } => list::list(&config, *output),
        ImagesCommand::Rm { names } => remove::remove(&config, names),
        ImagesCommand::Gc { dry_run: true } => remove::collect(&config, Deed::Told),
        ImagesCommand::Gc { dry_run: false } => remove::collect(&config, Deed::Done),
    };
    match outcome {
        Ok(text) => print(text.as_bytes(), "the answer"),
        Err(Failure(messages)) => {
            for message in messages {
                let _ = writeln!(io::stderr(), "error: {message}");
            }
            ExitCode::from(1)
        }
    }
}

fn image_name(text: &str) -> Result<ImageName, Failure> {
    ImageName::parse(text).map_err(|error| {
        match error {
            // What may be a password is not said again.
            ImageNameError::Credentials => Failure::new(format!("the image's name {error}")),
            ImageNameError::Empty => Failure::new("the image's name is empty")
                .help("name it as manifests do, such as virtlet.cloud/debian"),
            // Such as file:///x, of which nobody wants to hear of components.
            _ if is_path(text) => Failure::new(format!("{} is no image's name", quoted(text)))
                .help("name it as manifests do, such as virtlet.cloud/debian; its file follows --from"),
            _ => Failure::new(format!("image {}: its name {error}", quoted(text))),
        }
    })
}

fn is_path(text: &str) -> bool {
    text.starts_with(['/', '.']) || text.to_ascii_lowercase().starts_with("file:")
}

fn quoted(text: &str) -> String {
    shortened(&format!("{text:?}"))
}
