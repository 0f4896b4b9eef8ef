//! `disklet images pull`.

use std::io::{self, IsTerminal};

use clap::Args as ClapArgs;
use disklet::progress::ProgressForm;
use disklet::pull::{Order, Origin, PullError, Teller, pull as fetch};
use disklet::report::with_causes;
use disklet::shown::short_size;
use disklet_core::config::Config;
use disklet_core::images::Reference;
use disklet_core::units::{ByteSize, parse_quantity};

use super::{Failure, image_name};
use crate::registry::RegistryOptions;

/// Take an image into the store
///
/// Without --from it is fetched from where the mapping says
/// (`imageTranslations` of the configuration, see
/// docs/formats/image-mapping.md), else by https from the host that its name
/// begins with. A lost connection is taken up again where it was lost, also by
/// a later pull.
///
/// docker://HOST/NAME:TAG is an image in a registry: the disk inside it is taken,
/// the only file of its /disk or what --path says.
///
/// The file may be qcow2 or raw, inside gzip, xz or zstd or not; the store
/// keeps its disk raw, with holes. An image that names other files is
/// refused, and so is what is no image, such as a server's page for people.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PullArgs {
    /// Its name, as manifests have it; with @sha256:… the file must have
    /// that digest
    name: String,
    /// Where it comes from: a file, an address (https://… or http://…), an image
    /// in a registry (docker://…), or - for standard input
    #[arg(long, value_name = "FILE|URL|-")]
    from: Option<String>,
    /// Refuse disks that are larger
    #[arg(long, value_name = "SIZE", default_value = "2Ti", value_parser = size)]
    max_size: ByteSize,
    /// How often in a row to try to go on after a lost connection
    #[arg(long, value_name = "TIMES", default_value_t = Order::RETRIES)]
    retries: u32,
    /// How to tell how far it has come
    #[arg(long, value_enum, default_value_t = ProgressForm::Auto)]
    progress: ProgressForm,
    #[command(flatten)]
    registry: RegistryOptions,
}

const EXAMPLES: &str = "\
Examples:
  disklet images pull download.cirros-cloud.net/0.6.2/cirros-0.6.2-x86_64-disk.img
  disklet images pull virtlet.cloud/debian --from https://host.example/debian.qcow2
  disklet images pull docker://registry.example/vms/debian:12
  xz -dc disk.xz | disklet images pull virtlet.cloud/mine --from -

Proxies are taken from https_proxy, http_proxy, all_proxy and no_proxy.";

fn size(text: &str) -> Result<ByteSize, String> {
    parse_quantity(text).map_err(|error| error.to_string())
}

pub(super) fn pull(config: &Config, args: &PullArgs) -> Result<String, Failure> {
    let image = image_name(&args.name)?;
    // What is wrong with it is not said by clap, who would show a password.
    let in_registry = image.name().starts_with(Reference::PREFIX);
    let from = match &args.from {
        // By its name alone, what it is called with says less.
        None if in_registry && !args.registry.is_empty() => Some(image.name()),
        from => from.as_deref(),
    };
    let from = from.map(Origin::parse).transpose();
    let from = from.map_err(|why| Failure::new(format!("--from: {why}")))?;
    if from == Some(Origin::StandardInput) && io::stdin().is_terminal() {
        return Err(Failure::new(
            "standard input is a terminal: give it an image, as with < or a pipe",
        ));
    }
    let from = match from {
        Some(Origin::Registry(registry)) => {
            let registry = args.registry.apply(*registry);
            Some(Origin::Registry(Box::new(registry)))
        }
        None if in_registry => None,
        _ if !args.registry.is_empty() => {
            return Err(Failure::new("this is no image in a registry")
                .help("the names of those begin with docker://; a web server's credentials are said in a transport, see docs/formats/image-mapping.md"));
        }
        from => from,
    };
    let order = Order {
        from,
        most: args.max_size,
        retries: args.retries,
        ..Order::of(&image)
    };
    let teller = Teller::new(args.progress);
    let added = fetch(config, &order, &teller);
    teller.end();
    let fact = added?.fact;
    // A digest in the name of an image in a registry is that of the image.
    let between = if in_registry { " has " } else { "@" };
    Ok(format!(
        "{}{between}sha256:{} ({})\n",
        image.name(),
        fact.digest,
        short_size(fact.size.as_bytes())
    ))
}

impl From<PullError> for Failure {
    fn from(error: PullError) -> Self {
        let failure = Self::new(with_causes(&error));
        match error.remedy() {
            Some(remedy) => failure.help(remedy),
            None => failure,
        }
    }
}
