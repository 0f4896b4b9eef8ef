//! Telling what is wrong, on standard error.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use disklet_core::diag::{Diagnostic, Severity, is_unprintable};

use crate::manifests::DiagnosticsFormat as Format;
use crate::style::{Style, Tone};

/// Writes diagnostics; `nothing_was` says what errors have kept from being
/// done. That standard error is closed is nobody's concern.
pub fn report(diagnostics: &[Diagnostic], errors: usize, format: Format, nothing_was: &str) {
    let stderr = io::stderr();
    let mut out = stderr.lock();
    let _ = match format {
        Format::Json => write_json(&mut out, diagnostics),
        Format::Text => write_text(
            &mut out,
            Style::of(&stderr),
            diagnostics,
            errors,
            nothing_was,
        ),
    };
}

/// The exit code after something was written to standard output.
pub fn finish(written: io::Result<()>, what: &str) -> ExitCode {
    match written {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough, such as head.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {what} cannot be written: {error}");
            ExitCode::from(1)
        }
    }
}

/// Writes an answer to standard output; the exit code.
#[must_use]
pub fn print(answer: &[u8], what: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    finish(out.write_all(answer).and_then(|()| out.flush()), what)
}

/// Tells what is wrong with the arguments, or the help that was asked for; the
/// exit code, `wrong` if they are.
#[must_use]
pub fn misused(error: &clap::Error, wrong: u8) -> ExitCode {
    // What it repeats may come from anywhere.
    let is_odd = |arg: OsString| arg.to_string_lossy().chars().any(is_unprintable);
    let written = match error.use_stderr() && env::args_os().any(is_odd) {
        true => {
            let said = harmless(&error.render().to_string());
            writeln!(io::stderr(), "{}", said.trim_end())
        }
        false => error.print(),
    };
    match error.use_stderr() {
        // That nobody reads it is nobody's concern.
        true => ExitCode::from(wrong),
        false => finish(written, "the help"),
    }
}

/// A text of others, such that it does not write to the user's terminal but its lines.
#[must_use]
pub fn harmless(text: &str) -> String {
    escaped(text, |c| c != '\n' && is_unprintable(c))
}

/// The same in one line, so that nobody's text looks like a message of ours.
#[must_use]
pub fn harmless_line(text: &str) -> String {
    escaped(text, is_unprintable)
}

fn escaped(text: &str, is_harmful: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_harmful(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// An error with all its causes, in one line. Some say themselves what their cause says.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !message.ends_with(&said) {
            message.push_str(": ");
            message.push_str(&said);
        }
        cause = next.source();
    }
    message
}

fn write_json(out: &mut impl Write, diagnostics: &[Diagnostic]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, diagnostics)?;
    writeln!(out)
}

fn write_text(
    out: &mut impl Write,
    style: Style,
    diagnostics: &[Diagnostic],
    errors: usize,
    nothing_was: &str,
) -> io::Result<()> {
    for diagnostic in diagnostics {
        let word = match diagnostic.severity {
            Severity::Error => style.paint(Tone::Bad, "error:"),
            Severity::Notice | Severity::Aside => style.paint(Tone::Unsure, "notice:"),
        };
        writeln!(out, "{word} {diagnostic}")?;
    }
    let told = diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error)
        .count();
    match errors {
        0 => Ok(()),
        1 => writeln!(out, "refused: 1 problem, nothing was {nothing_was}"),
        errors if errors > told => writeln!(
            out,
            "refused: {errors} problems, of which the first {told} are shown; nothing was {nothing_was}"
        ),
        errors => writeln!(out, "refused: {errors} problems, nothing was {nothing_was}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Told>>);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|it| it as _)
        }
    }

    #[test]
    fn what_an_error_says_of_its_cause_is_not_said_again() {
        let refused = || Box::new(Told("refused", None));
        let connect = || Box::new(Told("connect", Some(refused())));
        let service = Told("service: connect", Some(connect()));
        assert_eq!(with_causes(&service), "service: connect: refused");
        assert_eq!(with_causes(&*connect()), "connect: refused");
    }
}
