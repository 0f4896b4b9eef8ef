//! How far an upload has come, so that it goes on after a crash; see
//! docs/formats/upload.md.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use disklet_block::new_file::replace_file;
use disklet_block::stream::Wrapping;
use disklet_core::names::Sha256;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::{FillError, FillErrorKind};

const VERSION: u32 = 1;

/// What is known of the upload into one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Page {
    version: u32,
    /// Whom it is about.
    target: PathBuf,
    state: State,
}

/// What of a page tells whether the rest can be understood.
#[derive(Debug, Deserialize)]
struct Cover {
    version: u32,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Something has begun to come.
    Filling(Filling),
    /// All of it has come, is what it shall be, and is durable. It is not in its place yet.
    Completing(Complete),
    /// It is in its place.
    Done(Complete),
}

/// What has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Filling {
    /// Names the file that is filled.
    pub(super) id: String,
    pub(super) wrapping: Wrapped,
    /// Whether it is known to be raw, inside the wrapping.
    pub(super) is_raw: Option<bool>,
    /// How long the whole upload is, if that was said.
    pub(super) total: Option<u64>,
    /// The digest that the whole shall have.
    pub(super) digest: Option<String>,
    /// What whoever sends it calls the file.
    pub(super) tag: Option<String>,
    /// How many bytes of the upload came before the mark.
    pub(super) taken: u64,
    /// How many bytes of the disk are before the mark, durably.
    pub(super) disk: u64,
    /// The state of the hash there.
    pub(super) hash: Vec<u8>,
}

/// What has come as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Complete {
    pub(super) id: String,
    pub(super) size: u64,
    pub(super) digest: String,
}

impl Complete {
    pub(super) fn digest(&self) -> Sha256 {
        Sha256::parse_hex(&self.digest).unwrap_or(Sha256::from_bytes([0; 32]))
    }
}

/// A [`Wrapping`], as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Wrapped {
    Plain,
    Gzip,
    Xz,
    Zstd,
}

impl From<Wrapping> for Wrapped {
    fn from(wrapping: Wrapping) -> Self {
        match wrapping {
            Wrapping::Plain => Self::Plain,
            Wrapping::Gzip => Self::Gzip,
            Wrapping::Xz => Self::Xz,
            Wrapping::Zstd => Self::Zstd,
        }
    }
}

impl From<Wrapped> for Wrapping {
    fn from(wrapped: Wrapped) -> Self {
        match wrapped {
            Wrapped::Plain => Self::Plain,
            Wrapped::Gzip => Self::Gzip,
            Wrapped::Xz => Self::Xz,
            Wrapped::Zstd => Self::Zstd,
        }
    }
}

/// A directory with the journal of one target, which nobody else uses meanwhile.
#[derive(Debug)]
pub(super) struct Journal {
    directory: PathBuf,
    target: PathBuf,
    _lock: File,
}

impl Journal {
    /// Takes the directory, which is made if it is not there.
    pub(super) fn open(directory: &Path, target: &Path) -> Result<Self, FillError> {
        let failed = |error| unusable(directory, error);
        fs::create_dir_all(directory).map_err(failed)?;
        let mut options = File::options();
        let lock = options.create(true).append(true);
        let lock = lock.open(directory.join("lock")).map_err(failed)?;
        let taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        match taken {
            Ok(()) => Ok(Self {
                directory: directory.to_owned(),
                target: std::path::absolute(target).map_err(failed)?,
                _lock: lock,
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let what = format!("{}: another server uses it", directory.display());
                Err(FillError::new(FillErrorKind::Busy, what)
                    .help("give each target a state directory of its own"))
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    /// What was written last, if anything was.
    pub(super) fn read(&self) -> Result<Option<State>, FillError> {
        let path = self.page();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&path, error)),
        };
        let wrong = |why: String| {
            FillError::new(FillErrorKind::Target, format!("{}: {why}", path.display()))
        };
        let cover: Result<Cover, _> = serde_json::from_slice(&bytes);
        match cover.as_ref().map(|cover| cover.version) {
            Ok(VERSION) => {}
            Ok(version) => {
                let why = format!("is of version {version}, which is not known here");
                return Err(wrong(why).help("use the version of disklet that has written it"));
            }
            Err(_) => return Err(wrong("is damaged".to_owned()).help(BEGIN_ANEW)),
        }
        let page: Page = serde_json::from_slice(&bytes)
            .map_err(|_| wrong("is damaged".to_owned()).help(BEGIN_ANEW))?;
        if page.target != self.target {
            let why = format!("is about {}", page.target.display());
            return Err(wrong(why).help("give each target a state directory of its own"));
        }
        Ok(Some(page.state))
    }

    /// Writes it, durably and as a whole.
    pub(super) fn write(&self, state: &State) -> io::Result<()> {
        let page = Page {
            version: VERSION,
            target: self.target.clone(),
            state: state.clone(),
        };
        let text = serde_json::to_vec(&page).map_err(io::Error::other)?;
        replace_file(&self.page(), &text, 0o600)
    }

    /// Nothing has begun.
    pub(super) fn clear(&self) -> io::Result<()> {
        gone(fs::remove_file(self.page()))?;
        gone(fs::remove_file(self.beginning()))
    }

    /// What belongs at the beginning of a device, until all the rest is there.
    pub(super) fn write_beginning(&self, bytes: &[u8]) -> io::Result<()> {
        replace_file(&self.beginning(), bytes, 0o600)
    }

    pub(super) fn read_beginning(&self) -> io::Result<Vec<u8>> {
        fs::read(self.beginning())
    }

    pub(super) fn drop_beginning(&self) {
        // Nobody looks at it any more.
        let _ = fs::remove_file(self.beginning());
    }

    fn page(&self) -> PathBuf {
        self.directory.join("upload.json")
    }

    fn beginning(&self) -> PathBuf {
        self.directory.join("beginning")
    }
}

const BEGIN_ANEW: &str = "if nothing in the target is needed, remove it, and begin anew";

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn unusable(path: &Path, error: io::Error) -> FillError {
    let what = format!("{}: cannot be used", path.display());
    FillError::new(FillErrorKind::Target, what).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn what_is_written_is_read_and_what_is_not_understood_is_refused() {
        let directory = scratch("disklet-journal");
        let journal = Journal::open(&directory, Path::new("/t")).unwrap();
        assert_eq!(journal.read().unwrap(), None);
        let state = State::Done(Complete {
            id: "x".to_owned(),
            size: 5,
            digest: String::new(),
        });
        journal.write(&state).unwrap();
        assert_eq!(journal.read().unwrap(), Some(state));

        let busy = Journal::open(&directory, Path::new("/t")).unwrap_err();
        assert_eq!(busy.kind(), FillErrorKind::Busy);
        drop(journal);
        let other = Journal::open(&directory, Path::new("/u")).unwrap();
        assert!(other.read().unwrap_err().to_string().contains("about /t"));
        for (bytes, words) in [("{\"version\": 9}", "version 9"), ("{", "damaged")] {
            fs::write(directory.join("upload.json"), bytes).unwrap();
            let told = other.read().unwrap_err().to_string();
            assert!(told.contains(words), "{told}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
