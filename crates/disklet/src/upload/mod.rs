//! `disklet upload`: sends a disk to whoever fills a volume with it.

mod claim;
mod client;
mod file;
mod source;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use disklet::progress::ProgressForm;
use disklet::report::print;
use disklet_core::url::{Scheme, Url};

use claim::ClusterArgs;
use client::{Client, token_of};
use file::Upload;
use source::Compress;

/// Send a disk to `disklet serve upload`
///
/// The file goes as it is: qcow2 or raw, inside gzip, xz or zstd or not. A raw disk with
/// holes goes as zstd frames, in which holes take no room. It is read once before, for the
/// checksum, which the server demands of what has come. A lost connection
/// is taken up again where the server says; so is an upload that was killed, when the same
/// command is run again.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct UploadArgs {
    /// The file
    file: PathBuf,
    /// Where to send it: https://HOST[:PORT]/upload, or pvc/NAME for the pod that fills
    /// a claim, which is reached through the API server
    #[arg(value_name = "URL|pvc/NAME")]
    url: String,
    /// A file with the token of the upload [default: of a claim, what its pod's Secret
    /// has]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates of the authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Send it, and the token, although they can be read on the way; without it http://
    /// is for this machine only
    #[arg(long)]
    plain_http: bool,
    /// Whether to send the file as zstd frames: what is lost goes on where a frame ends
    #[arg(long, value_enum, default_value_t = Compress::Auto)]
    compress: Compress,
    /// How often in a row to try to go on after a lost connection
    #[arg(long, value_name = "TIMES", default_value_t = 10)]
    retries: u32,
    /// How long nothing may come or go before a connection counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    stall_timeout: u64,
    /// How to tell how far it has come
    #[arg(long, value_enum, default_value_t = ProgressForm::Auto)]
    progress: ProgressForm,
    #[command(flatten)]
    cluster: ClusterArgs,
}

const EXAMPLES: &str = "\
Examples:
  disklet upload disk.qcow2 https://host.example:8443/upload --token-file token --ca-file ca.crt
  disklet upload disk.qcow2 pvc/debian -n team --ca-file ca.crt

Exit code: 0 the volume is filled, durably; 1 it is not; 2 wrong usage.";

/// Why a disk was not sent.
#[derive(Debug)]
struct Failure {
    what: String,
    help: Option<String>,
    /// Whether it may help to try again.
    is_passing: bool,
}

impl Failure {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: None,
            is_passing: false,
        }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    fn passing(self) -> Self {
        Self {
            is_passing: true,
            ..self
        }
    }
}

pub(crate) fn run(args: &UploadArgs) -> ExitCode {
    match upload(args) {
        Ok(told) => print(told.as_bytes(), "the result"),
        Err(Failure { what, help, .. }) => {
            let mut text = format!("error: {what}\n");
            if let Some(help) = help {
                text.push_str(&format!("  help: {help}\n"));
            }
            let _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(1)
        }
    }
}

fn upload(args: &UploadArgs) -> Result<String, Failure> {
    let token = args.token_file.as_deref().map(token_of).transpose()?;
    let (url, at, token) = match args.url.strip_prefix("pvc/") {
        None => (address(args)?, None, token),
        Some(claim) => {
            let way = claim::reach(claim, &args.cluster, token.is_none())?;
            let url = Url::parse(&way.url).map_err(|why| {
                Failure::new(format!("claim {claim}: the address of its pod {why}"))
            })?;
            (url, Some(way.at), token.or(way.token))
        }
    };
    let stall = Duration::from_secs(args.stall_timeout);
    let client = Client::new(&url, at, token.as_ref(), args.ca_file.as_deref(), stall)?;
    let upload = Upload::open(&args.file, args.compress)?;
    let told = upload.send(&client, args.retries, args.progress)?;
    Ok(format!("{}: {told}\n", args.file.display()))
}

fn address(args: &UploadArgs) -> Result<Url, Failure> {
    // What is wrong with it is not said by clap, who would show a password.
    let url = Url::parse(&args.url).map_err(|why| Failure::new(format!("the address {why}")))?;
    let host = url.host().trim_matches(['[', ']']);
    let is_here = host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    match url.scheme() == Scheme::Http && !is_here && !args.plain_http {
        false => Ok(url),
        true => Err(Failure::new(format!("{url}: is not encrypted"))
            .help("use https://, or --plain-http if nobody can listen on the way")),
    }
}
