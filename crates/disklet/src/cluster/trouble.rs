//! Why a cluster cannot be asked, or has not done what it was asked for, in words for
//! people. kube's own words have whole answers of the API server in them, lines of a
//! kubeconfig, and what an exec plugin has written: secrets. Nothing of these is passed on.

use std::error::Error;
use std::fmt;

use kube::client::{AuthError, RustlsTlsError};
use kube::config::{KubeConfigOptions, KubeconfigError, LoadDataError};
use kube::core::Status;

use super::words::shortened;
use crate::report::with_causes;

/// What is wrong, and what can be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    why: String,
    help: Option<&'static str>,
}

/// As much as an API server may say.
const LONGEST: usize = 1000;

const WHICH: &str = "say with --kubeconfig and --context which cluster it is";
const ADDRESS: &str =
    "is that its address, and does it run? --server, --context and --kubeconfig say which it is";
const SERVER: &str = "say this again in a moment; the API server's log says more";
const SLIP: &str =
    "look there for what is misplaced; its text is not shown, as there may be secrets";
const CONTEXTS: &str = "kubectl config get-contexts lists them; --context says which";
const PLUGIN: &str = "run the exec plugin of the kubeconfig's user by hand to see what is wrong";
const IDENTITY: &str = "see client-certificate and client-key of the kubeconfig's user";

impl Trouble {
    pub(super) fn new(why: impl Into<String>) -> Self {
        let (why, help) = (why.into(), None);
        Self { why, help }
    }

    pub(super) fn help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }

    /// What can be done about it.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        self.help
    }

    /// What a client has met with.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        if let Some(error) = within::<AuthError>(error) {
            return Self::of_credentials(error);
        }
        if let Some(error) = within::<KubeconfigError>(error) {
            return Self::of_kubeconfig("the kubeconfig", &KubeConfigOptions::default(), error);
        }
        match error {
            kube::Error::Api(status) => Self::said(status),
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                let why = format!("the API server cannot be reached: {}", first_cause(error));
                Self::new(why).help(ADDRESS)
            }
            kube::Error::SerdeError(error) => Self::new(format!(
                "what answers is no API server, or another version: line {}, column {} of its answer",
                error.line(),
                error.column()
            ))
            .help(ADDRESS),
            kube::Error::ProxyProtocolUnsupported { .. }
            | kube::Error::ProxyProtocolDisabled { .. } => {
                Self::new("an API server behind a proxy cannot be reached")
                    .help("leave out HTTPS_PROXY, and proxy-url of the kubeconfig")
            }
            kube::Error::RustlsTls(error) => Self::of_tls(error),
            error => Self::new(with_causes(error)),
        }
    }

    fn said(status: &Status) -> Self {
        let said = [&status.message, &status.reason]
            .into_iter()
            .find(|it| !it.is_empty());
        match (status.code, said) {
            (401, _) => Self::new("the API server does not know you")
                .help("say with --context, --user or --token who you are"),
            (code, None) => {
                Self::new(format!("the API server answers {code} and nothing else")).help(ADDRESS)
            }
            (code, Some(said)) => {
                let why = format!(
                    "the API server answers {code}: {}",
                    shortened(said, LONGEST)
                );
                let help = (code >= 500).then_some(SERVER);
                Self { why, help }
            }
        }
    }

    /// What is wrong with a kubeconfig, `place`, and not what stands in it.
    #[must_use]
    pub fn of_kubeconfig(place: &str, wanted: &KubeConfigOptions, error: &KubeconfigError) -> Self {
        use KubeconfigError as Wrong;
        let of_flag = |flag: &str, name: &Option<String>, other: &str| match name {
            Some(name) => format!("{flag}: {place} has none that is called {name:?}"),
            None => format!("{place} has no {other}"),
        };
        let (why, help) = match error {
            Wrong::Parse(error) => {
                let at = error
                    .location()
                    .filter(|at| at.line() > 0)
                    .map(|at| format!(" at line {}, column {}", at.line(), at.column()));
                let at = at.unwrap_or_default();
                (format!("{place} cannot be understood{at}"), SLIP)
            }
            Wrong::ReadConfig(error, _) => (format!("{place} cannot be read: {error}"), WHICH),
            Wrong::CurrentContextNotSet => (format!("{place} has no current context"), CONTEXTS),
            Wrong::LoadContext(_) => {
                let other = "context of the name that its current-context says";
                (of_flag("--context", &wanted.context, other), CONTEXTS)
            }
            Wrong::LoadClusterOfContext(_) => {
                let other = "cluster of the name that the context says";
                (of_flag("--cluster", &wanted.cluster, other), CONTEXTS)
            }
            Wrong::KindMismatch | Wrong::ApiVersionMismatch => {
                (format!("{place} are not of one kind and version"), WHICH)
            }
            Wrong::FindPath => (
                "no kubeconfig: you have no home directory".to_owned(),
                WHICH,
            ),
            Wrong::MissingClusterUrl => (format!("{place}: the cluster has no server"), WHICH),
            Wrong::ParseClusterUrl(_) => (
                format!("{place}: server of the cluster is no address"),
                WHICH,
            ),
            Wrong::ParseProxyUrl(_) => {
                let why = format!("proxy-url of {place}, or HTTPS_PROXY, is no address");
                (why, "such as http://10.0.0.1:3128")
            }
            Wrong::LoadCertificateAuthority(error) => {
                (unloaded(place, "certificate-authority", error), WHICH)
            }
            Wrong::ParseCertificates(_) => (
                format!("{place}: certificate-authority has no certificates in PEM"),
                WHICH,
            ),
            Wrong::LoadClientCertificate(error) => {
                (unloaded(place, "client-certificate", error), IDENTITY)
            }
            Wrong::LoadClientKey(error) => (unloaded(place, "client-key", error), IDENTITY),
        };
        Self::new(why).help(help)
    }

    fn of_credentials(error: &AuthError) -> Self {
        let (why, help) = match error {
            AuthError::AuthExecStart(error) => (
                format!("the exec plugin cannot be started: {error}"),
                PLUGIN,
            ),
            AuthError::AuthExecRun { out, .. } => (
                format!("the exec plugin has failed: {}", out.status),
                PLUGIN,
            ),
            AuthError::AuthExecParse(_)
            | AuthError::ExecPluginFailed
            | AuthError::ParseTokenKey(_)
            | AuthError::MalformedTokenExpirationDate(_) => (
                "the exec plugin's answer is no ExecCredential".to_owned(),
                PLUGIN,
            ),
            AuthError::MissingCommand => ("the exec plugin has no command".to_owned(), PLUGIN),
            AuthError::ReadTokenFile(error, _) => (
                format!("the file that tokenFile names cannot be read: {error}"),
                WHICH,
            ),
            AuthError::InvalidBearerToken(_) | AuthError::InvalidBasicAuth(_) => (
                "the credentials have characters that no request can carry".to_owned(),
                "a token is one line of letters, digits and signs",
            ),
            _ => (
                "the credentials of the kubeconfig's user cannot be used".to_owned(),
                "other ways to come are an exec plugin, a client certificate, and --token",
            ),
        };
        Self::new(why).help(help)
    }

    fn of_tls(error: &RustlsTlsError) -> Self {
        match error {
            RustlsTlsError::AddRootCertificate(_) | RustlsTlsError::NoValidNativeRootCA(_) => {
                Self::new("the certificates of the certificate authority cannot be used").help(
                    "they are in PEM; certificate-authority of the kubeconfig's cluster says where",
                )
            }
            RustlsTlsError::InvalidServerName(_) => {
                Self::new("the name that the API server's certificate shall have is no host name")
                    .help("see tls-server-name of the kubeconfig's cluster")
            }
            _ => Self::new("the client certificate, or its key, cannot be used").help(IDENTITY),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for Trouble {}

/// Paths stay untold, too: who mistakes `client-key` for `client-key-data` has the key there.
fn unloaded(place: &str, field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::ReadFile(error, _) => {
            format!("{place}: the file that {field} names cannot be read: {error}")
        }
        LoadDataError::DecodeBase64(_) => format!("{place}: {field}-data is not in base64"),
        LoadDataError::NoBase64DataOrFile => format!("{place}: {field} is missing"),
    }
}

/// An error and what it comes of.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// An error of one kind among another's causes.
fn within<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    chain(error).find_map(|error| error.downcast_ref::<E>())
}

/// What all the others come of.
fn first_cause(error: &(dyn Error + 'static)) -> String {
    chain(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}
