//! The file that is sent, again and again from where it was lost.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use disklet::progress::{Progress, ProgressForm};
use disklet_block::convert::Watch;
use disklet_core::names::Sha256;
use sha2::Digest;

use super::Failure;
use super::client::{Client, is_passing};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// A file that is sent.
pub(super) struct Upload {
    file: File,
    name: String,
    length: u64,
    digest: Sha256,
}

impl Upload {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let unread = |error: io::Error| Failure::new(format!("{name}: cannot be read: {error}"));
        let mut file = File::open(path).map_err(unread)?;
        // Of a device, the metadata do not tell.
        let length = file.seek(SeekFrom::End(0)).map_err(unread)?;
        file.rewind().map_err(unread)?;
        if length == 0 || file.metadata().map_err(unread)?.is_dir() {
            return Err(Failure::new(format!(
                "{name}: is no disk: nothing is in it"
            )));
        }
        let mut hash = sha2::Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut rest = (&file).take(length);
        loop {
            match rest.read(&mut buffer).map_err(unread)? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
        Ok(Self {
            digest: Sha256::from_bytes(hash.finalize().into()),
            file,
            name,
            length,
        })
    }

    /// Sends it, until the server has all of it; what that says then.
    pub(super) fn send(
        &self,
        client: &Client,
        retries: u32,
        form: ProgressForm,
    ) -> Result<String, Failure> {
        let (mut tries, mut reached) = (0, 0);
        loop {
            let failure = match self.attempt(client, form, &mut reached) {
                Ok(told) => return Ok(told),
                Err((failure, has_moved)) => {
                    tries = if has_moved { 1 } else { tries + 1 };
                    failure
                }
            };
            if !failure.is_passing || tries > retries {
                return Err(failure);
            }
            if form == ProgressForm::Auto {
                let _ = writeln!(io::stderr(), "{}; trying again", failure.what);
            }
            sleep((FIRST_PAUSE * (1 << (tries - 1).min(16))).min(LONGEST_PAUSE));
        }
    }

    /// Once; whether it has come further than ever before.
    fn attempt(
        &self,
        client: &Client,
        form: ProgressForm,
        reached: &mut u64,
    ) -> Result<String, (Failure, bool)> {
        let standing = client.stand().map_err(|failure| (failure, false))?;
        if standing.state == "done" {
            let what = format!("{}: the volume is filled already", client.place());
            return Err((Failure::new(what), false));
        }
        // Another file's beginning is of no use.
        let is_ours = standing.length.is_none_or(|length| length == self.length);
        let from = if is_ours && standing.offset < self.length {
            standing.offset
        } else {
            0
        };
        let has_moved = from > *reached;
        *reached = from.max(*reached);
        let progress = Progress::new(Some(self.length), form).beginning_at(from);
        let progress = Arc::new(progress);
        let body = self.rest(from, &progress);
        let body = body.map_err(|error| {
            let what = format!("{}: cannot be read: {error}", self.name);
            (Failure::new(what), false)
        })?;
        let outcome = client.put(body, from, self.length, &self.digest.to_string());
        progress.end();
        outcome.map_err(|failure| (explained(failure, client), has_moved))
    }

    fn rest(&self, from: u64, progress: &Arc<Progress>) -> io::Result<impl Read + 'static> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(from))?;
        Ok(Told {
            rest: file.take(self.length - from),
            progress: Arc::clone(progress),
        })
    }
}

/// Whoever was refused while sending has lost the answer: the server tells it again.
fn explained(failure: Failure, client: &Client) -> Failure {
    if !failure.is_passing {
        return failure;
    }
    let Some(error) = client.stand().ok().and_then(|standing| standing.error) else {
        return failure;
    };
    let status = error.split(' ').next().and_then(|it| it.parse().ok());
    match status {
        Some(status) if !is_passing(status) => {
            let words = error.split_once(' ').map_or("", |(_, words)| words);
            Failure::new(format!("{}: {words} (status {status})", client.place()))
        }
        _ => failure,
    }
}

/// Tells of what is read.
struct Told<R> {
    rest: R,
    progress: Arc<Progress>,
}

impl<R: Read> Read for Told<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.rest.read(buffer)?;
        self.progress.advance(length as u64);
        Ok(length)
    }
}
