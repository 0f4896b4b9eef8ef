//! What a connection is made with: certificates, proxies, times.

use std::fs;
use std::io::Read;
use std::sync::Arc;

use disklet_core::images::{Pem, Tls, Transport};
use disklet_core::url::{Scheme, Url};
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Proxy};

use super::judging::Judging;
use crate::pull::{PullError, PullErrorKind};

type Result<T> = std::result::Result<T, PullError>;

/// Certificates, read once for all connections of a pull.
#[derive(Debug, Clone)]
pub(super) struct Certificates {
    roots: RootCerts,
    client: Option<ClientCert>,
}

impl Certificates {
    pub(super) fn read(tls: &Tls) -> Result<Self> {
        let mut roots = Vec::new();
        for pem in &tls.authorities {
            roots.extend(certificates(pem)?);
        }
        if tls.authorities.is_empty() {
            // What of it cannot be read is not missed until a server needs it.
            let system = rustls_native_certs::load_native_certs().certs;
            let owned =
                |der: &rustls::pki_types::CertificateDer<'_>| Certificate::from_der(der).to_owned();
            roots.extend(system.iter().map(owned));
        }
        let client = match &tls.client {
            None => None,
            Some(client) => {
                let chain = certificates(&client.certificate)?;
                Some(ClientCert::new_with_certs(
                    &chain,
                    private_key(&client.key)?,
                ))
            }
        };
        Ok(Self {
            roots: RootCerts::new_with_certs(&roots),
            client,
        })
    }
}

/// Who makes requests to an address, and keeps so many connections for the next ones.
/// Only whom the user has named gets to see who we are.
pub(super) fn agent(
    url: &Url,
    transport: &Transport,
    certificates: &Certificates,
    is_trusted: bool,
    kept: usize,
) -> Result<Agent> {
    let client = certificates.client.clone().filter(|_| is_trusted);
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(certificates.roots.clone())
        .client_cert(client)
        .disable_verification(transport.tls.insecure)
        .build();
    let proxy = way(url, transport)?.map(|way| way.proxy);
    // Behind a proxy, the proxy decides where it goes.
    let networks = transport.networks.as_ref().filter(|_| proxy.is_none());
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // They are followed by hand: secrets must not go along.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(kept)
        .max_idle_connections_per_host(kept)
        .user_agent(concat!("disklet/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .tls_config(tls)
        .proxy(proxy)
        .timeout_per_call(transport.timeout)
        .timeout_resolve(Some(transport.connect_timeout))
        .timeout_connect(Some(transport.connect_timeout))
        .timeout_recv_response(Some(transport.stall_timeout))
        .timeout_per_read(Some(transport.stall_timeout))
        .timeout_per_write(Some(transport.stall_timeout))
        .build();
    Ok(match networks {
        None => config.new_agent(),
        Some(networks) => {
            let connector = DefaultConnector::default();
            Agent::with_parts(config, connector, Judging::by(networks.clone()))
        }
    })
}

/// Through whom a server is asked.
pub(super) struct Way {
    proxy: Proxy,
    /// The proxy, and who has said it.
    pub(super) words: String,
}

/// The mapping's proxy, else that of the environment for such addresses.
pub(super) fn way(url: &Url, transport: &Transport) -> Result<Option<Way>> {
    if let Some(proxy) = &transport.proxy {
        return through(proxy, "the mapping's").map(Some);
    }
    let variables = match url.scheme() {
        Scheme::Http => ["http_proxy", "all_proxy"],
        Scheme::Https => ["https_proxy", "all_proxy"],
    };
    let value = |name: &str| {
        [name.to_owned(), name.to_uppercase()]
            .iter()
            .filter_map(|name| std::env::var(name).ok())
            .find(|value| !value.trim().is_empty())
    };
    let exceptions = value("no_proxy").unwrap_or_default();
    let Some((name, text)) = variables
        .into_iter()
        .find_map(|name| Some((name, value(name)?)))
    else {
        return Ok(None);
    };
    if is_excepted(url.host(), &exceptions) {
        return Ok(None);
    }
    let text = match text.contains("://") {
        true => text,
        false => format!("http://{text}"),
    };
    let proxy = Url::parse(&text).map_err(|why| {
        PullError::new(
            PullErrorKind::Settings,
            format!("the variable {name}: the proxy's address {why}"),
        )
    })?;
    through(&proxy, &format!("the variable {name}'s")).map(Some)
}

fn through(proxy: &Url, whose: &str) -> Result<Way> {
    Ok(Way {
        words: format!("{whose} proxy {proxy}"),
        proxy: as_proxy(proxy)?,
    })
}

fn as_proxy(proxy: &Url) -> Result<Proxy> {
    let wrong = || PullError::new(PullErrorKind::Settings, format!("{proxy} is no proxy"));
    let text = proxy.request();
    let text = std::str::from_utf8(text.expose()).map_err(|_| wrong())?;
    let plain = Proxy::new(text).map_err(|_| wrong())?;
    let Some(login) = proxy.login() else {
        return Ok(plain);
    };
    let words = [&login.user, &login.password].map(|word| String::from_utf8(word.expose().into()));
    let [Ok(user), Ok(password)] = words else {
        return Err(wrong());
    };
    Proxy::builder(plain.protocol())
        .host(plain.host())
        .port(plain.port())
        .username(&user)
        .password(&password)
        .build()
        .map_err(|_| wrong())
}

/// Whether a host is among the exceptions: itself, or a domain that it is in.
fn is_excepted(host: &str, exceptions: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    exceptions.split(',').any(|exception| {
        let exception = exception.trim().to_ascii_lowercase();
        let domain = exception.trim_start_matches('*').trim_start_matches('.');
        exception == "*"
            || (!domain.is_empty() && (host == domain || host.ends_with(&format!(".{domain}"))))
    })
}

fn certificates(pem: &Pem) -> Result<Vec<Certificate<'static>>> {
    let text = read(pem)?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(_) => return Err(unusable(pem, "is not in PEM")),
        }
    }
    match found.is_empty() {
        true => Err(unusable(pem, "has no certificate in PEM in it")),
        false => Ok(found),
    }
}

fn private_key(pem: &Pem) -> Result<PrivateKey<'static>> {
    PrivateKey::from_pem(&read(pem)?).map_err(|_| unusable(pem, "has no key in PEM in it"))
}

fn read(pem: &Pem) -> Result<Vec<u8>> {
    match pem {
        Pem::Inline(text) => Ok(text.expose().to_vec()),
        Pem::File(path) => small_file(path),
    }
}

/// A file of certificates or credentials.
pub(super) fn small_file(path: &str) -> Result<Vec<u8>> {
    const MOST: u64 = 4 << 20;
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MOST).read_to_end(&mut bytes))
        .map_err(|error| {
            PullError::new(PullErrorKind::Settings, format!("{path}: cannot be read"))
                .because(error)
        })?;
    Ok(bytes)
}

fn unusable(pem: &Pem, why: &str) -> PullError {
    let what = match pem {
        Pem::Inline(_) => "a certificate of the mapping",
        Pem::File(path) => path,
    };
    PullError::new(PullErrorKind::Settings, format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::is_excepted;

    #[test]
    fn exceptions_are_hosts_and_domains() {
        for exceptions in [
            "*",
            "host.example",
            " .example , x",
            "*.example",
            "x,EXAMPLE",
        ] {
            assert!(is_excepted("host.example", exceptions), "{exceptions}");
        }
        for exceptions in ["", ",", "st.example", "example.org", "127.0.0.1"] {
            assert!(!is_excepted("host.example", exceptions), "{exceptions}");
        }
        assert!(is_excepted("[::1]", "::1"));
    }
}
