//! `disklet images`: the store of images that VMs start from.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use disklet::manifests::configuration_file;
use disklet::report::{finish, report, with_causes};
use disklet::store::{Incoming, Store};
use disklet_block::convert::Unwatched;
use disklet_core::diag::Diagnostics;
use disklet_core::names::ImageName;
use disklet_core::units::{ByteSize, parse_quantity};

/// The images that VMs of this machine start from.
#[derive(Debug, ClapArgs)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    command: ImagesCommand,

    /// Configuration of the node (see docs/formats/config.md)
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum ImagesCommand {
    /// Take an image into the store
    ///
    /// The file may be qcow2 or raw, inside gzip, xz or zstd or not; the store
    /// keeps its disk raw, with holes. An image that names other files is
    /// refused.
    Pull {
        /// Its name, as manifests have it; with @sha256:… the file must have
        /// that digest
        name: String,
        /// The file
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Refuse disks that are larger
        #[arg(long, value_name = "SIZE", default_value = "2Ti", value_parser = size)]
        max_size: ByteSize,
    },
    /// List the images
    Ls,
}

fn size(text: &str) -> Result<ByteSize, String> {
    parse_quantity(text).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &ImagesArgs) -> ExitCode {
    let mut diags = Diagnostics::default();
    let config = configuration_file(args.config.as_deref(), &mut diags);
    let errors = diags.errors();
    report(
        &diags.into_sorted(),
        errors,
        disklet::manifests::DiagnosticsFormat::Text,
        "done",
    );
    if errors > 0 {
        return ExitCode::from(1);
    }
    let store = Store::of(&config.data_dir);
    let outcome = match &args.command {
        ImagesCommand::Pull {
            name,
            from,
            max_size,
        } => pull(&store, name, from, *max_size),
        ImagesCommand::Ls => list(&store),
    };
    match outcome {
        Ok(text) => finish(io::stdout().write_all(text.as_bytes()), "the answer"),
        Err(message) => {
            let _ = writeln!(io::stderr(), "error: {message}");
            ExitCode::from(1)
        }
    }
}

fn pull(store: &Store, name: &str, from: &PathBuf, most: ByteSize) -> Result<String, String> {
    let image = ImageName::parse(name).map_err(|error| format!("image {name:?}: {error}"))?;
    let stream = File::open(from)
        .map_err(|error| format!("{}: cannot be opened: {error}", from.display()))?;
    let incoming = Incoming {
        name: image.name(),
        stream,
        digest: image.digest(),
        most,
    };
    let added = store
        .add(incoming, &Unwatched)
        .map_err(|error| with_causes(&error))?;
    let fact = added.fact;
    Ok(format!(
        "{}@sha256:{} ({})\n",
        image.name(),
        fact.digest,
        fact.size
    ))
}

fn list(store: &Store) -> Result<String, String> {
    let named = store.list().map_err(|error| with_causes(&error))?;
    let mut text = String::new();
    for image in named {
        let size = ByteSize::from_bytes(image.size);
        let _ = writeln!(text, "{}  sha256:{}  {size}", image.name, image.sha256);
    }
    Ok(text)
}
