//! Why something was not done.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use disklet::cluster::leases::Version;
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
    until: Option<Version>,
    unreleased: bool,
    unexplained: bool,
    of_key: bool,
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
            until: None,
            unreleased: false,
            unexplained: false,
            of_key: false,
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
            outage: self.outage || undoing.outage,
            // What it still has may be what another waits for.
            until: None,
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

    /// A server does not let in whoever has this key, or may not: not all say so.
    pub(crate) fn into_of_key(self) -> Self {
        Self {
            of_key: true,
            ..self
        }
    }

    /// Whether that is so.
    pub(crate) fn is_of_key(&self) -> bool {
        self.of_key
    }

    /// QEMU has ended at its start for no reason of its own.
    pub(crate) fn unexplained(self) -> Self {
        Self {
            unexplained: true,
            ..self
        }
    }

    /// Whether that is so.
    pub(crate) fn is_unexplained(&self) -> bool {
        self.unexplained
    }

    /// It is so as long as a lease is as it was seen.
    pub(crate) fn until(self, seen: Version) -> Self {
        Self {
            until: Some(seen),
            ..self
        }
    }

    /// What has to change first, if it is a lease.
    pub(crate) fn lasts_until(&self) -> Option<&Version> {
        self.until.as_ref()
    }

    /// All is freed, but other nodes do not know that yet.
    pub(crate) fn into_unreleased(self) -> Self {
        Self {
            unreleased: true,
            ..self
        }
    }

    /// Whether that is so.
    pub(crate) fn is_unreleased(&self) -> bool {
        self.unreleased
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
        Some(error) => timeless(error.message().trim()),
        None => with_causes(error),
    }
}

/// Without the moments that QEMU writes before what it says: the same mishap has the same
/// words whenever it happens, and is counted rather than told again.
fn timeless(words: &str) -> String {
    let of_line = |line: &str| -> String {
        let words = line.split(' ').filter(|word| !is_moment(word));
        words.collect::<Vec<_>>().join(" ")
    };
    words.lines().map(of_line).collect::<Vec<_>>().join("\n")
}

/// Such as `2026-01-31T12:00:00.123456Z`.
fn is_moment(word: &str) -> bool {
    const FORM: &[u8; 20] = b"0000-00-00T00:00:00.";
    let word = word.as_bytes();
    let digits_or = |(is, form): (&u8, &u8)| match form {
        b'0' => is.is_ascii_digit(),
        _ => is == form,
    };
    word.len() > FORM.len() && word.ends_with(b"Z") && word.iter().zip(FORM).all(digits_or)
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
    let help = cause
        .and_then(|cause| remedy_for(path, cause))
        .or_else(|| error.remedy().map(str::to_owned));
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

#[cfg(test)]
mod tests {
    use disklet_block::device::{Caching, FileDevice};
    use disklet_block::image::{Format, Image};

    use super::*;

    #[test]
    fn what_an_image_is_not_is_told_with_a_remedy() {
        let path = std::env::temp_dir().join(format!("disklet-raw-{}", std::process::id()));
        std::fs::write(&path, [0; 512]).unwrap();
        let file = FileDevice::open(&path, Caching::Buffered).unwrap();
        std::fs::remove_file(&path).unwrap();
        let opened = Image::alone(std::sync::Arc::new(file), "master", Format::Qcow2);
        let told = on_image("master", "cloned", opened.unwrap_err()).to_string();
        let words = "master: cannot be cloned: this is not a qcow2 image\n  help: see what format";
        assert!(told.starts_with(words), "{told}");
    }

    #[test]
    fn a_mishap_has_the_same_words_whenever_it_happens() {
        let at = |moment: &str| {
            format!(
                "process exited: {moment} qemu: -blockdev x: Connection refused\n{moment} qemu: gone"
            )
        };
        let words = "process exited: qemu: -blockdev x: Connection refused\nqemu: gone";
        assert_eq!(timeless(&at("2026-01-31T12:00:00.123456Z")), words);
        assert_eq!(timeless(&at("2026-02-01T00:59:59.000001Z")), words);
        let kept = "disk 2026-01-31T12:00:00.img of 2026-01-31Z: 2026-01-31T12:00:00Z";
        assert_eq!(timeless(kept), kept);
    }
}
