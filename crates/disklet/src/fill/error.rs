//! Why a volume was not filled.

use std::error::Error;
use std::fmt;

use disklet_block::error::{Error as BlockError, ErrorKind};

use crate::report::with_causes;

/// What sort of thing went wrong; what callers match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FillErrorKind {
    /// The target is no place for a disk.
    Target,
    /// Somebody uses the target.
    Busy,
    /// The target holds something already.
    Occupied,
    /// The disk does not fit.
    TooLarge,
    /// There is no room left.
    Full,
    /// What comes is of a format, or in a wrapping, that is not known here.
    Format,
    /// What comes contradicts itself, or wants what no image may have.
    Unsound,
    /// What comes has not the digest that it must have.
    Digest,
    /// What comes ends too early, or cannot be read.
    Stream,
    /// Whoever wanted it does not want it any more.
    Cancelled,
    /// The system failed.
    Io,
}

impl FillErrorKind {
    /// Whether what came before is of use although it ended like this.
    pub(super) fn leaves_it_to_go_on(self) -> bool {
        matches!(self, Self::Io | Self::Stream | Self::Cancelled | Self::Busy)
    }
}

/// Why a volume was not filled: what, because of what, and what the user can do.
#[derive(Debug)]
pub struct FillError {
    kind: FillErrorKind,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    help: Option<String>,
}

impl FillError {
    pub(super) fn new(kind: FillErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            source: None,
            help: None,
        }
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

    /// Of what comes in, or of the target that gets it: the error itself knows.
    pub(super) fn of_conversion(target: &str, error: BlockError) -> Self {
        let (kind, help) = match error.kind() {
            ErrorKind::Cancelled => (FillErrorKind::Cancelled, None),
            ErrorKind::NoSpace => (FillErrorKind::Full, Some("use a larger volume")),
            ErrorKind::Limit => (
                FillErrorKind::TooLarge,
                Some("use a larger volume, or allow larger disks with --max-size"),
            ),
            ErrorKind::Foreign | ErrorKind::NotAnImage | ErrorKind::Unsupported => {
                (FillErrorKind::Format, None)
            }
            ErrorKind::Corrupt | ErrorKind::Forbidden | ErrorKind::Invalid => {
                (FillErrorKind::Unsound, None)
            }
            ErrorKind::Busy => (FillErrorKind::Busy, None),
            _ => (FillErrorKind::Io, None),
        };
        let told = Self::new(kind, format!("{target}: cannot be filled"));
        let told = match help.or(error.remedy()) {
            Some(help) => told.help(help),
            None => told,
        };
        told.because(error)
    }

    /// What sort of error it is.
    #[must_use]
    pub fn kind(&self) -> FillErrorKind {
        self.kind
    }

    /// What the user can do.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// All of it in one line.
    #[must_use]
    pub fn in_words(&self) -> String {
        with_causes(self)
    }
}

impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for FillError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
