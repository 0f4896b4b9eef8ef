//! `disklet image`: disk images, without a VM.

mod args;
mod convert;
mod create;
mod info;
mod new_file;
mod progress;
mod reports;
mod size;

use std::error::Error as StdError;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use disklet_block::device::{Caching, FileDevice, ReadAt, Size};
use disklet_block::error::{Error, ErrorKind};
use disklet_block::gate::{BelowDirectories, Gate, NoImplicitFiles};
use disklet_block::image::{Format, Image};
use disklet_block::qcow2::MAGIC;

pub(crate) use args::ImageArgs;
use args::{ImageCommand, ImageFormat, SourceArgs};

/// Why a command did not do its work.
pub(super) struct Failure {
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

    fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }
}

/// An error with all its causes, in one line.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            message.push_str(": ");
            message.push_str(&next.to_string());
            cause = next.source();
        }
        if error.kind() == ErrorKind::Forbidden {
            message.push_str(
                "\n  help: if you trust that file, allow its directory with --allow-below",
            );
        }
        Self::new(message)
    }
}

/// What a command prints, or that its answer is no.
pub(super) enum Answer {
    Text(String),
    No(String),
}

/// Runs a command.
pub(crate) fn run(args: &ImageArgs) -> ExitCode {
    let outcome = match &args.command {
        ImageCommand::Info {
            source,
            output,
            file,
        } => info::info(source, output.output, file),
        ImageCommand::Create {
            format,
            cluster_size,
            backing,
            backing_format,
            file,
            size,
        } => create::create(&create::Wanted {
            format: *format,
            cluster_size: *cluster_size,
            backing: backing.as_deref(),
            backing_format: *backing_format,
            file,
            size: *size,
        }),
        ImageCommand::Convert {
            source,
            output_format,
            compress,
            cluster_size,
            threads,
            progress,
            from,
            to,
        } => convert::convert(&convert::Wanted {
            source,
            format: *output_format,
            compress: *compress,
            cluster_size: *cluster_size,
            threads: *threads,
            progress: *progress,
            from,
            to,
        }),
        ImageCommand::Map {
            source,
            output,
            file,
        } => reports::map(source, output.output, file),
        ImageCommand::Compare {
            source,
            second_format,
            strict,
            first,
            second,
        } => reports::compare(source, *second_format, *strict, first, second),
        ImageCommand::Measure {
            source,
            output,
            output_format,
            file,
        } => reports::measure(source, output.output, *output_format, file),
    };
    finish(outcome)
}

fn finish(outcome: Result<Answer, Failure>) -> ExitCode {
    let (text, code) = match outcome {
        Ok(Answer::Text(text)) => (text, 0),
        Ok(Answer::No(text)) => (text, 1),
        Err(failure) => {
            let _ = writeln!(io::stderr(), "error: {}", failure.message);
            return ExitCode::from(failure.code);
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::from(code),
        written => crate::report::finish(written, "the answer"),
    }
}

/// Opens an image as its arguments say.
fn open(source: &SourceArgs, path: &Path) -> Result<Image, Failure> {
    open_as(source, source.format, path)
}

fn open_as(
    source: &SourceArgs,
    format: Option<ImageFormat>,
    path: &Path,
) -> Result<Image, Failure> {
    let file = FileDevice::open(path, Caching::Buffered)?;
    let format = match format {
        Some(format) => format.into(),
        None => by_magic(&file)?,
    };
    let below;
    let gate: &dyn Gate = if source.allow_below.is_empty() {
        &NoImplicitFiles
    } else {
        let directories = source.allow_below.iter().map(std::fs::canonicalize);
        let directories: Result<Vec<_>, _> = directories.collect();
        let directories =
            directories.map_err(|error| Failure::new(format!("--allow-below: {error}")))?;
        below = BelowDirectories::new(directories, Caching::Buffered);
        &below
    };
    Ok(Image::open(file, format, gate)?)
}

/// What the first bytes say; only asked if the user trusts them.
fn by_magic(file: &FileDevice) -> Result<Format, Failure> {
    let mut start = [0; 4];
    if file.size()? < 4 {
        return Ok(Format::Raw);
    }
    file.read_at(&mut start, 0)?;
    Ok(if start == MAGIC {
        Format::Qcow2
    } else {
        Format::Raw
    })
}

impl From<ImageFormat> for Format {
    fn from(format: ImageFormat) -> Self {
        match format {
            ImageFormat::Raw => Self::Raw,
            ImageFormat::Qcow2 => Self::Qcow2,
        }
    }
}
