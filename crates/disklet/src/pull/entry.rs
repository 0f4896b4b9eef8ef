//! The way of a stream into the store.

use std::io::{self, Read};

use disklet_block::image::Format;
use disklet_block::stream::Wrapping;
use disklet_core::images::{Address, Reference};
use disklet_core::names::Sha256;

use super::http::{Client, Download, Keeping};
use super::observer::Stop;
use super::registry::read_disk;
use super::{Beginning, Observer, Order, PullError, PullErrorKind, Registry};
use crate::shown::short_size;
use crate::store::{
    Added, Incoming, Provenance, Pulling, Store, StoreError, StoreErrorKind, Validator,
};

/// The way into the store.
pub(super) struct Entry<'e> {
    pub(super) store: &'e Store,
    pub(super) order: &'e Order<'e>,
    /// The digest that the file must have.
    pub(super) digest: Option<Sha256>,
    /// Where it comes from, and with whose credentials.
    pub(super) provenance: Provenance,
    pub(super) pulling: &'e Pulling,
    pub(super) observer: &'e dyn Observer,
}

impl Entry<'_> {
    /// What comes by itself, and only once.
    pub(super) fn plain(
        &self,
        stream: impl Read + Send,
        from: &str,
        total: Option<u64>,
    ) -> Result<Added, PullError> {
        self.begins(from, total, 0);
        let counted = Counted {
            stream,
            observer: self.observer,
        };
        Ok(self.take_in(counted, None)?)
    }

    /// The disk inside an image of a registry.
    pub(super) fn registry(&self, registry: &Registry) -> Result<Added, PullError> {
        let (name, retries) = (self.order.image.name(), self.order.retries);
        let taken = read_disk(registry, name, retries, self.observer, |file, pinned| {
            let by_name = self.order.from.is_none();
            let validator = by_name.then(|| version_of(pinned)).flatten();
            self.take_in(file.stream, validator)
                .map_err(PullError::from)
        });
        match taken {
            Err(_) if self.observer.cancelled() => Err(PullError::cancelled()),
            taken => Ok(taken?.0),
        }
    }

    /// A file that changes while it comes is begun anew, but not for ever.
    pub(super) fn web(&self, address: &Address) -> Result<Added, PullError> {
        const CHANGES: u32 = 2;
        let client = Client::new(address)?;
        let mut changes = 0;
        let mut keeping = Keeping::AsItComes;
        loop {
            let error = match self.attempt(&client, keeping) {
                Ok(added) => return Ok(added),
                Err(error) => error,
            };
            match error.kind() {
                PullErrorKind::Changed if changes < CHANGES => changes += 1,
                // What is kept is of no use to a server that does not go on from there.
                PullErrorKind::WrongPart if changes < CHANGES => {
                    changes += 1;
                    keeping = Keeping::Nothing;
                }
                // The image may fit if its file is not kept as well.
                PullErrorKind::Store(StoreErrorKind::Full) if keeping == Keeping::AsItComes => {
                    keeping = Keeping::Nothing;
                }
                _ => return Err(error),
            }
            let why = match error.kind() {
                PullErrorKind::Store(_) => "there is no room to keep it as it comes".to_owned(),
                _ => error.to_string(),
            };
            self.observer.notice(&format!("{why}; beginning anew"));
        }
    }

    fn attempt(&self, client: &Client, keeping: Keeping) -> Result<Added, PullError> {
        let retries = self.order.retries;
        let mut download =
            Download::begin(client, Some(self.pulling), keeping, retries, self.observer)?;
        let url = client.url().to_string();
        self.refuse_unsound(&download, &url)?;
        self.begins(&url, download.total(), download.kept());
        let start = refuse_page(&mut download, &url)?;
        // Only of what came by its name it can be told whether it is still there.
        let validator = download.validator().filter(|_| self.order.from.is_none());
        let validator = validator.cloned();
        let outcome = self.take_in(io::Cursor::new(start).chain(&mut download), validator);
        let error = match (outcome, download.take_failure()) {
            (Ok(added), _) => {
                download.forget();
                return Ok(added);
            }
            (Err(_), Some(failure)) => {
                download.keep();
                return Err(failure);
            }
            (Err(_), None) if self.observer.cancelled() => {
                download.keep();
                return Err(PullError::cancelled());
            }
            (Err(error), None) => error,
        };
        // No room, or no image: with what is here it would be the same again.
        download.forget();
        if error.kind() == StoreErrorKind::Digest && download.kept() > 0 {
            let what = format!("{url}: what an earlier pull has left does not fit");
            return Err(PullError::new(PullErrorKind::Changed, what));
        }
        Err(error.into())
    }

    /// Refuses what cannot become a sound image before it comes.
    fn refuse_unsound(&self, download: &Download<'_>, url: &str) -> Result<(), PullError> {
        // A qcow2 file may be larger than its disk, but not by so much.
        let most = self.order.most.as_bytes().saturating_mul(2);
        let most = most.saturating_add(64 << 20);
        if let Some(total) = download.total().filter(|total| *total > most) {
            return Err(PullError::new(
                PullErrorKind::TooLarge,
                format!(
                    "{url}: the file has {}, too much for a disk of at most {}",
                    short_size(total),
                    self.order.most
                ),
            )
            .help("allow larger disks with --max-size"));
        }
        if !download.has_end() && self.digest.is_none() {
            return Err(PullError::new(
                PullErrorKind::Protocol,
                format!("{url}: the server does not say how long the file is, so that it could be cut short unseen"),
            )
            .help("demand its digest: NAME@sha256:…"));
        }
        Ok(())
    }

    fn begins(&self, from: &str, total: Option<u64>, before: u64) {
        self.observer.begins(&Beginning {
            image: self.order.image.name(),
            from,
            total,
            before,
        });
    }

    fn take_in(
        &self,
        stream: impl Read + Send,
        validator: Option<Validator>,
    ) -> Result<Added, StoreError> {
        let incoming = Incoming {
            name: self.order.image.name(),
            stream,
            digest: self.digest,
            most: self.order.most,
        };
        let provenance = Provenance {
            validator,
            ..self.provenance.clone()
        };
        let added = self
            .store
            .add_from(provenance, incoming, &Stop(self.observer))?;
        if added.marked_corrupt {
            self.observer.notice(&format!(
                "image {}: its file is marked as corrupt, by whoever has found it so: its disk is taken as it is, and may be damaged",
                self.order.image.name()
            ));
        }
        Ok(added)
    }
}

/// By what an image is known again: the digest that its tag stood for.
pub(super) fn version_of(pinned: &Reference) -> Option<Validator> {
    let digest = pinned.digest()?;
    Some(Validator::Etag(format!("\"sha256:{digest}\"")))
}

/// Refuses what a server calls a page, unless its first bytes are an image's;
/// those that were read for it.
pub(super) fn refuse_page(download: &mut Download<'_>, url: &str) -> Result<Vec<u8>, PullError> {
    /// So many bytes show a boot sector.
    const SECTOR: u64 = 512;
    let mut start = Vec::new();
    if !download.is_page() {
        return Ok(start);
    }
    // As far as they come; why they do not is the download's to say.
    let _ = download.take(SECTOR).read_to_end(&mut start);
    if let Some(failure) = download.take_failure() {
        download.keep();
        return Err(failure);
    }
    if is_known(&start) {
        return Ok(start);
    }
    download.forget();
    Err(page(url))
}

/// Whether it is an image for sure, whatever a server calls it.
fn is_known(start: &[u8]) -> bool {
    Wrapping::by_magic(start) != Wrapping::Plain
        || Format::by_magic(start).is_ok_and(|format| format != Format::Raw)
        || start.get(510..).is_some_and(|end| end == [0x55, 0xaa])
}

fn page(url: &str) -> PullError {
    let what = format!("{url}: the server sends a page (text/html), not an image");
    PullError::new(PullErrorKind::Page, what).help(
        "it may ask for a login or tell an error: look at it in a browser; credentials are said in a transport, see docs/formats/image-mapping.md",
    )
}

/// Counts what is read.
struct Counted<'o, R> {
    stream: R,
    observer: &'o dyn Observer,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.observer.advance(length as u64);
        Ok(length)
    }
}
