//! Filling volumes: what comes in becomes the one disk of a volume, or nothing.
//!
//! ```text
//!   stream --unwrap, decode--> file without a name --complete--> disk.img
//!                          \-> device without its first MiB --complete--> with it
//! ```
//!
//! Nothing is kept beside the target but what an image in an odd order needs for
//! a while, see docs/decisions/0013.

mod carry;
mod error;
mod hash;
mod interim;
mod journal;
mod marks;
mod place;
mod volume;

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use disklet_block::convert::{Before as BeforeCopy, Watch};
use disklet_block::device::{Caching, FileDevice, HeldBack, Size, Target};
use disklet_block::new_file::{Existing, NewFile, directory_of, scratch_file, scratch_room};
use disklet_block::stream::{Contents, Limits, Options, Report, Room, Unwrap, to_raw};
use disklet_core::names::Sha256;
use disklet_core::units::ByteSize;

use crate::store::Hashed;

pub use error::{FillError, FillErrorKind};
pub use place::Before;
use place::Place;
pub use volume::{Coming, Stage, Standing, Volume};

/// A volume that shall be filled.
#[derive(Debug, Clone)]
pub struct Order {
    /// A file, a block device, or the directory of a volume.
    pub target: PathBuf,
    /// What may be there.
    pub before: Before,
    /// The digest that what comes must have.
    pub digest: Option<Sha256>,
    /// The size of the largest disk.
    pub most: ByteSize,
    /// Where images in an odd order are kept for a while; beside a file, unless
    /// it is said, and else where temporary files are.
    pub scratch: Option<PathBuf>,
}

/// What a volume holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// The size of the disk.
    pub size: u64,
    /// How much of it is not zeroes.
    pub written: u64,
    /// The digest of what came.
    pub digest: Sha256,
    /// Somebody has found the image corrupt, and noted it there.
    pub marked_corrupt: bool,
}

impl Order {
    /// Makes sure that the target can be filled, before anything is fetched.
    pub fn check(&self) -> Result<(), FillError> {
        Place::find(&self.target, self.before).map(drop)
    }

    /// Fills the volume. However this ends, it holds the whole disk, or none; when
    /// it returns well, that is durable.
    pub fn fill(&self, stream: impl Read + Send, watch: &dyn Watch) -> Result<Filled, FillError> {
        let mut hashed = Hashed::new(stream);
        match Place::find(&self.target, self.before)? {
            Place::Device(device) => {
                let held = HeldBack::begin(&device).map_err(|error| self.failed(error))?;
                let most = device.size().map_err(|error| self.failed(error))?;
                let report = self.carry(&mut hashed, &held, Room::Fixed, most, watch)?;
                let digest = self.demand_digest(hashed)?;
                held.complete().map_err(|error| self.failed(error))?;
                Ok(filled(&report, digest))
            }
            Place::File(path, _held) => {
                let (file, device) = self.nameless(&path)?;
                let report =
                    self.carry(&mut hashed, &device, Room::Grows(&device), u64::MAX, watch)?;
                let digest = self.demand_digest(hashed)?;
                self.give_name(file, &path)?;
                Ok(filled(&report, digest))
            }
        }
    }

    fn carry(
        &self,
        stream: impl Read + Send,
        target: &dyn Target,
        room: Room<'_>,
        most: u64,
        watch: &dyn Watch,
    ) -> Result<Report, FillError> {
        let scratch = self.scratch()?;
        let before = match room {
            Room::Fixed => BeforeCopy::Anything,
            Room::Grows(_) => BeforeCopy::Zeroes,
        };
        let options = Options {
            contents: Contents::ByMagic,
            unwrap: Unwrap::ByMagic,
            limits: Limits {
                disk: self.most.as_bytes().min(most),
                file: None,
                parked: scratch_room(scratch.file()),
            },
            before,
            room,
        };
        to_raw(stream, &options, target, &scratch, watch).map_err(|error| self.failed(error))
    }

    fn nameless(&self, path: &Path) -> Result<(File, FileDevice), FillError> {
        let name = path.display().to_string();
        let made = |error| self.unmade(error);
        let directory = directory_of(path).map_err(made)?;
        let file = scratch_file(directory).map_err(made)?;
        let same = file.try_clone().map_err(made)?;
        let device = FileDevice::new(same, name, Caching::Direct);
        Ok((file, device.map_err(|error| self.failed(error))?))
    }

    fn give_name(&self, file: File, path: &Path) -> Result<(), FillError> {
        let made = |error| self.unmade(error);
        // As other tools leave disk images: the group of the volume may write.
        file.set_permissions(Permissions::from_mode(0o660))
            .map_err(made)?;
        file.sync_all().map_err(made)?;
        let existing = match self.before {
            Before::Nothing => Existing::Refuse,
            Before::Anything => Existing::Replace,
        };
        match NewFile::of(file, path, existing).name() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let what = format!("{}: somebody else has filled it", path.display());
                Err(FillError::new(FillErrorKind::Occupied, what))
            }
            outcome => outcome.map_err(made),
        }
    }

    fn demand_digest<R: Read>(&self, hashed: Hashed<R>) -> Result<Sha256, FillError> {
        let unread = |error: io::Error| {
            let what = format!("{}: cannot be filled", self.target.display());
            FillError::new(FillErrorKind::Stream, what).because(error)
        };
        let digest = hashed.finish().map_err(unread)?;
        demand(self.digest, digest)
    }

    fn scratch(&self) -> Result<FileDevice, FillError> {
        let temporary = std::env::temp_dir;
        let directory = match (&self.scratch, self.target.is_dir()) {
            (Some(directory), _) => directory.clone(),
            (None, true) => self.target.clone(),
            (None, false) => match std::fs::symlink_metadata(&self.target) {
                Ok(meta) if !meta.is_file() => temporary(),
                _ => directory_of(&self.target).map_or_else(|_| temporary(), Path::to_owned),
            },
        };
        let name = directory.display().to_string();
        let file = scratch_file(&directory).map_err(|error| {
            let what = format!("{name}: cannot be written to");
            FillError::new(FillErrorKind::Io, what).because(error)
        })?;
        FileDevice::new(file, name, Caching::Direct).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: disklet_block::error::Error) -> FillError {
        FillError::of_conversion(&self.target.display().to_string(), error)
    }

    fn unmade(&self, error: io::Error) -> FillError {
        let kind = match crate::remedy::is_full(&error) {
            true => FillErrorKind::Full,
            false => FillErrorKind::Io,
        };
        FillError::new(kind, format!("{}: cannot be made", self.target.display())).because(error)
    }
}

/// Refuses what has another digest than it must have.
fn demand(wanted: Option<Sha256>, digest: Sha256) -> Result<Sha256, FillError> {
    match wanted.filter(|wanted| *wanted != digest) {
        None => Ok(digest),
        Some(wanted) => {
            let what = format!(
                "what came has the digest sha256:{digest}, not sha256:{wanted} as demanded"
            );
            Err(FillError::new(FillErrorKind::Digest, what)
                .help("check the digest, or where it comes from"))
        }
    }
}

fn filled(report: &Report, digest: Sha256) -> Filled {
    Filled {
        size: report.size,
        written: report.written,
        digest,
        marked_corrupt: report.marked_corrupt,
    }
}
