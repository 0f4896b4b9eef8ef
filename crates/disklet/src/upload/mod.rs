//! `disklet upload`: sends a disk to whoever fills a volume with it.

mod client;
mod file;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use disklet::progress::ProgressForm;
use disklet::report::print;
use disklet_core::url::{Scheme, Url};

use client::Client;
use file::Upload;

/// Send a disk to `disklet serve upload`
///
/// The file goes as it is: qcow2 or raw, inside gzip, xz or zstd or not. It is read once
/// before, for its checksum, which the server demands of what has come. A lost connection
/// is taken up again where the server says; so is an upload that was killed, when the same
/// command is run again.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct UploadArgs {
    /// The file
    file: PathBuf,
    /// Where to send it, https://HOST[:PORT]/upload
    url: String,
    /// A file with the token of the upload
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates of the authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Send it, and the token, although they can be read on the way; without it http://
    /// is for this machine only
    #[arg(long)]
    plain_http: bool,
    /// How often in a row to try to go on after a lost connection
    #[arg(long, value_name = "TIMES", default_value_t = 10)]
    retries: u32,
    /// How to tell how far it has come
    #[arg(long, value_enum, default_value_t = ProgressForm::Auto)]
    progress: ProgressForm,
}

const EXAMPLES: &str = "\
Examples:
  disklet upload disk.qcow2 https://host.example:8443/upload --token-file token --ca-file ca.crt

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
    if args.url.starts_with("pvc/") {
        return Err(Failure::new("claims cannot be named yet")
            .help("run disklet serve upload in a pod with the claim, and give its address"));
    }
    let url = address(args)?;
    let client = Client::new(&url, args.token_file.as_deref(), args.ca_file.as_deref())?;
    let upload = Upload::open(&args.file)?;
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
