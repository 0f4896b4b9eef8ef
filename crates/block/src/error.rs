//! What can go wrong: a small kind to match on, the thing it happened to, and
//! the cause.

use std::error::Error as StdError;
use std::fmt;
use std::io;

/// What every operation here returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What sort of thing went wrong; what callers match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused or failed.
    Io,
    /// The bytes are not what they were said to be.
    NotAnImage,
    /// They are those of a format that is not known here.
    Foreign,
    /// The image is sound, but uses something that is not supported.
    Unsupported,
    /// The image contradicts itself.
    Corrupt,
    /// The image asks for more than an image may cost.
    Limit,
    /// The image names a file that it may not name.
    Forbidden,
    /// The caller asked for something outside the image, or for nonsense.
    Invalid,
    /// Somebody else is using the image.
    Busy,
    /// There is not enough room.
    NoSpace,
    /// The caller asked to stop.
    Cancelled,
}

/// An error: kind, what it happened to, and what caused it. `Display` leaves
/// the cause out; whoever reports prints the chain.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    subject: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    help: Option<&'static str>,
}

impl Error {
    /// An error with a message that says what is wrong.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            subject: None,
            source: None,
            help: None,
        }))
    }

    /// An error of the system, with what was being done.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        let mut error = Self::new(kind, doing);
        error.0.source = Some(Box::new(source));
        error
    }

    /// Names the image or file, unless an inner layer has.
    #[must_use]
    pub fn of(mut self, subject: impl Into<String>) -> Self {
        self.0.subject.get_or_insert_with(|| subject.into());
        self
    }

    /// Without the image's or file's name if it is this one, for whoever has
    /// said it.
    #[must_use]
    pub fn without_name(mut self, name: &str) -> Self {
        self.0.subject = self.0.subject.filter(|subject| subject != name);
        self
    }

    /// Says what the user can do.
    pub(crate) fn help(mut self, help: &'static str) -> Self {
        self.0.help = Some(help);
        self
    }

    /// What the user can do, where that does not depend on who asks.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        self.0.help
    }

    /// What sort of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(subject) = &self.0.subject {
            write!(f, "{subject}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.source.as_ref()?;
        Some(source.as_ref())
    }
}

/// Shorthands for the refusals of a parser.
pub(crate) fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

pub(crate) fn limit(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Limit, message)
}

pub(crate) fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
