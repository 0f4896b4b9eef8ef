//! A file of a web server that several connections bring at once, read in order.
//!
//! ```text
//!   connections --parts, as they come--> window --in order--> whoever reads
//!        \<----------- no further than so far ahead -----------/
//! ```
//!
//! One connection is as fast as its distance lets it be; several are as fast as the line.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Client;
use super::disk::File;
use crate::pull::{Observer, PullError};

/// So many are under way at once.
const CONNECTIONS: usize = 4;
/// So much is asked for at once: what a request costs does not show beside it.
const PART: u64 = 4 << 20;
/// So many parts are in memory at most beside the one that is being read, those on their
/// way among them.
const WINDOW: u64 = 5;
/// What is smaller comes soon enough by one.
const WORTH_IT: u64 = 4 * PART;

/// Soon enough for whoever has changed their mind.
const LOOK: Duration = Duration::from_millis(50);

/// A file on its way.
pub(in crate::pull) struct Ahead<'a> {
    shared: Arc<Shared>,
    observer: &'a dyn Observer,
    current: Vec<u8>,
    /// How much of it has been handed on.
    at: usize,
    failure: Option<PullError>,
}

/// What the reader and the connections share.
struct Shared {
    file: File,
    unwanted: AtomicBool,
    parts: Mutex<Parts>,
    changed: Condvar,
}

#[derive(Default)]
struct Parts {
    /// The first that nobody has asked for.
    begun: u64,
    /// The first that has not been read.
    read: u64,
    /// Those between that have come, or not.
    come: BTreeMap<u64, Result<Vec<u8>, PullError>>,
}

impl<'a> Ahead<'a> {
    /// Begins, if the file has so many bytes that it is worth it, and the server sends
    /// parts. Whoever gets nothing asks for the file as a whole, and hears why.
    pub(in crate::pull) fn begin(
        client: &Client,
        size: u64,
        retries: u32,
        observer: &'a dyn Observer,
    ) -> Option<Self> {
        if size < WORTH_IT {
            return None;
        }
        let name = client.url().to_string();
        let file = File::open(client.clone(), name).ok()?.tried(retries);
        if file.size() != size {
            return None;
        }
        let shared = Arc::new(Shared {
            file,
            unwanted: AtomicBool::new(false),
            parts: Mutex::default(),
            changed: Condvar::new(),
        });
        for _ in 0..CONNECTIONS {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.bring());
        }
        Some(Self {
            shared,
            observer,
            current: Vec::new(),
            at: 0,
            failure: None,
        })
    }

    /// Why it could not be read to its end, if it could not.
    pub(in crate::pull) fn take_failure(&mut self) -> Option<PullError> {
        self.failure.take()
    }

    /// The next part; nothing at the end.
    fn next(&self) -> Result<Vec<u8>, PullError> {
        let mut parts = self.shared.lock();
        loop {
            let wanted = parts.read;
            if wanted == self.shared.count() {
                return Ok(Vec::new());
            }
            if let Some(come) = parts.come.remove(&wanted) {
                parts.read += 1;
                self.shared.changed.notify_all();
                return come;
            }
            if self.observer.cancelled() {
                return Err(PullError::cancelled());
            }
            let waited = self.shared.changed.wait_timeout(parts, LOOK);
            parts = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    /// Asks for one part after the other, as long as any is wanted.
    fn bring(&self) {
        while let Some(nth) = self.take() {
            let first = nth * PART;
            let length = PART.min(self.file.size() - first);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let part = self.file.part(first, length, &self.unwanted);
            self.lock().come.insert(nth, part);
            self.changed.notify_all();
        }
    }

    /// Which part to ask for, once there is room for it.
    fn take(&self) -> Option<u64> {
        let mut parts = self.lock();
        loop {
            if self.unwanted.load(Ordering::Relaxed) || parts.begun == self.count() {
                return None;
            }
            if parts.begun < parts.read + WINDOW {
                parts.begun += 1;
                return Some(parts.begun - 1);
            }
            let waited = self.changed.wait(parts);
            parts = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn count(&self) -> u64 {
        self.file.size().div_ceil(PART)
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for Ahead<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.at == self.current.len() {
            // Two parts are not kept where one is wanted.
            self.current = Vec::new();
            self.at = 0;
            self.current = self.next().map_err(|error| {
                let told = io::Error::other(error.to_string());
                self.failure = Some(error);
                told
            })?;
        }
        let rest = &self.current[self.at..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        self.observer.advance(length as u64);
        Ok(length)
    }
}

impl Drop for Ahead<'_> {
    /// Who waits for a server ends when that has answered, and is not waited for.
    fn drop(&mut self) {
        self.shared.unwanted.store(true, Ordering::Relaxed);
        // Nobody may be about to wait who has not seen it.
        drop(self.shared.lock());
        self.shared.changed.notify_all();
    }
}
