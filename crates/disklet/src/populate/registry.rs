//! `disklet populate registry`.

use std::io::{self, Read};

use clap::Args as ClapArgs;
use disklet::pull::{Registry, read_image_once};
use disklet_core::images::Reference;

use super::{Failure, PatienceArgs, TargetArgs};
use crate::registry::RegistryOptions;

/// Fill a volume with the disk inside a container image
///
/// The disk is the only file of the image's /disk, as all its layers together have
/// it, the file that --path names, or the file of an artifact. It is converted while
/// its layer comes, and nothing is kept but the target. Every byte has to have the
/// digest that the registry says; what --digest demands is that of the disk's file.
/// Which image a tag stood for is told: ask for it by that, and it stays the same.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct RegistryArgs {
    /// The image: HOST/NAME:TAG or …@sha256:…, with or without docker://
    #[arg(long, value_name = "REF", value_parser = reference)]
    image: Reference,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    options: RegistryOptions,
    #[command(flatten)]
    patience: PatienceArgs,
}

const EXAMPLES: &str = "\
Examples:
  disklet populate registry --image registry.example/vms/debian:12 --target /dev/vol
  disklet populate registry --image localhost:5000/debian --plain-http --target /mnt/claim

Exit code: 0 the disk is there, and durable; 1 it is not; 2 wrong usage.";

fn reference(text: &str) -> Result<Reference, String> {
    Reference::parse(text).map_err(|why| format!("the name {why}"))
}

pub(super) fn populate(args: &RegistryArgs) -> Result<String, Failure> {
    let order = args.target.order();
    // Before anything is fetched.
    order.check()?;
    let mut registry = args.options.apply(Registry::of(args.image.clone()));
    args.patience.apply(&mut registry.transport);
    let counting = args.target.counting()?;
    let filled = read_image_once(&registry, args.patience.retries, &counting, |file| {
        let stream: &mut (dyn Read + Send) = file.stream;
        order
            .fill(io::BufReader::new(stream), &counting)
            .map_err(Failure::from)
    });
    counting.end();
    let (filled, image) = filled?;
    Ok(format!("{}{image}\n", args.target.told(&filled)))
}
