//! One request for a file, redirects followed.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use disklet_core::images::Address;
use disklet_core::text::Secret;
use disklet_core::url::{Scheme, Url};
use ureq::http::{Response, header};
use ureq::{Agent, Body};

use super::agent::{Certificates, agent, small_file, way};
use super::answer::{Answer, length_without_part, wrong_part};
use super::judging::Closed;
use super::session::Session;
use crate::pull::{PullError, PullErrorKind};
use crate::store::Validator;

type Result<T> = std::result::Result<T, PullError>;

/// Asks for a file.
#[derive(Debug, Clone)]
pub(in crate::pull) struct Client {
    address: Address,
    certificates: Certificates,
    /// The value of `Authorization`.
    authorization: Option<Secret>,
    /// Of a registry, who we are there.
    session: Option<Arc<Session>>,
    /// What sort of answer is wanted.
    accept: Option<&'static str>,
    /// Whether what the address stands for never changes.
    is_by_digest: bool,
}

/// The rest of a file that is still the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest<'v> {
    pub(super) from: u64,
    /// None if the address itself says what it is of.
    pub(super) validator: Option<&'v Validator>,
}

/// What a server is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked<'v> {
    All,
    Rest(Rest<'v>),
    /// From one byte to another, both included.
    Part(u64, u64),
    /// Whether it has another one.
    Unless(&'v Validator),
}

impl Client {
    pub(in crate::pull) fn new(address: &Address) -> Result<Self> {
        let transport = &address.transport;
        let of_tenant = || transport.authorization.clone();
        let authorization = match (&transport.credentials_file, address.url.login()) {
            (Some(path), _) => Some(read_authorization(path)?),
            (None, Some(login)) => Some(basic(login.user.expose(), login.password.expose())),
            (None, None) => of_tenant(),
        };
        Ok(Self {
            certificates: Certificates::read(&transport.tls)?,
            address: address.clone(),
            authorization,
            session: None,
            accept: None,
            is_by_digest: false,
        })
    }

    /// The same at another address of a registry.
    pub(in crate::pull) fn at(&self, url: Url, session: &Arc<Session>) -> Self {
        let address = Address {
            url,
            ..self.address.clone()
        };
        Self {
            certificates: self.certificates.clone(),
            authorization: None,
            session: Some(session.clone()),
            accept: None,
            is_by_digest: false,
            address,
        }
    }

    /// The same, telling the server this alone.
    pub(super) fn with_words(&self, url: Url, authorization: Option<Secret>) -> Self {
        let address = Address {
            url,
            ..self.address.clone()
        };
        Self {
            certificates: self.certificates.clone(),
            authorization,
            session: None,
            accept: None,
            is_by_digest: false,
            address,
        }
    }

    /// What sort of answer is wanted.
    pub(in crate::pull) fn accepting(self, accept: &'static str) -> Self {
        Self {
            accept: Some(accept),
            ..self
        }
    }

    /// The address has a digest in it.
    pub(in crate::pull) fn by_digest(self) -> Self {
        Self {
            is_by_digest: true,
            ..self
        }
    }

    /// Whether what the address stands for never changes.
    pub(super) fn is_by_digest(&self) -> bool {
        self.is_by_digest
    }

    pub(in crate::pull) fn url(&self) -> &Url {
        &self.address.url
    }

    /// The file, or its rest: whichever the server sends.
    pub(super) fn get(&self, rest: Option<Rest<'_>>) -> Result<Answer> {
        let (url, response) = self.follow(rest.map_or(Asked::All, Asked::Rest))?;
        match response.status().as_u16() {
            200 | 206 => right_part(Answer::of(response, &url.to_string())?, &url, rest),
            416 if has_part(&response, rest) => {
                let why = "the server does not send the part that it was asked for (status 416)";
                Err(wrong_part(&url.to_string(), why))
            }
            status => Err(self.refused(&url, status)),
        }
    }

    /// Whether the server gives us the file, and it is still the same.
    pub(in crate::pull) fn has_still(&self, validator: &Validator) -> Result<bool> {
        let (url, response) = self.follow(Asked::Unless(validator))?;
        match response.status().as_u16() {
            304 => Ok(true),
            // It does not care what we have; no more of it is read.
            200 => {
                let answer = Answer::of(response, &url.to_string())?;
                Ok(answer.validator.as_ref() == Some(validator))
            }
            status => Err(self.refused(&url, status)),
        }
    }

    /// The answer of whom the address leads to.
    pub(super) fn follow(&self, asked: Asked<'_>) -> Result<(Url, Response<Body>)> {
        let mut url = self.address.url.clone();
        let most = self.address.transport.max_redirects;
        for _ in 0..=most {
            let told = self.words();
            let mut response = self.ask(&url, asked)?;
            // Another connection may have found out before this one what to say.
            if let Some(session) = &self.session
                && response.status().as_u16() == 401
                && self.trusts(&url)
                && (session.challenged(response.headers(), self)? || self.words() != told)
            {
                response = self.ask(&url, asked)?;
            }
            match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => url = redirected(&url, &response)?,
                _ => return Ok((url, response)),
            }
        }
        Err(PullError::new(
            PullErrorKind::Redirect,
            format!("{}: leads on more than {most} times", self.address.url),
        )
        .help("see that the server does not lead in a circle, or use the address that it leads to in the end"))
    }

    fn ask(&self, url: &Url, asked_for: Asked<'_>) -> Result<Response<Body>> {
        self.ask_by(&self.agent(url, 0)?, url, asked_for)
    }

    /// Whoever makes requests to this address, and keeps so many connections for
    /// the next ones.
    pub(super) fn agent(&self, url: &Url, kept: usize) -> Result<Agent> {
        let transport = &self.address.transport;
        agent(url, transport, &self.certificates, self.trusts(url), kept)
    }

    /// Neither words nor certificates go to whom the user has not named.
    fn trusts(&self, url: &Url) -> bool {
        url.is_same_origin(&self.address.url)
    }

    pub(super) fn ask_by(
        &self,
        agent: &Agent,
        url: &Url,
        asked_for: Asked<'_>,
    ) -> Result<Response<Body>> {
        let asked = url.request();
        let asked = String::from_utf8_lossy(asked.expose()).into_owned();
        let mut request = agent.get(asked);
        if self.trusts(url)
            && let Some(words) = self.words()
        {
            request = request.header(header::AUTHORIZATION, words.expose());
        }
        if let Some(accept) = self.accept {
            request = request.header(header::ACCEPT, accept);
        }
        match asked_for {
            Asked::All => {}
            Asked::Rest(rest) => {
                request = request.header(header::RANGE, format!("bytes={}-", rest.from));
                if let Some(validator) = rest.validator {
                    request = request.header(header::IF_RANGE, validator.as_str());
                }
            }
            Asked::Part(first, last) => {
                request = request.header(header::RANGE, format!("bytes={first}-{last}"));
            }
            Asked::Unless(validator) => {
                let condition = match validator {
                    Validator::Etag(_) => header::IF_NONE_MATCH,
                    Validator::LastModified(_) => header::IF_MODIFIED_SINCE,
                };
                request = request.header(condition, validator.as_str());
            }
        }
        let answer = request.call();
        answer.map_err(|error| self.not_reached(url, error))
    }

    /// Says something to a server, and is led nowhere.
    pub(super) fn post(&self, form: &Secret) -> Result<Response<Body>> {
        let url = &self.address.url;
        let asked = url.request();
        let asked = String::from_utf8_lossy(asked.expose()).into_owned();
        let request = self.agent(url, 0)?.post(asked);
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let sent = request.send(form.expose());
        sent.map_err(|error| self.not_reached(url, error))
    }

    /// Why there is no answer; where a proxy is asked, it may be the proxy's doing.
    fn not_reached(&self, url: &Url, error: ureq::Error) -> PullError {
        let says_the_proxy = matches!(error, ureq::Error::ConnectProxyFailed(_));
        let error = unreachable(url, error);
        let way = way(url, &self.address.transport).ok().flatten();
        match way.filter(|_| error.kind() == PullErrorKind::Unreachable) {
            None => error,
            Some(way) if says_the_proxy => error.through(&way.words),
            Some(way) => error.through(&way.words).help(format!(
                "see that {} runs and lets this address through; no_proxy names those that need none",
                way.words
            )),
        }
    }

    /// What a server that is trusted is told.
    fn words(&self) -> Option<Secret> {
        let session = self.session.as_ref();
        let of_session = session.and_then(|session| session.words());
        of_session.or_else(|| self.authorization.clone())
    }

    pub(super) fn refused(&self, url: &Url, status: u16) -> PullError {
        let (kind, why) = match status {
            404 | 410 => (PullErrorKind::NotFound, "the server does not have it"),
            401 | 403 | 407 => (PullErrorKind::Denied, "the server does not give it to us"),
            416 => (PullErrorKind::Changed, "the file has become shorter"),
            408 | 429 | 500..=599 => (PullErrorKind::Busy, "the server cannot answer now"),
            _ => (
                PullErrorKind::Protocol,
                "the server's answer makes no sense",
            ),
        };
        let way = way(url, &self.address.transport).ok().flatten();
        let why = match way.filter(|_| status == 407) {
            Some(way) => format!("{} does not let us through", way.words),
            None => why.to_owned(),
        };
        let error = PullError::new(kind, format!("{url}: {why} (status {status})"));
        match kind {
            PullErrorKind::Denied if status == 407 => error.help(PROXY_LOGIN),
            PullErrorKind::Busy => error.passing().help("try again later"),
            PullErrorKind::Denied if self.session.is_some() => error.help(
                "check the image's name: registries say this of images that they do not have, too; credentials are those of docker login, or of --auth-file",
            ),
            PullErrorKind::Denied if self.authorization.is_none() => error.help(
                "give credentials: credentialsFile of a transport, see docs/formats/image-mapping.md",
            ),
            PullErrorKind::Denied => error.help("check the credentials"),
            PullErrorKind::Changed => error.help("pull it again: it begins at the beginning"),
            _ => error,
        }
    }
}

/// Whoever is asked for a part sends that, or all; what begins elsewhere is of no
/// use.
fn right_part(answer: Answer, url: &Url, rest: Option<Rest<'_>>) -> Result<Answer> {
    let asked = rest.map_or(0, |rest| rest.from);
    match answer.from == 0 || answer.from == asked {
        true => Ok(answer),
        false => Err(wrong_part(
            &url.to_string(),
            "the server sends another part than it was asked for",
        )),
    }
}

/// Whether the file is long enough for what it was asked for.
fn has_part(response: &Response<Body>, rest: Option<Rest<'_>>) -> bool {
    let length = length_without_part(response.headers());
    rest.is_some_and(|rest| length.is_some_and(|length| length > rest.from))
}

const PROXY_LOGIN: &str = "see that the proxy lets this address through; a user and a password for it stand in its own address, as http://USER:PASSWORD@HOST:PORT";

/// Where an answer leads to.
fn redirected(url: &Url, response: &Response<Body>) -> Result<Url> {
    let refuse = |why: String| PullError::new(PullErrorKind::Redirect, format!("{url}: {why}"));
    let to = response
        .headers()
        .get(header::LOCATION)
        .ok_or_else(|| refuse("leads on, but not where to".to_owned()))?;
    let to = to.to_str().ok().map(|text| url.join(text.trim()));
    let next = match to {
        Some(Ok(next)) => next,
        Some(Err(why)) => return Err(refuse(format!("leads on to an address that {why}"))),
        None => return Err(refuse("leads on to what is no address".to_owned())),
    };
    if url.scheme() == Scheme::Https && next.scheme() == Scheme::Http {
        return Err(refuse(format!(
            "leads on to {next}, which is not encrypted, and is not followed there"
        ))
        .help(
            "have the server lead to an address with https://, or use one that begins with http://",
        ));
    }
    Ok(next)
}

/// The errors of the library, in a user's words.
fn unreachable(url: &Url, error: ureq::Error) -> PullError {
    let told = |why: &str| PullError::new(PullErrorKind::Unreachable, format!("{url}: {why}"));
    match error {
        ureq::Error::HostNotFound => no_such_name(url, io::ErrorKind::NotFound.into()),
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            told("the connection takes too long").passing()
        }
        ureq::Error::Timeout(_) => told("the server does not answer in time").passing(),
        ureq::Error::Rustls(error) => {
            let what = format!("{url}: the connection is not safe");
            PullError::new(PullErrorKind::Untrusted, what)
                .because(error)
                .help("an authority of your own is said with caFile of a transport, see docs/formats/image-mapping.md")
        }
        ureq::Error::Other(why) if why.is::<Closed>() => PullError::new(
            PullErrorKind::Closed,
            format!("{url}: {why}"),
        )
        .help(
            "the administrator says which networks are closed, with networks in the configuration",
        ),
        ureq::Error::ConnectProxyFailed(why) => told("the proxy does not connect")
            .because(why)
            .help(PROXY_LOGIN),
        error @ (ureq::Error::Protocol(_)
        | ureq::Error::Http(_)
        | ureq::Error::LargeResponseHeader(..)) => told("the server's answer makes no sense")
            .because(error)
            .help(
                "check the address and the port: something else than a web server may listen there",
            )
            .passing(),
        error => {
            let error = error.into_io();
            match tls_error(&error) {
                Some(tls) => unreachable(url, ureq::Error::Rustls(tls)),
                // The standard library has no kind for it.
                None if error.to_string().contains("lookup address") => no_such_name(url, error),
                None => {
                    let (what, help) = of_connection(error.kind());
                    told(what).because(error).help(help).passing()
                }
            }
        }
    }
}

/// What an error of a connection is, and what to do about it.
fn of_connection(kind: io::ErrorKind) -> (&'static str, &'static str) {
    match kind {
        io::ErrorKind::ConnectionRefused => (
            "the server cannot be reached",
            "nobody listens there: check the address and the port, and that the server runs",
        ),
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted => (
            "the server ends the connection without an answer",
            "try again later; check the address and the port, and whether it wants https://",
        ),
        _ => (
            "the server cannot be reached",
            "check the address, and whether this machine has a way there",
        ),
    }
}

fn no_such_name(url: &Url, error: io::Error) -> PullError {
    let what = format!("{url}: the name {} cannot be looked up", url.host());
    PullError::new(PullErrorKind::Unreachable, what)
        .because(error)
        .help("check the address, and this machine's name server")
        .passing()
}

/// A problem with certificates comes as a problem with reading.
fn tls_error(error: &io::Error) -> Option<rustls::Error> {
    error.get_ref()?.downcast_ref::<rustls::Error>().cloned()
}

fn read_authorization(path: &str) -> Result<Secret> {
    let wrong = |why: &str| {
        PullError::new(PullErrorKind::Settings, format!("{path}: {why}"))
            .help("write one line: USER:PASSWORD or Bearer TOKEN")
    };
    let bytes = small_file(path)?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not text in UTF-8"))?;
    let line = text.trim();
    if line.is_empty() || line.contains(['\r', '\n']) {
        return Err(wrong("does not have one line"));
    }
    if line.starts_with("Bearer ") {
        return Ok(Secret::new(line));
    }
    let (user, password) = line
        .split_once(':')
        .ok_or_else(|| wrong("has neither a password nor a token in it"))?;
    Ok(basic(user.as_bytes(), password.as_bytes()))
}

fn basic(user: &[u8], password: &[u8]) -> Secret {
    let words = [user, b":", password].concat();
    Secret::new(format!("Basic {}", STANDARD.encode(words)))
}
