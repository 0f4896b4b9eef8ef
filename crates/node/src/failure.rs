//! Why something was not done.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use disklet::remedy::remedy_for;
use disklet::report::with_causes;
use disklet_block::error::{Error as BlockError, ErrorKind};

/// One reason: what could not be done, on what, because of what, and what the
/// user can do.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    help: Option<String>,
    told: bool,
    outage: bool,
    exit_code: u8,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: None,
            help: None,
            told: false,
            outage: false,
            exit_code: 1,
        }
    }

    /// The reasons are on standard error already.
    pub(crate) fn already_told() -> Self {
        Self {
            told: true,
            ..Self::new("")
        }
    }

    /// The user has changed their mind.
    pub(crate) fn cancelled() -> Self {
        Self {
            exit_code: 130,
            ..Self::new("cancelled")
        }
    }

    /// The same, and what became of what had been begun.
    pub(crate) fn cancelled_but(what: &str) -> Self {
        Self {
            what: format!("cancelled; {what}"),
            ..Self::cancelled()
        }
    }

    /// Something failed, and then its undoing did.
    pub(crate) fn and_not_undone(self, undoing: &Self) -> Self {
        Self {
            what: format!("{self}\nand what was made cannot be undone: {undoing}"),
            source: None,
            help: Some("mend that, then run disklet gc".to_owned()),
            ..self
        }
    }

    /// The command line is wrong, and that was told.
    pub(crate) fn misused() -> Self {
        Self {
            exit_code: 2,
            ..Self::already_told()
        }
    }

    /// Something that VMs need is away for a while: it is worth trying again.
    pub(crate) fn into_outage(self) -> Self {
        Self {
            outage: true,
            ..self
        }
    }

    /// Whether that is so.
    pub(crate) fn is_outage(&self) -> bool {
        self.outage
    }

    /// What the program ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    pub(crate) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self {
            source: Some(Box::new(source)),
            ..self
        }
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// Says whose disk or VM it is about.
    pub(crate) fn of(self, whose: &str) -> Self {
        Self {
            what: format!("{whose}: {}", self.what),
            ..self
        }
    }

    /// It came because libvirt's daemon is not there any more, or stands still.
    pub(crate) fn of_lost_daemon(self) -> Self {
        let words = self.source.as_deref().map(words_of);
        match words.is_some_and(|words| words.contains(SILENCE)) {
            true => self.of("libvirt does not answer any more"),
            false => self.of("libvirt has gone away"),
        }
    }

    /// Puts the cause into other words.
    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        let source = self.source.map(|source| reword(&words_of(&*source)).into());
        Self { source, ..self }
    }

    /// Writes it to standard error, unless somebody has.
    pub(crate) fn tell(&self) {
        if !self.told {
            let _ = writeln!(io::stderr(), "error: {self}");
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {}", words_of(&**source))?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// What libvirt says of calls that were not answered.
const SILENCE: &str = "keepalive timeout";

/// Of an error of libvirt's its own words, without the numbers around them.
fn words_of(error: &(dyn Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref::<virt::error::Error>() {
        Some(error) => error.message().trim().to_owned(),
        None => with_causes(error),
    }
}

/// On a path.
pub(crate) fn on(path: impl AsRef<Path>, doing: &str, error: io::Error) -> Failure {
    let path = path.as_ref();
    let help = remedy_for(path, &error);
    let what = format!("{}: cannot be {doing}", path.display());
    Failure {
        help,
        ..Failure::new(what).because(error)
    }
}

/// On an image, whose error may name its path as well.
pub(crate) fn on_image(path: impl AsRef<Path>, doing: &str, error: BlockError) -> Failure {
    if error.kind() == ErrorKind::Cancelled {
        return Failure::cancelled();
    }
    let path = path.as_ref();
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let help = cause.and_then(|cause| remedy_for(path, cause));
    let name = path.display().to_string();
    let what = format!("{name}: cannot be {doing}");
    Failure {
        help,
        ..Failure::new(what).because(error.without_name(&name))
    }
}

/// Tells what was done, as soon as it is.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let outcome = writeln!(out, "{line}").and_then(|()| out.flush());
    outcome.or_else(unwritten)
}

/// What standard output did not take. A reader that has gone away wants no
/// more, which is no failure.
pub(crate) fn unwritten(error: io::Error) -> Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::new("standard output cannot be written to").because(error)),
    }
}
