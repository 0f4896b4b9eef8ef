//! `disklet image convert` of an image that comes as a stream: out of a pipe,
//! or inside gzip, xz or zstd.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;

use disklet::report::with_causes;
use disklet_block::convert::{Before, Unwatched, Watch};
use disklet_block::device::{Caching, FileDevice, Size, Target};
use disklet_block::error::{Error, ErrorKind};
use disklet_block::stream::{Contents, Limits, Options, Room, Unwrap, Wrapping, to_raw};

use super::Failure;
use super::args::ConvertArgs;
use super::convert::{into_file, is_device};
use super::copied::Copied;
use super::open::{first_bytes, open_file, open_to_overwrite};
use super::options::{ImageFormat, Preallocate, Unwrap as Wanted};
use disklet::progress::Progress;
use disklet_block::new_file::{directory_of, scratch_file, scratch_room};

/// A stream that holds an image.
pub(super) struct Stream {
    file: File,
    name: String,
    unwrap: Unwrap,
    /// How many bytes will come, if that is known.
    length: Option<u64>,
    /// Keeps others from writing to the file meanwhile.
    _locked: Option<FileDevice>,
}

impl Stream {
    /// The source of a conversion, if it has to be read as a stream.
    pub(super) fn of(args: &ConvertArgs) -> Result<Option<Self>, Failure> {
        let stream = if args.from == Path::new("-") {
            Self::standard_input(args)?
        } else {
            match Self::wrapped_file(args)? {
                Some(stream) => stream,
                None => return Ok(None),
            }
        };
        refuse(args)?;
        Ok(Some(stream))
    }

    fn standard_input(args: &ConvertArgs) -> Result<Self, Failure> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Err(Failure::usage(
                "standard input is a terminal: give it an image, as with < or a pipe",
            ));
        }
        let unwrap = match args.unwrap {
            Some(wrapping) => Unwrap::As(wrapping.into()),
            None if args.source.format.trust_magic => Unwrap::ByMagic,
            None => Unwrap::As(Wrapping::Plain),
        };
        let failed = |error| Failure::new(format!("standard input cannot be used: {error}"));
        let file = File::from(stdin.as_fd().try_clone_to_owned().map_err(failed)?);
        let meta = file.metadata().map_err(failed)?;
        Ok(Self {
            length: meta.is_file().then_some(meta.len()),
            file,
            name: "standard input".to_owned(),
            unwrap,
            _locked: None,
        })
    }

    /// A file, if something is wrapped around its image.
    fn wrapped_file(args: &ConvertArgs) -> Result<Option<Self>, Failure> {
        let is_trusted = args.source.format.trust_magic;
        if args.unwrap == Some(Wanted::None) || (args.unwrap.is_none() && !is_trusted) {
            return Ok(None);
        }
        let device = open_file(&args.from, args.source.share.access())?;
        let wrapping = match args.unwrap {
            Some(wrapping) => wrapping.into(),
            None => Wrapping::by_magic(&first_bytes(&device)?),
        };
        if wrapping == Wrapping::Plain {
            return Ok(None);
        }
        let length = device.size()?;
        let failed = |error| Failure::new(format!("{}: cannot be read: {error}", device.name()));
        let mut file = device.file().try_clone().map_err(failed)?;
        // To measure a block device is to go to its end.
        file.rewind().map_err(failed)?;
        Ok(Some(Self {
            file,
            name: device.name().to_owned(),
            unwrap: Unwrap::As(wrapping),
            length: Some(length),
            _locked: Some(device),
        }))
    }
}

/// What a stream cannot become.
fn refuse(args: &ConvertArgs) -> Result<(), Failure> {
    let problem = if args.output_format == ImageFormat::Qcow2 {
        "what comes as a stream can only become a raw disk: convert it with -O raw, then that to qcow2"
    } else if args.preallocation != Preallocate::Off {
        "space cannot be set aside for what comes as a stream: its size is not known; leave --preallocation out"
    } else if !args.source.chain.allow_below.is_empty() {
        "what comes as a stream cannot be laid over files: leave --allow-below out"
    } else {
        return Ok(());
    };
    Err(Failure::usage(problem))
}

pub(super) fn convert(args: &ConvertArgs, stream: Stream) -> Result<Copied, Failure> {
    let progress = Progress::new(stream.length, args.progress);
    let outcome = if is_device(&args.to) {
        let device = open_to_overwrite(&args.to)?;
        let most = device.size()?;
        carry(args, stream, &device, Room::Fixed, most, &progress)
    } else {
        into_file(&args.to, |file| {
            carry(args, stream, file, Room::Grows(file), u64::MAX, &progress)
        })
    };
    progress.end();
    outcome
}

fn carry(
    args: &ConvertArgs,
    stream: Stream,
    target: &dyn Target,
    room: Room<'_>,
    most: u64,
    progress: &Progress,
) -> Result<Copied, Failure> {
    let scratch = scratch(args)?;
    let options = Options {
        contents: match args.source.format.format {
            Some(format) => Contents::As(format.into()),
            None => Contents::ByMagic,
        },
        unwrap: stream.unwrap,
        limits: Limits {
            disk: args.max_size.map_or(most, |size| size.0.min(most)),
            file: None,
            parked: scratch_room(scratch.file()),
        },
        before: match room {
            Room::Fixed => Before::Anything,
            Room::Grows(_) => Before::Zeroes,
        },
        room,
    };
    let counted = Counted {
        stream: stream.file,
        progress,
    };
    to_raw(counted, &options, target, &scratch, &Unwatched)
        .map(Copied::Stream)
        .map_err(|error| failed(error.of(stream.name)))
}

/// What is below an image cannot be had while it streams past.
fn failed(error: Error) -> Failure {
    let help = match error.kind() {
        ErrorKind::Forbidden => {
            "keep the image in a file and convert that; if you trust the file that it names, with --allow-below"
        }
        ErrorKind::Limit if error.to_string().contains("parked") => {
            "say with --scratch in which directory there is more room, or keep the image in a file"
        }
        _ => return error.into(),
    };
    Failure::new(with_causes(&error)).with_help(help)
}

/// A file without a name, for what cannot be placed yet.
fn scratch(args: &ConvertArgs) -> Result<FileDevice, Failure> {
    let directory = match &args.scratch {
        Some(directory) => Ok(&**directory),
        // A device is in a directory that has no room.
        None if is_device(&args.to) => Ok(Path::new("/var/tmp")),
        None => directory_of(&args.to),
    };
    let failed = |error: io::Error| {
        Failure::new(format!("the scratch file cannot be made: {error}"))
            .with_help("say with --scratch in which directory there is room")
    };
    let file = directory.and_then(scratch_file).map_err(failed)?;
    Ok(FileDevice::new(
        file,
        "the scratch file",
        Caching::Buffered,
    )?)
}

/// Counts what is read: of a stream it is not known how far the disk has come.
struct Counted<'p> {
    stream: File,
    progress: &'p Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.progress.advance(length as u64);
        Ok(length)
    }
}
