//! `disklet image`: disk images, without a VM.

mod args;
mod check;
mod convert;
mod copied;
mod create;
mod info;
mod map;
mod open;
mod options;
mod people;
mod replaced;
mod reports;
mod resize;
mod size;
mod stream;

use std::io::{self, Write};
use std::process::ExitCode;

use disklet::report::with_causes;
use disklet_block::error::{Error, ErrorKind};

pub(crate) use args::ImageArgs;
use args::ImageCommand;

/// Why a command did not do its work.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 1,
        }
    }

    /// The arguments do not make sense together.
    fn usage(message: impl Into<String>) -> Self {
        Self::new(message).with_code(2)
    }

    fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// What the user could do about it.
    fn with_help(mut self, help: &str) -> Self {
        self.message.push_str("\n  help: ");
        self.message.push_str(help);
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::new(with_causes(&error));
        match error.kind() {
            ErrorKind::Forbidden => {
                failure.with_help("if you trust that file, allow its directory with --allow-below")
            }
            ErrorKind::Foreign => failure.with_help(&format!(
                "{}; if it is a raw disk all the same, say so with -f raw",
                error.remedy().unwrap_or("convert it first")
            )),
            _ => failure,
        }
    }
}

/// What a command prints, and the code that it exits with.
struct Answer {
    text: String,
    code: u8,
}

impl Answer {
    fn yes(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 0,
        }
    }

    fn no(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 1,
        }
    }
}

/// Runs a command.
pub(crate) fn run(args: &ImageArgs) -> ExitCode {
    finish(match &args.command {
        ImageCommand::Info(args) => info::info(args),
        ImageCommand::Create(args) => create::create(args),
        ImageCommand::Convert(args) => convert::convert(args),
        ImageCommand::Resize(args) => resize::resize(args),
        ImageCommand::Check(args) => check::check(args),
        ImageCommand::Map(args) => map::map(args),
        ImageCommand::Compare(args) => reports::compare(args),
        ImageCommand::Measure(args) => reports::measure(args),
    })
}

fn finish(outcome: Result<Answer, Failure>) -> ExitCode {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "error: {}", failure.message);
            return ExitCode::from(failure.code);
        }
    };
    match io::stdout().write_all(answer.text.as_bytes()) {
        Ok(()) => ExitCode::from(answer.code),
        written => disklet::report::finish(written, "the answer"),
    }
}
