//! Why the store could not do something.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use crate::remedy::{is_full, remedy_for};

/// What sort of thing went wrong; what callers match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The system refused or failed.
    Io,
    /// A file of the store, or a record of a VM, is not what it should be.
    Damaged,
    /// There is no such image.
    NotFound,
    /// A VM uses it.
    InUse,
    /// What came in is no image, or may not come in.
    Refused,
    /// What came in has another digest.
    Digest,
    /// There is no room for it.
    Full,
}

/// Why the store could not do something: what, on which file or image, and
/// what the user can do.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    help: Option<String>,
}

impl StoreError {
    pub(super) fn new(kind: StoreErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            source: None,
            help: None,
        }
    }

    pub(super) fn on(path: &Path, doing: &str, source: io::Error) -> Self {
        let what = format!("{}: cannot be {doing}", path.display());
        if source.kind() == io::ErrorKind::NotADirectory
            && let Some(file) = in_the_way(path)
        {
            let what = format!("{}: is not a directory", file.display());
            return Self::new(StoreErrorKind::Io, what)
                .help("dataDir and the pools of the configuration must be directories");
        }
        let kind = match is_full(&source) {
            true => StoreErrorKind::Full,
            false => StoreErrorKind::Io,
        };
        let error = Self {
            help: remedy_for(path, &source),
            ..Self::new(kind, what)
        };
        error.because(source)
    }

    pub(super) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self {
            source: Some(Box::new(source)),
            ..self
        }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// What sort of error it is.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// What caused it, alone.
    pub(crate) fn into_cause(self) -> Option<Box<dyn Error + Send + Sync>> {
        self.source
    }

    /// What the user can do.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// What is no directory on the way to a path, or there.
fn in_the_way(path: &Path) -> Option<&Path> {
    path.ancestors()
        .find(|path| path.symlink_metadata().is_ok())
        .filter(|path| !path.is_dir())
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
