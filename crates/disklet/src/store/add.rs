//! Images come into the store: hashed, converted and checked in one pass.

use std::error::Error;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use disklet_block::convert::{Before, Watch};
use disklet_block::device::{Caching, FileDevice};
use disklet_block::image::Format;
use disklet_block::new_file::{Existing, NewFile, scratch_file, scratch_room};
use disklet_block::stream::{Contents, Limits, Options, Report, Room, Unwrap, to_raw};
use disklet_core::facts::ImageFact;
use disklet_core::names::Sha256;
use disklet_core::units::ByteSize;
use sha2::Digest;

use super::directories::For;
use super::{Provenance, Store, StoreError, StoreErrorKind};
use crate::remedy::{is_full, remedy_for};
use crate::shown::is_text;

/// An image on its way into the store.
#[derive(Debug)]
pub struct Incoming<'i, R> {
    /// What it shall be called.
    pub name: &'i str,
    /// Its file, wrapped or not. Its first bytes are trusted to say what it
    /// is: no guest has written to it yet.
    pub stream: R,
    /// The digest its file must have, if the user said one.
    pub digest: Option<Sha256>,
    /// The size of the largest disk.
    pub most: ByteSize,
}

/// What became of an incoming image.
#[derive(Debug, Clone, Copy)]
pub struct Added {
    /// What is now known of it.
    pub fact: ImageFact,
    /// Whether the store had its disk before.
    pub known: bool,
    /// Whether its file says that somebody has found it corrupt.
    pub marked_corrupt: bool,
}

impl Added {
    /// One that was there.
    pub(crate) fn known(fact: ImageFact) -> Self {
        Self {
            fact,
            known: true,
            marked_corrupt: false,
        }
    }
}

impl Store {
    /// Takes an image in. However this ends, the store holds it as a whole and
    /// under its name, or not at all.
    pub fn add(
        &self,
        incoming: Incoming<'_, impl Read + Send>,
        watch: &dyn Watch,
    ) -> Result<Added, StoreError> {
        self.add_from(Provenance::default(), incoming, watch)
    }

    /// The same, and says how it comes.
    pub(crate) fn add_from(
        &self,
        mut provenance: Provenance,
        mut incoming: Incoming<'_, impl Read + Send>,
        watch: &dyn Watch,
    ) -> Result<Added, StoreError> {
        let directory = self.directory("sha256", For::All)?;
        let made = |error| StoreError::on(&directory, "written to", error);
        let disk = scratch_file(&directory).map_err(made)?;
        let target = device(disk.try_clone().map_err(made)?, &directory)?;
        let scratch = scratch_file(&directory).map_err(made)?;
        let parked = scratch_room(&scratch);
        let scratch = device(scratch, &directory)?;
        let mut hashed = Hashed::new(&mut incoming.stream);
        let options = Options {
            contents: Contents::ByMagic,
            unwrap: Unwrap::ByMagic,
            limits: Limits {
                disk: incoming.most.as_bytes(),
                file: None,
                parked,
            },
            before: Before::Zeroes,
            room: Room::Grows(&target),
        };
        let report = to_raw(&mut hashed, &options, &target, &scratch, watch)
            .map_err(|error| unusable(incoming.name, &directory, error))?;
        refuse_odd(incoming.name, &report, &disk)?;
        let digest = hashed
            .finish()
            .map_err(|error| refused(incoming.name, &directory, error))?;
        if let Some(wanted) = incoming.digest.filter(|wanted| *wanted != digest) {
            let what = format!(
                "image {}: its file has the digest sha256:{digest}, not sha256:{wanted} as demanded",
                incoming.name
            );
            return Err(StoreError::new(StoreErrorKind::Digest, what)
                .help("check the digest, or where the file comes from"));
        }
        let fact = ImageFact {
            digest,
            size: ByteSize::from_bytes(report.size),
        };
        // A disk that nobody has named yet must not be swept away.
        let _named = self.rely()?;
        let known = self.keep(&disk, &digest)?;
        provenance.pull_secrets =
            self.with_earlier(incoming.name, &digest, provenance.pull_secrets)?;
        self.give_name(incoming.name, fact, provenance)?;
        Ok(Added {
            fact,
            known,
            marked_corrupt: report.marked_corrupt,
        })
    }

    /// Gives an image that is there a name, if it is there or in the system's
    /// store.
    pub(crate) fn adopt(
        &self,
        name: &str,
        digest: Sha256,
    ) -> Result<Option<ImageFact>, StoreError> {
        let _named = self.rely()?;
        self.borrow(&digest)?;
        let Ok(meta) = self.disk(&digest).metadata() else {
            return Ok(None);
        };
        let size = ByteSize::from_bytes(meta.len());
        let fact = ImageFact { digest, size };
        self.give_name(name, fact, Provenance::default())?;
        Ok(Some(fact))
    }

    /// Gives a disk the name of its digest; whether there was one already.
    fn keep(&self, disk: &fs::File, digest: &Sha256) -> Result<bool, StoreError> {
        let path = self.disk(digest);
        let failed = |error| StoreError::on(&path, "written", error);
        disk.set_permissions(Permissions::from_mode(0o444))
            .map_err(failed)?;
        disk.sync_all().map_err(failed)?;
        // Who has it stands on no link any more.
        let existing = match self.is_borrowed(digest) {
            true => Existing::Replace,
            false => Existing::Refuse,
        };
        let named = disk
            .try_clone()
            .and_then(|disk| NewFile::of(disk, &path, existing).name());
        match named {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
            Err(error) => Err(failed(error)),
        }
    }
}

/// A file without a name is known by its directory.
fn device(file: fs::File, directory: &Path) -> Result<FileDevice, StoreError> {
    let name = directory.display().to_string();
    FileDevice::new(file, name, Caching::Direct).map_err(|error| {
        StoreError::new(StoreErrorKind::Io, "the image store cannot be written to").because(error)
    })
}

/// The stream holds no image, or one that is not known here.
fn unusable(name: &str, directory: &Path, error: disklet_block::error::Error) -> StoreError {
    let remedy = error.remedy();
    let told = refused(name, directory, error);
    match remedy {
        Some(remedy) => told.help(remedy),
        None => told,
    }
}

/// A raw disk has whole sectors. What has not is something else: a text, a part
/// of an image, a file of a format that nobody here knows.
fn refuse_odd(name: &str, report: &Report, disk: &fs::File) -> Result<(), StoreError> {
    const SECTOR: u64 = 512;
    if report.format != Format::Raw || report.size.is_multiple_of(SECTOR) {
        return Ok(());
    }
    let mut what = format!(
        "image {name} cannot be taken in: {} bytes are no disk (no multiple of {SECTOR}), nor is it qcow2",
        report.size
    );
    let mut start = [0; 64];
    let read = disk.read_at(&mut start, 0).unwrap_or(0);
    if is_text(&start[..read]) {
        what.push_str("; it begins with text");
    }
    Err(StoreError::new(StoreErrorKind::Refused, what)
        .help("see whether the file is the image, and all of it"))
}

/// The stream or its conversion has failed.
fn refused(name: &str, directory: &Path, error: impl Error + Send + Sync + 'static) -> StoreError {
    let what = format!("image {name} cannot be taken in");
    let told = match lack_of_room(&error) {
        None => StoreError::new(StoreErrorKind::Refused, what),
        Some(lack) => {
            let told = StoreError::new(StoreErrorKind::Full, what);
            match remedy_for(directory, lack) {
                Some(remedy) => told.help(remedy),
                None => told,
            }
        }
    };
    told.because(error)
}

/// A lack of room among the causes.
fn lack_of_room<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(lack) = error.downcast_ref::<io::Error>().filter(|it| is_full(it)) {
            return Some(lack);
        }
        cause = error.source();
    }
    None
}

/// Hashes what is read.
pub(crate) struct Hashed<R> {
    stream: R,
    hash: sha2::Sha256,
}

impl<R: Read> Hashed<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream,
            hash: sha2::Sha256::new(),
        }
    }

    /// The digest of the whole, what nobody has read included.
    pub(crate) fn finish(mut self) -> io::Result<Sha256> {
        io::copy(&mut self, &mut io::sink())?;
        let hash: [u8; 32] = self.hash.finalize().into();
        Ok(Sha256::from_bytes(hash))
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}
