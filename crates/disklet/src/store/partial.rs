//! The beginning of a file that is being fetched, so that a later pull can go
//! on from there.
//!
//! It may be gone at any time, and then all of the file is fetched; so that it
//! cannot be kept is no reason to fail. Only what is known to be durable counts:
//! after a power cut a file may be as long as it was and have zeroes in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use disklet_block::new_file::replace_file;
use serde::{Deserialize, Serialize};

use super::Pulling;

/// What tells whether a server still has the same file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Validator {
    /// A tag that changes with every byte.
    Etag(String),
    /// When it was last changed.
    LastModified(String),
}

impl Validator {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Etag(text) | Self::LastModified(text) => text,
        }
    }
}

/// What is known about a partial file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Note {
    version: u32,
    /// From where, without secrets.
    url: String,
    validator: Validator,
    total: u64,
    /// So many bytes are on the disk for good.
    durable: u64,
}

const VERSION: u32 = 1;

/// The beginning of a file.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    part: PathBuf,
    note_path: PathBuf,
    note: Note,
    length: u64,
}

/// How much may be lost in a crash: as much as is there, within these.
const LEAST_LOST: u64 = 1 << 20;
const MOST_LOST: u64 = 64 << 20;

impl Partial {
    /// What an earlier pull has left of the file at this address, if it can be
    /// used.
    pub(crate) fn of(pulling: &Pulling, url: &str) -> Option<Self> {
        let [part, note_path] = pulling.partial();
        let note: Note = serde_json::from_slice(&fs::read(&note_path).ok()?).ok()?;
        let file = OpenOptions::new().read(true).write(true).open(&part).ok()?;
        // The last byte is asked for again: none cannot be.
        let usable = note.durable.min(note.total.saturating_sub(1));
        let fits = note.version == VERSION && note.url == url && usable > 0;
        if !fits || file.metadata().ok()?.len() < usable || file.set_len(usable).is_err() {
            return None;
        }
        Some(Self {
            file,
            part,
            note_path,
            note,
            length: usable,
        })
    }

    /// A new one. Without a length and a validator there is nothing to go on
    /// with.
    pub(crate) fn create(
        pulling: &Pulling,
        url: &str,
        validator: &Validator,
        total: u64,
    ) -> io::Result<Self> {
        let [part, note_path] = pulling.partial();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&part)?;
        let partial = Self {
            file,
            part,
            note_path,
            note: Note {
                version: VERSION,
                url: url.to_owned(),
                validator: validator.clone(),
                total,
                durable: 0,
            },
            length: 0,
        };
        // What an earlier note says must not count for the new file.
        partial.write_note().inspect_err(|_| partial.remove())?;
        Ok(partial)
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn total(&self) -> u64 {
        self.note.total
    }

    pub(crate) fn validator(&self) -> &Validator {
        &self.note.validator
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    /// More of the file has come.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        let step = self.note.durable.clamp(LEAST_LOST, MOST_LOST);
        if self.length - self.note.durable >= step {
            self.settle()?;
        }
        Ok(())
    }

    /// Makes durable what there is.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        if self.note.durable == self.length {
            return Ok(());
        }
        self.file.flush()?;
        self.file.sync_data()?;
        self.note.durable = self.length;
        self.write_note()
    }

    /// It is of no more use.
    pub(crate) fn remove(&self) {
        // The note first: without it the rest counts for nothing.
        let _ = fs::remove_file(&self.note_path);
        let _ = fs::remove_file(&self.part);
    }

    fn write_note(&self) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&self.note).map_err(io::Error::other)?;
        replace_file(&self.note_path, &text, 0o600)
    }
}
