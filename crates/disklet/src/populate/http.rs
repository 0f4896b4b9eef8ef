//! `disklet populate http`.

use std::io::{self, Read};

use clap::Args as ClapArgs;
use disklet::pull::{Origin, read_once};
use disklet_core::images::{Address, Pem};

use super::{Failure, PatienceArgs, TargetArgs};

/// Fill a volume with a file of a web server
///
/// A lost connection is taken up again where it was lost; if the file has become
/// another one meanwhile, nothing is filled. A user and a password go into the
/// address or a file; they follow no redirect to another host.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct HttpArgs {
    /// The address, https://… or http://…
    url: String,
    #[command(flatten)]
    target: TargetArgs,
    /// A file with USER:PASSWORD or Bearer TOKEN
    #[arg(long, value_name = "FILE")]
    credentials_file: Option<String>,
    /// Certificates of the authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<String>,
    #[command(flatten)]
    patience: PatienceArgs,
}

const EXAMPLES: &str = "\
Examples:
  disklet populate http https://host.example/debian.qcow2.xz --target /dev/vol
  disklet populate http https://host.example/disk.raw.zst --target /mnt/claim --digest sha256:…

Exit code: 0 the disk is there, and durable; 1 it is not; 2 wrong usage.";

pub(super) fn populate(args: &HttpArgs) -> Result<String, Failure> {
    let order = args.target.order();
    // Before anything is fetched.
    order.check()?;
    let address = address(args)?;
    let counting = args.target.counting()?;
    let knows_its_end = order.digest.is_some();
    let filled = read_once(
        &address,
        args.patience.retries,
        knows_its_end,
        &counting,
        |file| {
            let stream: &mut (dyn Read + Send) = file.stream;
            order
                .fill(io::BufReader::new(stream), &counting)
                .map_err(Failure::from)
        },
    );
    counting.end();
    Ok(args.target.told(&filled?))
}

fn address(args: &HttpArgs) -> Result<Address, Failure> {
    // What is wrong with it is not said by clap, who would show a password.
    let origin = Origin::parse(&args.url).map_err(Failure::new)?;
    let Origin::Web(mut address) = origin else {
        return Err(Failure::new(
            "the address does not begin with https:// or http://",
        ));
    };
    let transport = &mut address.transport;
    transport
        .credentials_file
        .clone_from(&args.credentials_file);
    let authorities = args.ca_file.iter().cloned().map(Pem::File);
    transport.tls.authorities.extend(authorities);
    args.patience.apply(transport);
    Ok(*address)
}
