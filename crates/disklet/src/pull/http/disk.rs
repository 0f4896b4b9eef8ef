//! A file of a web server, read in parts as a disk is.
//!
//! ```text
//!   read_at --> a thread that asks --> whichever connection is idle --> server
//!      \--> waits, and looks whether anybody still wants it
//! ```
//!
//! QEMU has a driver for such files that loses requests when several are under
//! way at once: whoever reads all of a file by it may wait for ever.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use disklet_block::device::{Extent, Extents, ReadAt, Shareable, Size};
use disklet_block::error::{Error, ErrorKind, Result as BlockResult};
use disklet_core::images::Address;
use disklet_core::url::Url;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::Client;
use super::answer::{Part, length_without_part, refuse_encoded};
use super::client::Asked;
use super::mark::Mark;
use super::patience::in_words;
use crate::pull::{PullError, PullErrorKind};
use crate::report::with_causes;

type Result<T> = std::result::Result<T, PullError>;

/// More than anybody reads at once from here.
const KEPT_CONNECTIONS: usize = 16;

/// How often a part is asked for, if nobody says how often.
const TRIES: u32 = 5;

/// Soon enough for whoever has changed their mind.
const LOOK: Duration = Duration::from_millis(50);

const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// So often it is doubled.
const LONGEST_PAUSE: u32 = 6;

/// A file of a web server whose bytes can be had in any order.
pub struct WebDisk {
    file: Arc<File>,
    /// Told by whoever opened it.
    unwanted: Arc<AtomicBool>,
}

/// What those who ask share.
pub(super) struct File {
    client: Client,
    name: String,
    size: u64,
    mark: Mark,
    tries: u32,
    /// Whom the address led to, and who asks there.
    at: Mutex<(Url, Agent)>,
}

impl WebDisk {
    /// Finds out how large it is. Nobody waits for it any more once it is unwanted.
    pub fn open(address: &Address, unwanted: Arc<AtomicBool>) -> Result<Self> {
        let client = Client::new(address)?;
        let name = address.url.to_string();
        let opened = abandonable(&unwanted, move || File::open(client, name));
        let file = opened.unwrap_or_else(|| Err(PullError::cancelled()))?;
        Ok(Self {
            file: Arc::new(file),
            unwanted,
        })
    }

    fn failed(&self, error: &PullError) -> Error {
        let words = with_causes(error);
        let named = format!("{}: ", self.file.name);
        let bare = words.strip_prefix(&named).unwrap_or(&words);
        Error::new(ErrorKind::Io, bare).of(&self.file.name)
    }
}

impl File {
    /// Finds out how large it is, of a server that sends parts.
    pub(super) fn open(client: Client, name: String) -> Result<Self> {
        let (url, response) = client.follow(Asked::Part(0, 0))?;
        let status = response.status().as_u16();
        let headers = response.headers();
        let size = match status {
            206 => Part::of(headers).and_then(|part| part.total),
            // There is no first byte of nothing.
            416 => length_without_part(headers).filter(|length| *length == 0),
            200 => None,
            _ => return Err(client.refused(&url, status)),
        };
        let size = size.ok_or_else(|| whole_files_only(&url))?;
        refuse_encoded(headers, &url.to_string())?;
        let mark = Mark::of(headers);
        let agent = client.agent(&url, KEPT_CONNECTIONS)?;
        Ok(Self {
            client,
            name,
            size,
            mark,
            tries: TRIES,
            at: Mutex::new((url, agent)),
        })
    }

    /// After so many failures in a row a part is not asked for again.
    pub(super) fn tried(self, retries: u32) -> Self {
        let tries = retries.saturating_add(1);
        Self { tries, ..self }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// So many bytes, which are there. A server that loses its connections is asked
    /// again, for what has not come.
    pub(super) fn part(&self, first: u64, length: usize, unwanted: &AtomicBool) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut come = 0;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.attempt(first, &mut bytes, &mut come) {
                Err(error) if error.is_passing() && tries < self.tries => {
                    std::thread::sleep(FIRST_PAUSE * (1 << tries.min(LONGEST_PAUSE)));
                    if unwanted.load(Ordering::Relaxed) {
                        return Err(PullError::cancelled());
                    }
                }
                outcome => return outcome.map(|()| bytes),
            }
        }
    }

    fn attempt(&self, first: u64, bytes: &mut [u8], come: &mut usize) -> Result<()> {
        let asked = (first + *come as u64, first + bytes.len() as u64 - 1);
        let (url, response) = self.ask(asked.0, asked.1)?;
        match response.status().as_u16() {
            206 => self.demand_same(&url, &response, asked)?,
            200 | 416 => return Err(self.changed(&url)),
            status => return Err(self.client.refused(&url, status)),
        }
        let body = response.into_body().into_with_config().limit(u64::MAX);
        let mut body = body.reader();
        while *come < bytes.len() {
            match body.read(&mut bytes[*come..]) {
                Ok(0) => return Err(lost(&url, &io::ErrorKind::UnexpectedEof.into())),
                Ok(more) => *come += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&url, &error)),
            }
        }
        Ok(())
    }

    /// Asks whom the address led to before, or, if that is over, where it leads now.
    fn ask(&self, first: u64, last: u64) -> Result<(Url, Response<Body>)> {
        let asked = Asked::Part(first, last);
        let (url, agent) = self
            .at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let response = self.client.ask_by(&agent, &url, asked)?;
        let is_over = match response.status().as_u16() {
            // What the registry was told of us may be told for some minutes only.
            301 | 302 | 303 | 307 | 308 | 401 => true,
            403 | 404 | 410 => url != *self.client.url(),
            _ => false,
        };
        if !is_over {
            return Ok((url, response));
        }
        let (url, response) = self.client.follow(asked)?;
        let agent = self.client.agent(&url, KEPT_CONNECTIONS)?;
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = (url.clone(), agent);
        Ok((url, response))
    }

    fn demand_same(&self, url: &Url, response: &Response<Body>, asked: (u64, u64)) -> Result<()> {
        let headers = response.headers();
        refuse_encoded(headers, &url.to_string())?;
        let part = Part::of(headers);
        if part.is_none_or(|part| (part.first, part.last) != asked) {
            let why = format!("{url}: the server sends another part than it was asked for");
            return Err(PullError::new(PullErrorKind::WrongPart, why));
        }
        let same_size = part.is_some_and(|part| part.total.is_none_or(|it| it == self.size));
        // What is asked by its digest is judged by that, whoever sends it.
        let same_tag = self.client.is_by_digest() || Mark::of(headers).is_of_same(&self.mark);
        match same_size && same_tag {
            true => Ok(()),
            false => Err(self.changed(url)),
        }
    }

    fn changed(&self, url: &Url) -> PullError {
        let what = format!("{url}: has become another file while it was read");
        PullError::new(PullErrorKind::Changed, what)
    }
}

fn whole_files_only(url: &Url) -> PullError {
    let what = format!("{url}: the server sends whole files only, no parts of them");
    PullError::new(PullErrorKind::WrongPart, what)
        .help("have it as an image, with source: {image: {name: https://…}}")
}

fn lost(url: &Url, error: &io::Error) -> PullError {
    PullError::new(PullErrorKind::Lost, format!("{url}: {}", in_words(error))).passing()
}

/// Has something done that may take long; nothing if nobody wants it any more. Who does
/// it is not waited for then.
fn abandonable<T: Send + 'static>(
    unwanted: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, wait) = mpsc::sync_channel(1);
    std::thread::spawn(move || done.send(work()));
    loop {
        match wait.recv_timeout(LOOK) {
            Ok(outcome) => return Some(outcome),
            Err(RecvTimeoutError::Timeout) if !unwanted.load(Ordering::Relaxed) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

impl std::fmt::Debug for WebDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("WebDisk");
        shown.field("name", &self.file.name).finish_non_exhaustive()
    }
}

impl Size for WebDisk {
    fn size(&self) -> BlockResult<u64> {
        Ok(self.file.size)
    }
}

impl ReadAt for WebDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> BlockResult<()> {
        let (file, length) = (Arc::clone(&self.file), buffer.len());
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > file.size) {
            let what = Error::new(ErrorKind::Invalid, "read beyond the end of the file");
            return Err(what.of(&file.name));
        }
        if length == 0 {
            return Ok(());
        }
        let unwanted = Arc::clone(&self.unwanted);
        let part = abandonable(&self.unwanted, move || file.part(offset, length, &unwanted));
        match part {
            Some(Ok(bytes)) => buffer.copy_from_slice(&bytes),
            Some(Err(error)) if error.kind() != PullErrorKind::Cancelled => {
                return Err(self.failed(&error));
            }
            Some(Err(_)) | None => return Err(Error::new(ErrorKind::Cancelled, "cancelled")),
        }
        Ok(())
    }
}

impl Extents for WebDisk {
    /// A web server knows nothing of zeroes.
    fn extent_at(&self, offset: u64) -> BlockResult<Extent> {
        Ok(Extent {
            length: self.file.size.saturating_sub(offset),
            zero: false,
        })
    }
}

impl Shareable for WebDisk {
    fn shareable_file(&self) -> Option<&std::fs::File> {
        None
    }
}
