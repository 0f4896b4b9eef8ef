//! `disklet images pull`.

use std::fs::File;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use disklet::store::{Incoming, Store};
use disklet_block::convert::Unwatched;
use disklet_core::config::Config;
use disklet_core::units::{ByteSize, parse_quantity};

use super::{Failure, image_name};

/// Take an image into the store
///
/// The file may be qcow2 or raw, inside gzip, xz or zstd or not; the store
/// keeps its disk raw, with holes. An image that names other files is
/// refused.
#[derive(Debug, ClapArgs)]
pub(super) struct PullArgs {
    /// Its name, as manifests have it; with @sha256:… the file must have
    /// that digest
    name: String,
    /// The file
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Refuse disks that are larger
    #[arg(long, value_name = "SIZE", default_value = "2Ti", value_parser = size)]
    max_size: ByteSize,
}

fn size(text: &str) -> Result<ByteSize, String> {
    parse_quantity(text).map_err(|error| error.to_string())
}

pub(super) fn pull(config: &Config, args: &PullArgs) -> Result<String, Failure> {
    let image = image_name(&args.name)?;
    let from = &args.from;
    let stream = File::open(from)
        .map_err(|error| Failure::new(format!("{}: cannot be opened: {error}", from.display())))?;
    let incoming = Incoming {
        name: image.name(),
        stream,
        digest: image.digest(),
        most: args.max_size,
    };
    let added = Store::of(&config.data_dir).add(incoming, &Unwatched)?;
    let fact = added.fact;
    Ok(format!(
        "{}@sha256:{} ({})\n",
        image.name(),
        fact.digest,
        fact.size
    ))
}
