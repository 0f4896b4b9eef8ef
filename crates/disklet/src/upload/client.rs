//! Requests to a server of uploads.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disklet_core::text::Secret;
use disklet_core::url::Url;
use ureq::http::{HeaderMap, Response, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body, SendBody};

use super::Failure;

/// The answer to a whole upload may take long: the server makes all of it durable before.
const DURABLE_WITHIN: Duration = Duration::from_secs(3600);

/// Whoever takes the disk.
#[derive(Clone)]
pub(super) struct Client {
    agent: Agent,
    url: Url,
    /// The value of `Authorization`.
    authorization: Option<Secret>,
    /// Nothing else is waited for longer.
    stall: Duration,
}

/// What is sent of an upload.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// Behind so many bytes, which came before.
    pub(super) from: u64,
    /// How long the whole is.
    pub(super) total: u64,
    /// How large the disk is, where the upload does not tell.
    pub(super) disk: Option<u64>,
    /// Of the whole.
    pub(super) digest: String,
}

/// How the upload stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) state: String,
    pub(super) offset: u64,
    pub(super) length: Option<u64>,
    /// Of what has filled the volume, as `sha256:…`.
    pub(super) digest: Option<String>,
    /// What was said last, to whoever was still sending.
    pub(super) error: Option<String>,
}

impl Client {
    /// Of a server; `at` is where it is reached if its name does not say so.
    pub(super) fn new(
        url: &Url,
        at: Option<SocketAddr>,
        token: Option<&Secret>,
        authorities: Option<&Path>,
        stall: Duration,
    ) -> Result<Self, Failure> {
        let bearer = |token: &Secret| Secret::new([b"Bearer ", token.expose()].concat());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(roots(authorities)?)
            .build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Neither the token nor the disk goes to whom nobody has named.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .user_agent(concat!("disklet/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .timeout_connect(Some(stall))
            .timeout_per_write(Some(stall))
            .timeout_recv_response(Some(DURABLE_WITHIN))
            .build();
        let agent = match at {
            None => config.new_agent(),
            Some(at) => Agent::with_parts(config, DefaultConnector::default(), There(at)),
        };
        Ok(Self {
            agent,
            url: url.clone(),
            authorization: token.map(bearer),
            stall,
        })
    }

    /// Where the server is, without secrets.
    pub(super) fn place(&self) -> String {
        self.url.to_string()
    }

    pub(super) fn stand(&self) -> Result<Standing, Failure> {
        let request = self.agent.head(self.asked()).config();
        let mut request = request.timeout_recv_response(Some(self.stall)).build();
        if let Some(words) = &self.authorization {
            request = request.header(header::AUTHORIZATION, words.expose());
        }
        let response = request.call().map_err(|error| self.unreachable(&error))?;
        if response.status().as_u16() != 200 {
            return Err(self.refused(response));
        }
        let headers = response.headers();
        let number = |name| text(headers, name).and_then(|it| it.parse().ok());
        let Some(offset) = number("upload-offset") else {
            let what = format!("{}: does not take uploads", self.place());
            return Err(Failure::new(what).help("the path is /upload"));
        };
        Ok(Standing {
            state: text(headers, "upload-state").unwrap_or_default(),
            offset,
            length: number("upload-length"),
            digest: text(headers, "upload-digest"),
            error: text(headers, "upload-error"),
        })
    }

    /// How long nothing may come or go.
    pub(super) fn patience(&self) -> Duration {
        self.stall
    }

    /// Sends a rest; what the server says when all of it is durable.
    pub(super) fn put(&self, body: impl Read + 'static, sent: &Sent) -> Result<String, Failure> {
        let Sent { from, total, .. } = *sent;
        let mut request = self
            .agent
            .put(self.asked())
            .header(header::EXPECT, "100-continue")
            .header(header::CONTENT_LENGTH, (total - from).to_string())
            .header("X-Checksum-Sha256", &sent.digest);
        if let Some(disk) = sent.disk {
            request = request.header("Upload-Disk-Size", disk.to_string());
        }
        if from > 0 {
            let range = format!("bytes {from}-{}/{total}", total - 1);
            request = request.header(header::CONTENT_RANGE, range);
        }
        if let Some(words) = &self.authorization {
            request = request.header(header::AUTHORIZATION, words.expose());
        }
        let sent = request.send(SendBody::from_owned_reader(body));
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        match response.status().as_u16() {
            201 => Ok(words(&mut response)),
            _ => Err(self.refused(response)),
        }
    }

    fn asked(&self) -> String {
        String::from_utf8_lossy(self.url.request().expose()).into_owned()
    }

    /// In the server's words.
    fn refused(&self, mut response: Response<Body>) -> Failure {
        let status = response.status().as_u16();
        let told = match words(&mut response) {
            _ if (300..400).contains(&status) => {
                "leads elsewhere, and is not followed there".to_owned()
            }
            told if told.is_empty() => "refused".to_owned(),
            told => told,
        };
        let failure = Failure::new(format!("{}: {told} (status {status})", self.place()));
        match is_passing(status) {
            true => failure.passing(),
            false => failure,
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let failure = Failure::new(format!("{}: {error}", self.place()));
        match error {
            error if is_of_certificates(error) => {
                failure.help("an authority of your own is said with --ca-file")
            }
            ureq::Error::HostNotFound => failure.help("check the address"),
            _ => failure.passing(),
        }
    }
}

/// A problem with certificates comes as a problem with reading, too.
fn is_of_certificates(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Rustls(_) => true,
        ureq::Error::Io(error) => {
            let inner = error.get_ref();
            inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
        }
        _ => false,
    }
}

/// Whether a server may answer otherwise later. An upload that ended early, and one that
/// goes on elsewhere than where we thought, are asked about again; and who else uploads
/// may be ourselves, on a connection that the server does not know to be lost.
pub(super) fn is_passing(status: u16) -> bool {
    matches!(status, 400 | 408 | 409 | 416 | 429 | 500 | 502..=504)
}

fn words(response: &mut Response<Body>) -> String {
    const MOST: u64 = 4096;
    let text = response
        .body_mut()
        .with_config()
        .limit(MOST)
        .read_to_string();
    let text = text.unwrap_or_default();
    // Whatever the server is, it writes no escapes to a terminal.
    text.trim().chars().filter(|it| !it.is_control()).collect()
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.trim().to_owned())
}

fn roots(authorities: Option<&Path>) -> Result<RootCerts, Failure> {
    let Some(path) = authorities else {
        // What of it cannot be read is not missed until a server needs it.
        let system = rustls_native_certs::load_native_certs().certs;
        let owned = system
            .iter()
            .map(|der| Certificate::from_der(der).to_owned());
        return Ok(RootCerts::new_with_certs(&owned.collect::<Vec<_>>()));
    };
    let text = small_file(path)?;
    let found: Vec<_> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match found.is_empty() {
        false => Ok(RootCerts::new_with_certs(&found)),
        true => {
            let what = format!("{}: has no certificate in PEM in it", path.display());
            Err(Failure::new(what))
        }
    }
}

/// The token in a file, which is the only word there.
pub(super) fn token_of(path: &Path) -> Result<Secret, Failure> {
    one_word(&small_file(path)?, &path.display().to_string())
}

pub(super) fn one_word(text: &[u8], place: &str) -> Result<Secret, Failure> {
    let token = text.trim_ascii();
    let is_one = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    match is_one {
        true => Ok(Secret::new(token)),
        false => Err(Failure::new(format!(
            "{place}: does not have one word, the token"
        ))),
    }
}

/// Leads to one place, whatever it is called.
#[derive(Debug)]
struct There(SocketAddr);

impl Resolver for There {
    fn resolve(
        &self,
        _: &ureq::http::Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut found = self.empty();
        found.push(self.0);
        Ok(found)
    }
}

fn small_file(path: &Path) -> Result<Vec<u8>, Failure> {
    const MOST: u64 = 4 << 20;
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MOST).read_to_end(&mut bytes))
        .map_err(|error| Failure::new(format!("{}: cannot be read: {error}", path.display())))?;
    Ok(bytes)
}
