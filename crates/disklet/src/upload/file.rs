//! The file that is sent, again and again from where it was lost.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, mpsc};
use std::thread::sleep;
use std::time::Duration;

use disklet::progress::{Progress, ProgressForm};
use disklet_block::convert::Watch;

use super::Failure;
use super::client::{Client, Sent, is_passing};
use super::source::{Body, Compress, Source};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// A file that is sent.
pub(super) struct Upload {
    source: Source,
}

impl Upload {
    pub(super) fn open(path: &Path, compress: Compress) -> Result<Self, Failure> {
        let source = Source::open(path, compress)?;
        Ok(Self { source })
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
        let Source { length, digest, .. } = &self.source;
        let standing = client.stand().map_err(|failure| (failure, false))?;
        if standing.state == "done" {
            // Perhaps by us, who have not heard so.
            return match standing.digest == Some(format!("sha256:{digest}")) {
                true => Ok(format!(
                    "is what the volume is filled with, sha256:{digest}"
                )),
                false => {
                    let place = client.place();
                    let what = format!("{place}: the volume is filled already, from another file");
                    Err((Failure::new(what), false))
                }
            };
        }
        if standing.state == "busy" {
            let what = format!("{}: somebody else is uploading", client.place());
            return Err((Failure::new(what).passing(), false));
        }
        // Another file's beginning is of no use.
        let is_ours = standing.length.is_none_or(|theirs| theirs == *length);
        let from = if is_ours {
            self.source.restart(standing.offset)
        } else {
            0
        };
        let has_moved = from > *reached;
        *reached = from.max(*reached);
        let progress = Progress::new(Some(*length), form).beginning_at(from);
        let progress = Arc::new(progress);
        let outcome = self.put(client, from, &progress);
        progress.end();
        outcome.map_err(|failure| (explained(failure, client), has_moved))
    }

    /// Sends what is behind a place on a thread of its own. Whoever waits for the answer asks
    /// meanwhile how it stands: a connection can be dead without a word.
    fn put(&self, client: &Client, from: u64, progress: &Arc<Progress>) -> Result<String, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let body = Told {
            rest: self.source.rest(from),
            progress: Arc::clone(progress),
            is_over: Arc::clone(&is_over),
        };
        let sent = Sent {
            from,
            total: self.source.length,
            disk: self.source.disk(),
            digest: self.source.digest.to_string(),
        };
        let (tell, told) = channel();
        let sender = client.clone();
        std::thread::spawn(move || tell.send(sender.put(body, &sent)));
        await_answer(client, &told, &is_over)
    }
}

fn await_answer(
    client: &Client,
    told: &mpsc::Receiver<Result<String, Failure>>,
    is_over: &AtomicBool,
) -> Result<String, Failure> {
    let mut looked_in_vain = 0;
    loop {
        match told.recv_timeout(client.patience()) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("the upload has ended without a word"));
            }
            // Of what is still being sent, the connection tells that it is lost.
            Err(RecvTimeoutError::Timeout) if !is_over.load(Ordering::Relaxed) => {}
            Err(RecvTimeoutError::Timeout) => {
                let is_busy = client.stand().is_ok_and(|it| it.state == "busy");
                looked_in_vain = if is_busy { 0 } else { looked_in_vain + 1 };
                // The answer may have been on its way.
                if looked_in_vain > 1 {
                    let what = format!("{}: the connection was lost", client.place());
                    return Err(Failure::new(what).passing());
                }
            }
        }
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
struct Told {
    rest: Body,
    progress: Arc<Progress>,
    is_over: Arc<AtomicBool>,
}

impl Read for Told {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.rest.read(buffer)?;
        self.progress.advance(length as u64);
        if self.rest.is_over() {
            self.is_over.store(true, Ordering::Relaxed);
        }
        Ok(length)
    }
}
