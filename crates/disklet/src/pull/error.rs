//! Why an image did not come.

use std::error::Error;
use std::fmt;

use disklet_core::diag::shortened;
use disklet_core::names::{ImageName, Sha256};

use crate::store::{StoreError, StoreErrorKind};

/// What sort of thing went wrong; what callers match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PullErrorKind {
    /// It is not known where the image is.
    Nowhere,
    /// It is not here, and must not be fetched.
    NotHere,
    /// A file that steers the pull cannot be read or is wrong.
    Settings,
    /// The server or this machine does not have it.
    NotFound,
    /// What is there is no file.
    NotAFile,
    /// The server sends a page for people instead.
    Page,
    /// It is not given to us.
    Denied,
    /// The server is in a network from where no images of VMs may come.
    Closed,
    /// The server cannot be reached.
    Unreachable,
    /// Nobody vouches for the server.
    Untrusted,
    /// The server is there, but cannot answer now.
    Busy,
    /// The connection was lost, too often.
    Lost,
    /// The file became another one while it came.
    Changed,
    /// A redirect that is not followed.
    Redirect,
    /// The server does not send the part of the file that it was asked for.
    WrongPart,
    /// The server says something that makes no sense.
    Protocol,
    /// It is larger than it may be.
    TooLarge,
    /// It has not the digest that it must have.
    Digest,
    /// What is there contradicts itself, or is of a form that is not known here.
    Unsound,
    /// A container image has no disk in it, or it cannot be told which.
    NoDisk,
    /// Whoever wanted it does not want it any more.
    Cancelled,
    /// The store did not take it.
    Store(StoreErrorKind),
}

/// Why an image did not come: what, because of what, and what the user can do.
/// Nothing secret is in it.
#[derive(Debug)]
pub struct PullError {
    kind: PullErrorKind,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    help: Option<String>,
    /// A later attempt may succeed.
    passing: bool,
}

impl PullError {
    pub(super) fn new(kind: PullErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            source: None,
            help: None,
            passing: false,
        }
    }

    pub(super) fn cancelled() -> Self {
        Self::new(PullErrorKind::Cancelled, "it was cancelled")
    }

    pub(super) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    pub(super) fn passing(self) -> Self {
        Self {
            passing: true,
            ..self
        }
    }

    /// Says through which proxy a server was asked that could not be reached.
    pub(super) fn through(self, proxy: &str) -> Self {
        Self {
            what: format!("{}, through {proxy}", self.what),
            ..self
        }
    }

    /// Says which image it is about.
    pub(super) fn of(self, image: &str) -> Self {
        Self {
            what: format!("image {}: {}", shortened(image), self.what),
            ..self
        }
    }

    /// Says that another image of that name is in the store, if that explains
    /// anything.
    pub(super) fn beside(self, image: &ImageName, other: &Sha256) -> Self {
        let (name, wanted) = (image.name(), image.digest());
        let Some(wanted) = wanted.filter(|_| self.is_about_the_origin()) else {
            return self;
        };
        let help = format!(
            "to have it: disklet images pull {name}@sha256:{wanted} --from FILE|URL; or ask for what the store has"
        );
        let before = format!(
            "the store has sha256:{other} under this name, not sha256:{wanted} as demanded"
        );
        let what = match self.kind {
            // It says what is demanded itself.
            PullErrorKind::Store(_) => format!(
                "{}; the store has sha256:{other} under this name",
                self.what
            ),
            _ => format!("{before}, and {}", self.what),
        };
        Self {
            what,
            help: Some(help),
            ..self
        }
    }

    /// Whether it would be another if the image came from elsewhere.
    fn is_about_the_origin(&self) -> bool {
        matches!(
            self.kind,
            PullErrorKind::Nowhere
                | PullErrorKind::NotFound
                | PullErrorKind::Page
                | PullErrorKind::Denied
                | PullErrorKind::Closed
                | PullErrorKind::Unreachable
                | PullErrorKind::Untrusted
                | PullErrorKind::Store(StoreErrorKind::Digest)
        )
    }

    pub(super) fn is_passing(&self) -> bool {
        self.passing
    }

    /// What sort of error it is.
    #[must_use]
    pub fn kind(&self) -> PullErrorKind {
        self.kind
    }

    /// What the user can do.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl From<StoreError> for PullError {
    fn from(error: StoreError) -> Self {
        Self {
            kind: PullErrorKind::Store(error.kind()),
            what: error.to_string(),
            help: error.remedy().map(str::to_owned),
            source: error.into_cause(),
            passing: false,
        }
    }
}

impl fmt::Display for PullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for PullError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
