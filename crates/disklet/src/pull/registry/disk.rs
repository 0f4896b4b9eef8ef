//! The disk of an image as a stream: layers are read from the uppermost down until
//! its file is found, and when that has passed, what could still contradict it.
//!
//! ```text
//!   blob --unwrap--> tar --entries--> finder --take--> bytes of the file
//!    next layer <------- end of archive <--- the rest <--- their end
//! ```
//!
//! The stream ends well only if every byte that counts was the registry's, and the
//! file is the only one.

use std::io::{self, Read};

use disklet_block::error::{Error as BlockError, ErrorKind};
use disklet_block::stream::{Unwrap, Unwrapped};
use disklet_block::tar::{Allowance, Kind, Tar};
use disklet_core::images::layers::{DiskPath, Finder, Node, Outlook, Problem, Verdict};

use super::blob::{Blob, Why};
use super::documents::{Layer, Sort, unsound};
use super::image::Image;
use crate::pull::http::Client;
use crate::pull::{Observer, PullError, PullErrorKind};

type Result<T> = std::result::Result<T, PullError>;

/// So many entries have all layers of an image together.
const MOST_ENTRIES: u64 = 10_000_000;
/// And so much they may hold beside the disk.
const MOST_BESIDE: u64 = 64 << 30;

/// The disk that comes.
pub(super) struct Disk<'d> {
    course: Course<'d>,
    why: Why,
}

enum Course<'d> {
    /// A file by itself.
    Single(Box<Blob<'d>>),
    Layers(Box<Layers<'d>>),
    /// All of it was there, and is right.
    Done,
    Failed,
}

/// What is left of an image's layers.
struct Layers<'d> {
    name: String,
    /// The lowest first.
    rest: Vec<(&'d Layer, &'d Client)>,
    current: Option<Tar<Unwrapped<Blob<'d>>>>,
    allowance: Allowance,
    finder: Finder,
    retries: u32,
    observer: &'d dyn Observer,
    why: Why,
}

impl<'d> Disk<'d> {
    /// Looks for it.
    pub(super) fn find(
        image: &'d Image,
        path: Option<&DiskPath>,
        retries: u32,
        observer: &'d dyn Observer,
    ) -> Result<Self> {
        let why = Why::default();
        let name = image.pinned.to_string();
        let files = image.layers.iter().filter(|layer| layer.sort != Sort::Tar);
        let course = match files.count() {
            0 => {
                let finder = Finder::new(path);
                let mut layers = Layers {
                    name,
                    rest: image.layers.iter().zip(&image.clients).collect(),
                    current: None,
                    allowance: Allowance {
                        entries: MOST_ENTRIES,
                        passed: MOST_BESIDE,
                    },
                    finder,
                    retries,
                    observer,
                    why: why.clone(),
                };
                match layers.scan()? {
                    Scanned::Found => Course::Layers(Box::new(layers)),
                    Scanned::All => return Err(layers.without_disk()),
                }
            }
            files if files == image.layers.len() => {
                let at = the_file(&image.layers, path, &name)?;
                let (layer, client) = (&image.layers[at], &image.clients[at]);
                let blob = Blob::begin(client, layer, retries, observer, &why)?;
                Course::Single(Box::new(blob))
            }
            _ => {
                let what = format!("{name}: the image has layers of a kind that is not known here");
                return Err(unsound(what));
            }
        };
        Ok(Self { course, why })
    }

    /// Why it did not come to its end, if it did not.
    pub(super) fn take_failure(&self) -> Option<PullError> {
        self.why.take()
    }

    /// The file has ended; whether everything else is right as well.
    fn complete(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.course, Course::Failed) {
            Course::Single(blob) => blob.demand()?,
            Course::Layers(mut layers) => match layers.scan() {
                // The finder takes one file only.
                Ok(Scanned::All | Scanned::Found) => layers
                    .finder
                    .finish()
                    .map(drop)
                    .map_err(|problem| self.why.keep(told(&layers.name, &problem)))?,
                Err(error) => return Err(self.why.keep(error)),
            },
            Course::Done => {}
            Course::Failed => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        self.course = Course::Done;
        Ok(())
    }
}

impl Read for Disk<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.course {
            _ if buffer.is_empty() => return Ok(0),
            Course::Single(blob) => blob.read(buffer),
            Course::Layers(layers) => layers.read(buffer),
            Course::Done => return Ok(0),
            Course::Failed => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        let length = match read {
            Ok(length) => length,
            Err(error) => {
                // Whoever reads on gets no other end of it.
                self.course = Course::Failed;
                return Err(error);
            }
        };
        if length == 0 {
            self.complete()?;
        }
        Ok(length)
    }
}

enum Scanned {
    Found,
    All,
}

impl<'d> Layers<'d> {
    /// Goes on to the disk, or through all that matters.
    fn scan(&mut self) -> Result<Scanned> {
        loop {
            let mut tar = match self.current.take() {
                Some(tar) => tar,
                None => match self.rest.pop() {
                    Some((layer, client)) => self.open(layer, client)?,
                    None => return Ok(Scanned::All),
                },
            };
            loop {
                let entry = match tar.next_entry() {
                    Ok(Some(entry)) => entry,
                    Ok(None) => break,
                    Err(error) => return Err(self.damaged(tar, error)),
                };
                let node = node_of(entry.kind);
                let verdict = self.finder.entry(&entry.path, node);
                if self.judged(verdict)? == Verdict::Take {
                    self.current = Some(tar);
                    return Ok(Scanned::Found);
                }
            }
            self.allowance = match tar.finish() {
                Ok(left) => left,
                Err(error) => return Err(self.damaged(tar, error)),
            };
            let blob = tar.into_reader().into_reader();
            blob.demand()
                .map_err(|error| self.unread(BlockError::io("the layer", error)))?;
            let outlook = self.finder.layer_ends();
            if self.judged(outlook)? == Outlook::Decided {
                self.rest.clear();
            }
        }
    }

    fn open(&self, layer: &Layer, client: &'d Client) -> Result<Tar<Unwrapped<Blob<'d>>>> {
        let blob = Blob::begin(client, layer, self.retries, self.observer, &self.why)?;
        let unwrapped = Unwrapped::new(blob, Unwrap::ByMagic);
        let unwrapped = unwrapped.map_err(|error| self.unread(error))?;
        Ok(Tar::new(unwrapped, self.allowance))
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tar) = &mut self.current else {
            return Ok(0);
        };
        let error = match tar.read_data(buffer) {
            Ok(length) => return Ok(length),
            Err(error) => error,
        };
        let told = match self.current.take() {
            Some(tar) => self.damaged(tar, error),
            None => self.unread(error),
        };
        Err(self.why.keep(told))
    }

    fn judged<T>(&self, outcome: std::result::Result<T, Problem>) -> Result<T> {
        outcome.map_err(|problem| told(&self.name, &problem))
    }

    fn without_disk(self) -> PullError {
        match self.finder.finish() {
            Err(problem) => told(&self.name, &problem),
            Ok(path) => unsound(format!("{}: {path} was lost", self.name)),
        }
    }

    /// A layer that makes no sense. If it is not the registry's, that is why; so the rest
    /// of it is read, unless it is too much.
    fn damaged(&self, tar: Tar<Unwrapped<Blob<'d>>>, error: BlockError) -> PullError {
        let is_too_much = error.kind() == ErrorKind::Limit;
        let told = self.unread(error);
        if told.kind() != PullErrorKind::Unsound || is_too_much {
            return told;
        }
        let blob = tar.into_reader().into_reader();
        let is_right = blob.demand();
        match self.why.take() {
            Some(why) if is_right.is_err() && why.kind() == PullErrorKind::Digest => why,
            _ => told,
        }
    }

    /// A layer that cannot be read: because it did not come, or by what it is.
    fn unread(&self, error: BlockError) -> PullError {
        if let Some(why) = self.why.take() {
            return why;
        }
        let kind = match error.kind() {
            ErrorKind::Limit => PullErrorKind::TooLarge,
            _ => PullErrorKind::Unsound,
        };
        let what = format!("{}: a layer cannot be read", self.name);
        PullError::new(kind, what).because(error)
    }
}

fn told(name: &str, problem: &Problem) -> PullError {
    PullError::new(PullErrorKind::NoDisk, format!("{name}: {problem}")).help(problem.remedy())
}

fn node_of(kind: Kind) -> Node {
    match kind {
        Kind::File => Node::File,
        Kind::Sparse => Node::Sparse,
        Kind::Directory => Node::Directory,
        Kind::HardLink(to) => Node::HardLink(to),
        Kind::Symlink(to) => Node::Symlink(to),
        Kind::CharacterDevice | Kind::BlockDevice | Kind::Fifo | Kind::Other(_) => Node::Special,
    }
}

/// The file of an artifact: the only one, or that of a title.
fn the_file(layers: &[Layer], path: Option<&DiskPath>, name: &str) -> Result<usize> {
    let title = |layer: &Layer| match &layer.sort {
        Sort::File(title) => title.clone(),
        Sort::Tar => None,
    };
    let fits = |layer: &Layer| match path {
        None => true,
        Some(path) => title(layer).is_some_and(|title| path.is(&title)),
    };
    let found: Vec<_> = (0..layers.len()).filter(|at| fits(&layers[*at])).collect();
    if let [at] = found.as_slice() {
        return Ok(*at);
    }
    let titles: Vec<_> = layers
        .iter()
        .map(|layer| title(layer).unwrap_or_else(|| "one without a title".to_owned()))
        .map(|title| title.escape_debug().take(200).collect::<String>())
        .collect();
    let what = match layers {
        [] => format!("{name}: the artifact has no files"),
        _ => format!(
            "{name}: it cannot be told which file is the disk: there are {}",
            titles.join(", ")
        ),
    };
    Err(PullError::new(PullErrorKind::NoDisk, what)
        .help("say with --path which of them it is, by its title"))
}

impl std::fmt::Debug for Disk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}
