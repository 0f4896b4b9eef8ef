//! `disklet serve`: serves until it is told to end, or is done.
//!
//! ```text
//!   connection --asked--> body --channel--> Volume (a thread of its own)
//!       ^                                     |
//!       +--------------- answer <-------------+
//! ```

mod answer;
mod asked;
mod body;
mod connections;
mod metrics;
mod uploads;

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use disklet::fill::{Before, FillError, Order, Volume};
use disklet::progress::ProgressForm;
use disklet_core::units::{ByteSize, parse_quantity};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use asked::Token;
use connections::Server;
use uploads::Uploads;

/// Serve something over HTTP
#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    command: ServeCommand,
}

#[derive(Debug, Subcommand)]
enum ServeCommand {
    Upload(UploadArgs),
}

/// Fill a volume with a disk that somebody uploads, and end when that is durable
///
/// PUT /upload takes the disk: qcow2 or raw, inside gzip, xz or zstd or not. It becomes
/// a raw disk while it comes, without room for a copy. However it ends, the volume holds
/// the whole disk, or none. HEAD /upload tells from where an upload that was lost can go
/// on (Upload-Offset); a PUT with Content-Range does so. The state directory has what is
/// needed for that, also after a crash: it must not be inside the volume.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
struct UploadArgs {
    /// A file, a block device, or the directory of a volume, whose disk is then disk.img
    #[arg(long, value_name = "FILE|DEVICE|DIRECTORY")]
    target: PathBuf,
    /// Where it is noted how far the upload has come
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// A file with the token that uploads must bear
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// A directory with tls.crt and tls.key; without it, what is sent can be read on the
    /// way, the token included
    #[arg(long, value_name = "DIRECTORY")]
    tls_dir: Option<PathBuf>,
    /// Give up what the target holds; without it a target that holds something is left
    /// alone
    #[arg(long)]
    replace: bool,
    /// Stay when the volume is filled, and say so to whoever comes
    #[arg(long)]
    keep_serving: bool,
    /// Refuse disks that are larger
    #[arg(long, value_name = "SIZE", default_value = "64Ti", value_parser = size)]
    max_size: ByteSize,
    /// Where an image in an odd order is kept for a while [default: beside the file, else
    /// in TMPDIR]
    #[arg(long, value_name = "DIRECTORY")]
    scratch_dir: Option<PathBuf>,
    /// How long nothing may come of an upload before it counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    stall_timeout: u64,
    /// How to tell how far an upload has come
    #[arg(long, value_enum, default_value_t = ProgressForm::Auto)]
    progress: ProgressForm,
}

const EXAMPLES: &str = "\
Examples:
  disklet serve upload --target /dev/vol --state-dir state --token-file token --tls-dir tls
  curl -T disk.qcow2 -H \"Authorization: Bearer $(cat token)\" https://host:8443/upload
  disklet upload disk.qcow2 https://host:8443/upload --token-file token

Exit code: 0 the disk is there, and durable; 1 it is not; 2 wrong usage; 143 told to end
before.";

fn size(text: &str) -> Result<ByteSize, String> {
    parse_quantity(text).map_err(|error| error.to_string())
}

/// Why nothing is served.
#[derive(Debug)]
struct Failure {
    what: String,
    help: Option<String>,
}

impl From<FillError> for Failure {
    fn from(error: FillError) -> Self {
        Self {
            what: error.in_words(),
            help: error.remedy().map(str::to_owned),
        }
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self { what, help: None }
    }
}

pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    let ServeCommand::Upload(args) = &args.command;
    match serve(args) {
        Ok(code) => code,
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

fn serve(args: &UploadArgs) -> Result<ExitCode, Failure> {
    let token = Token::read(&args.token_file)?;
    let tls = args.tls()?;
    let volume = Volume::open(args.order(), &args.state_dir)?;
    if let Some((size, digest)) = volume.filled()
        && !args.keep_serving
    {
        let target = args.target.display();
        say(&format!(
            "{target}: is filled, {size} bytes from sha256:{digest}"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("no threads: {error}"))?;
    runtime.block_on(args.listen_with(token, tls, volume))
}

/// Standard output may be closed; that is no reason to serve nobody.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// As shells count the signal.
const TOLD_TO_END: u8 = 128 + 15;

impl UploadArgs {
    fn order(&self) -> Order {
        Order {
            target: self.target.clone(),
            before: match self.replace {
                true => Before::Anything,
                false => Before::Nothing,
            },
            digest: None,
            most: self.max_size,
            scratch: self.scratch_dir.clone(),
        }
    }

    async fn listen_with(
        &self,
        token: Token,
        tls: Option<TlsAcceptor>,
        volume: Volume,
    ) -> Result<ExitCode, Failure> {
        let unheard = |error: io::Error| format!("cannot listen at {}: {error}", self.listen);
        let listener = TcpListener::bind(self.listen).await.map_err(unheard)?;
        let address = listener.local_addr().map_err(unheard)?;
        let signals = |kind| signal(kind).map_err(|error| format!("no signals: {error}"));
        let mut terminated = signals(SignalKind::terminate())?;
        let mut interrupted = signals(SignalKind::interrupt())?;
        let (ends, ending) = watch::channel(false);
        let uploads = Uploads::new(
            volume,
            token,
            Duration::from_secs(self.stall_timeout),
            self.progress,
            ending.clone(),
        );
        let uploads = Arc::new(uploads);
        let scheme = if tls.is_some() { "https" } else { "http" };
        say(&format!("listening at {scheme}://{address}/upload"));
        let server = Server {
            tls,
            uploads: Arc::clone(&uploads),
        };
        let mut served = tokio::spawn(server.serve(listener, ending));
        let done = async {
            match self.keep_serving {
                true => std::future::pending().await,
                false => uploads.done().await,
            }
        };
        let code = tokio::select! {
            () = done => ExitCode::SUCCESS,
            _ = terminated.recv() => ExitCode::from(TOLD_TO_END),
            _ = interrupted.recv() => ExitCode::from(TOLD_TO_END),
            _ = &mut served => return Err("the server has ended".to_owned().into()),
        };
        let _ = ends.send(true);
        let _ = served.await;
        // What is in the midst of being written is written to its end.
        uploads.rest().await;
        Ok(match uploads.is_done() {
            true => ExitCode::SUCCESS,
            false => code,
        })
    }

    fn tls(&self) -> Result<Option<TlsAcceptor>, Failure> {
        let Some(directory) = &self.tls_dir else {
            return Ok(None);
        };
        let read = |name: &str| {
            let path = directory.join(name);
            let bytes = fs::read(&path);
            bytes.map_err(|error| format!("{}: cannot be read: {error}", path.display()))
        };
        let (chain, key) = (read("tls.crt")?, read("tls.key")?);
        let wrong = |name: &str, what: &str| format!("{}: {what}", directory.join(name).display());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let chain = chain.map_err(|_| wrong("tls.crt", "is not in PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|_| wrong("tls.key", "has no key in PEM in it"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| wrong("tls.crt", &format!("cannot be used: {error}")))?;
        Ok(Some(TlsAcceptor::from(Arc::new(config))))
    }
}
