//! How images are fetched.

use std::time::Duration;

use crate::diag::Diagnostic;
use crate::diag::Diagnostics;
use crate::networks::Networks;
use crate::text::Secret;
use crate::url::Url;
use crate::yaml::{Fields, View};

/// How a file is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transport {
    /// How long one request may take, its whole answer included.
    pub timeout: Option<Duration>,
    /// How long it may take to be connected.
    pub connect_timeout: Duration,
    /// How long nothing may come.
    pub stall_timeout: Duration,
    /// How many redirects are followed.
    pub max_redirects: u32,
    /// Where the server must not be, nor whom it leads on to; absent: anywhere.
    pub networks: Option<Networks>,
    /// The proxy, instead of the environment's.
    pub proxy: Option<Url>,
    /// A file with `USER:PASSWORD` or `Bearer TOKEN`.
    pub credentials_file: Option<String>,
    /// What the server is told instead, as the value of `Authorization`: a
    /// tenant's own credentials.
    pub authorization: Option<Secret>,
    /// Whom to trust, and who we are.
    pub tls: Tls,
}

/// Whom to trust, and who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of authorities, instead of the system's.
    pub authorities: Vec<Pem>,
    /// Who we are.
    pub client: Option<ClientCertificate>,
    /// Anybody may claim to be the server.
    pub insecure: bool,
}

/// Our own certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, and those that vouch for it.
    pub certificate: Pem,
    /// Its key.
    pub key: Pem,
}

/// Text in PEM, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text; it may be a key.
    Inline(Secret),
    /// A file of the node.
    File(String),
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            timeout: None,
            connect_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            max_redirects: 10,
            networks: None,
            proxy: None,
            credentials_file: None,
            authorization: None,
            tls: Tls::default(),
        }
    }
}

const FIELDS: [&str; 7] = [
    "timeout",
    "connectTimeout",
    "stallTimeout",
    "maxRedirects",
    "proxy",
    "credentialsFile",
    "tls",
];

impl Transport {
    pub(super) fn read(view: &View<'_>, files: NodeFiles, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let mut transport = Self {
            timeout: milliseconds(&mut fields, "timeout", diags),
            ..Self::default()
        };
        if let Some(time) = milliseconds(&mut fields, "connectTimeout", diags) {
            transport.connect_timeout = time;
        }
        if let Some(time) = milliseconds(&mut fields, "stallTimeout", diags) {
            transport.stall_timeout = time;
        }
        if let Some(most) = number(&mut fields, "maxRedirects", 0..=20, diags) {
            transport.max_redirects = most;
        }
        if let Some(proxy) = fields.spanned_text("proxy", diags) {
            match Url::parse(&proxy.value) {
                Ok(url) => transport.proxy = Some(url),
                // It may hold a password.
                Err(why) => diags.push(Diagnostic::error(
                    &proxy.place,
                    format!("the proxy's address {why}"),
                )),
            }
        }
        transport.credentials_file = files.path(&mut fields, "credentialsFile", diags);
        if let Some(view) = fields.get("tls") {
            transport.tls = Tls::read(&view, files, diags)?;
        }
        fields.no_others(&FIELDS, diags);
        Some(transport)
    }
}

impl Tls {
    fn read(view: &View<'_>, files: NodeFiles, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let mut tls = Self {
            insecure: fields.flag("insecure", diags),
            ..Self::default()
        };
        if let Some(name) = fields.get("serverName") {
            diags.push(
                Diagnostic::error(&name.place, "a server's other name is not supported")
                    .help("use the name that its certificate has in the address"),
            );
        }
        for item in fields.items("certificates", diags) {
            tls.take_certificate(&item, diags);
        }
        let authorities = files.path(&mut fields, "caFile", diags);
        tls.authorities.extend(authorities.map(Pem::File));
        let client = ["certFile", "keyFile"].map(|key| files.path(&mut fields, key, diags));
        match client.map(|file| file.map(Pem::File)) {
            [Some(certificate), Some(key)] => tls.take_client(certificate, key, view, diags),
            [None, None] => {}
            _ => diags.push(Diagnostic::error(
                fields.place(),
                "certFile and keyFile must be given together",
            )),
        }
        fields.no_others(
            &["certificates", "caFile", "certFile", "keyFile", "insecure"],
            diags,
        );
        Some(tls)
    }

    /// As with Virtlet, one with a key is ours, and one without an authority's.
    fn take_certificate(&mut self, view: &View<'_>, diags: &mut Diagnostics) {
        let Some(mut fields) = view.fields(diags) else {
            return;
        };
        let mut pem = |key: &str, diags: &mut Diagnostics| {
            let text = fields.text(key, diags)?;
            Some(Pem::Inline(Secret::new(text)))
        };
        let key = pem("key", diags);
        let certificate = pem("cert", diags);
        fields.no_others(&["cert", "key"], diags);
        match (certificate, key) {
            (Some(certificate), None) => self.authorities.push(certificate),
            (Some(certificate), Some(key)) => self.take_client(certificate, key, view, diags),
            (None, _) => {
                fields.required("cert", diags);
            }
        }
    }

    fn take_client(
        &mut self,
        certificate: Pem,
        key: Pem,
        view: &View<'_>,
        diags: &mut Diagnostics,
    ) {
        let client = ClientCertificate { certificate, key };
        if self.client.replace(client).is_some() {
            diags.push(Diagnostic::error(
                &view.place,
                "there can be one certificate with a key only",
            ));
        }
    }
}

fn milliseconds(fields: &mut Fields<'_>, key: &str, diags: &mut Diagnostics) -> Option<Duration> {
    let number = number(fields, key, 1..=86_400_000, diags)?;
    Some(Duration::from_millis(number.into()))
}

fn number(
    fields: &mut Fields<'_>,
    key: &str,
    range: std::ops::RangeInclusive<u32>,
    diags: &mut Diagnostics,
) -> Option<u32> {
    let view = fields.get(key)?;
    let number = view.int(diags)?;
    let fitting = u32::try_from(number).ok().filter(|it| range.contains(it));
    if fitting.is_none() {
        let (least, most) = (range.start(), range.end());
        diags.push(
            Diagnostic::error(&view.place, "out of range")
                .found(number)
                .allowed(format!("{least} to {most}")),
        );
    }
    fitting
}

/// Whether a mapping may name files of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeFiles {
    /// It is a file of the node itself.
    Allowed,
    /// It is an object of a cluster.
    Refused,
}

impl NodeFiles {
    fn path(self, fields: &mut Fields<'_>, key: &str, diags: &mut Diagnostics) -> Option<String> {
        let text = fields.spanned_text(key, diags)?;
        if self == Self::Refused {
            diags.push(
                Diagnostic::error(
                    &text.place,
                    "an object of a cluster cannot name a file of the nodes",
                )
                .help("put it into a mapping file of the nodes (imageTranslations); certificates can stand in tls.certificates, and users have imagePullSecrets"),
            );
            return None;
        }
        match crate::config::parse_host_path(&text.value) {
            Ok(path) => Some(path),
            Err(why) => {
                let problem = Diagnostic::error(&text.place, why);
                diags.push(problem.found(format!("{:?}", text.value)));
                None
            }
        }
    }
}
