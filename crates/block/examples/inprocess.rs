//! Operations without a process around them, for `script/bench block`.
//!
//! Each prints one number for a round: nanoseconds.
//!
//! ```text
//!   inprocess convert SOURCE.qcow2 TARGET.raw ROUNDS
//!   inprocess overlay BASE.qcow2 DIRECTORY ROUNDS      without the time of flushes
//!   inprocess strided IMAGE.qcow2 DIRECTORY STEP COUNT DEPTH none|writeback ROUNDS
//! ```

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disklet_block::convert::{Before, Options, Unwatched, to_raw};
use disklet_block::device::{Caching, FileDevice, Flush, ReadAt as _, Resize, Size as _, WriteAt};
use disklet_block::error;
use disklet_block::gate::{BelowDirectories, NoImplicitFiles};
use disklet_block::image::{Format, Image};
use disklet_block::qcow2::{Backing, NewImage, Qcow2, Writer};
use disklet_block::sys::AlignedBuffer;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["convert", source, target, rounds] => {
            rounds_of(rounds, || convert(Path::new(source), Path::new(target)))
        }
        ["overlay", base, directory, rounds] => {
            rounds_of(rounds, || overlay(base, Path::new(directory)))
        }
        [
            "strided",
            image,
            directory,
            step,
            count,
            depth,
            cache,
            rounds,
        ] => {
            let strided = Strided {
                step: step.parse()?,
                count: count.parse()?,
                depth: depth.parse()?,
            };
            let caching = match cache {
                "none" => Caching::Direct,
                "writeback" => Caching::Buffered,
                _ => return Err("the cache is none or writeback".into()),
            };
            let image = open(Path::new(image), PathBuf::from(directory), caching)?;
            rounds_of(rounds, || strided.read(&image))
        }
        _ => Err("see the head of examples/inprocess.rs".into()),
    }
}

#[expect(clippy::print_stdout, reason = "the numbers are what it is for")]
fn rounds_of(rounds: &str, mut round: impl FnMut() -> Outcome<Duration>) -> Outcome<()> {
    for _ in 0..rounds.parse()? {
        println!("{}", round()?.as_nanos());
    }
    Ok(())
}

fn convert(source: &Path, target: &Path) -> Outcome<Duration> {
    let _ = std::fs::remove_file(target);
    let begun = Instant::now();
    let source = FileDevice::open(source, Caching::Buffered)?;
    let image = Image::open(source, Format::Qcow2, &NoImplicitFiles)?;
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(target)?;
    let target = FileDevice::new(file, "target", Caching::Direct)?;
    target.resize(image.size()?)?;
    let options = Options {
        threads: 8,
        target: Before::Zeroes,
        share: true,
    };
    to_raw(&image, &target, &options, &Unwatched)?;
    Ok(begun.elapsed())
}

fn overlay(base: &str, directory: &Path) -> Outcome<Duration> {
    let path = directory.join("overlay.qcow2");
    let _ = std::fs::remove_file(&path);
    let begun = Instant::now();
    let size = {
        let base = FileDevice::open(Path::new(base), Caching::Buffered)?;
        Qcow2::read_header(&base, base.name())?.size
    };
    let spec = NewImage {
        backing: Some(Backing {
            file: base.to_owned(),
            format: Format::Qcow2,
        }),
        ..NewImage::of_size(size)
    };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    let file = TimedFlush {
        file: FileDevice::new(file, "overlay", Caching::Buffered)?,
        flushing: AtomicU64::new(0),
    };
    Writer::new(&file, &spec)?.finish()?;
    let whole = begun.elapsed();
    File::open(directory)?.sync_all()?;
    let flushing = Duration::from_nanos(file.flushing.into_inner());
    Ok(whole.saturating_sub(flushing))
}

/// A file whose flushes are not counted: they are the disk's.
struct TimedFlush {
    file: FileDevice,
    /// In nanoseconds.
    flushing: AtomicU64,
}

impl Flush for TimedFlush {
    fn flush(&self) -> error::Result<()> {
        let begun = Instant::now();
        let outcome = self.file.flush();
        let spent = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.flushing.fetch_add(spent, Ordering::Relaxed);
        outcome
    }
}

impl WriteAt for TimedFlush {
    fn write_at(&self, buffer: &[u8], offset: u64) -> error::Result<()> {
        self.file.write_at(buffer, offset)
    }
}

impl Resize for TimedFlush {
    fn resize(&self, size: u64) -> error::Result<()> {
        self.file.resize(size)
    }
}

fn open(path: &Path, directory: PathBuf, caching: Caching) -> Outcome<Image> {
    let file = FileDevice::open(path, caching)?;
    let gate = BelowDirectories::new([directory], caching);
    Ok(Image::open(file, Format::Qcow2, &gate)?)
}

/// Reads of 4 KiB at every so many bytes, round and round, as `qemu-img bench`
/// does.
struct Strided {
    step: u64,
    count: u64,
    depth: usize,
}

const READ: u64 = 4096;

impl Strided {
    fn read(&self, image: &Image) -> Outcome<Duration> {
        let size = image.size()?;
        let next = AtomicU64::new(0);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..self.depth)
                .map(|_| scope.spawn(|| self.read_some(image, size, &next)))
                .collect();
            readers.into_iter().try_for_each(|reader| {
                reader
                    .join()
                    .map_err(|_| "a reader has panicked".to_owned())?
            })
        })?;
        Ok(begun.elapsed())
    }

    fn read_some(&self, image: &Image, size: u64, next: &AtomicU64) -> Result<(), String> {
        let mut buffer = AlignedBuffer::zeroed(4096);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return Ok(());
            }
            let offset = number * self.step % (size - READ) / READ * READ;
            image
                .read_at(&mut buffer, offset)
                .map_err(|error| error.to_string())?;
        }
    }
}
