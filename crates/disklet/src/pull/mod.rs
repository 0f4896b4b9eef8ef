//! Fetching images into the store: from a file, a pipe or a web server.

mod error;
mod http;
mod observer;
mod origin;

use std::fs::File;
use std::io::{self, Read};

use disklet_core::config::Config;
use disklet_core::facts::ImageFact;
use disklet_core::images::Address;
use disklet_core::names::{ImageName, Sha256};
use disklet_core::units::ByteSize;

use crate::shown::short_size;
use crate::store::{Added, Incoming, Pulling, Store, StoreErrorKind};
use http::{Client, Download, Keeping};
use observer::Stop;

pub use error::{PullError, PullErrorKind};
pub use observer::{Beginning, Observer, Teller};
pub use origin::Origin;

/// An image that shall come into the store.
#[derive(Debug)]
pub struct Order<'o> {
    /// Its name; a digest in it must be met.
    pub image: &'o ImageName,
    /// Where it comes from, if not from where the configuration and its name
    /// say.
    pub from: Option<Origin>,
    /// The size of the largest disk.
    pub most: ByteSize,
    /// How often in a row it is tried to go on.
    pub retries: u32,
}

impl<'o> Order<'o> {
    /// How often in a row it is tried to go on, unless it is said.
    pub const RETRIES: u32 = 5;
    /// The size of the largest disk, unless it is said.
    pub const MOST: ByteSize = ByteSize::from_bytes(2 << 40);

    /// An image from where the configuration and its name say.
    #[must_use]
    pub fn of(image: &'o ImageName) -> Self {
        Self {
            image,
            from: None,
            most: Self::MOST,
            retries: Self::RETRIES,
        }
    }
}

/// What the store knows of an image, fetched first if it is not there. Hold no
/// [`Store::rely`] meanwhile: this may take long, and whoever removes images
/// would wait. Take it afterwards, and look the image up again.
pub fn ensure(
    config: &Config,
    image: &ImageName,
    observer: &dyn Observer,
) -> Result<ImageFact, PullError> {
    let store = Store::of(&config.data_dir);
    if let Some(fact) = wanted(&store, image, image.digest())? {
        return Ok(fact);
    }
    Ok(pull(config, Order::of(image), observer)?.fact)
}

/// Takes an image into the store. Those who want the same wait for one
/// another, and find it there.
pub fn pull(
    config: &Config,
    order: Order<'_>,
    observer: &dyn Observer,
) -> Result<Added, PullError> {
    let name = order.image.name();
    pull_from(config, order, observer).map_err(|error| match error.kind() {
        // The store names the image itself.
        PullErrorKind::Store(_) => error,
        _ => error.of(name),
    })
}

fn pull_from(
    config: &Config,
    mut order: Order<'_>,
    observer: &dyn Observer,
) -> Result<Added, PullError> {
    let by_name = order.from.is_none();
    let origin = match order.from.take() {
        Some(origin) => origin,
        None => Origin::of(order.image, config)?,
    };
    let digest = demanded(order.image, &origin)?;
    let store = Store::of(&config.data_dir);
    let name = order.image.name();
    let before = store.stamp(name);
    let pulling = store.pulling(name, || {
        observer.notice(&format!("{name}: waiting for another pull of it"));
    })?;
    // Whoever was at it has brought what we want.
    if pulling.waited
        && store.stamp(name) != before
        && let Some(fact) = wanted(&store, order.image, digest)?
    {
        pulling.finish();
        return Ok(Added { fact, known: true });
    }
    // What is there need not come again, whoever had it under which name.
    if let (true, Some(digest)) = (by_name, digest)
        && let Some(fact) = store.adopt(name, digest)?
    {
        pulling.finish();
        return Ok(Added { fact, known: true });
    }
    let entry = Entry {
        store: &store,
        order: &order,
        digest,
        pulling: &pulling,
        observer,
    };
    let outcome = match &origin {
        Origin::File(path) => File::open(path)
            .map_err(|error| {
                let what = format!("{}: cannot be opened", path.display());
                PullError::new(PullErrorKind::NotFound, what).because(error)
            })
            .and_then(|file| {
                let total = file.metadata().ok().map(|meta| meta.len());
                entry.plain(file, &path.display().to_string(), total)
            }),
        Origin::StandardInput => entry.plain(io::stdin(), "standard input", None),
        Origin::Web(address) => entry.web(address),
    };
    pulling.finish();
    outcome
}

/// What the name and the mapping demand.
fn demanded(image: &ImageName, origin: &Origin) -> Result<Option<Sha256>, PullError> {
    let mapped = match origin {
        Origin::Web(address) => address.digest,
        Origin::File(_) | Origin::StandardInput => None,
    };
    match (image.digest(), mapped) {
        (Some(named), Some(mapped)) if named != mapped => Err(PullError::new(
            PullErrorKind::Settings,
            format!("the mapping has the digest sha256:{mapped}, not sha256:{named} as demanded"),
        )),
        (named, mapped) => Ok(named.or(mapped)),
    }
}

/// What the store has, if it is what is wanted.
fn wanted(
    store: &Store,
    image: &ImageName,
    digest: Option<Sha256>,
) -> Result<Option<ImageFact>, PullError> {
    let found = store.find(image.name())?;
    Ok(found.filter(|fact| digest.is_none_or(|digest| digest == fact.digest)))
}

/// The way into the store.
struct Entry<'e> {
    store: &'e Store,
    order: &'e Order<'e>,
    digest: Option<Sha256>,
    pulling: &'e Pulling,
    observer: &'e dyn Observer,
}

impl Entry<'_> {
    fn plain(
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
        Ok(self.take_in(counted)?)
    }

    /// A file that changes while it comes is begun anew, but not for ever.
    fn web(&self, address: &Address) -> Result<Added, PullError> {
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
                // The image may fit if its file is not kept as well.
                PullErrorKind::Store(StoreErrorKind::Full) if keeping == Keeping::AsItComes => {
                    keeping = Keeping::Nothing;
                }
                _ => return Err(error),
            }
            self.observer.notice(&format!("{error}; beginning anew"));
        }
    }

    fn attempt(&self, client: &Client<'_>, keeping: Keeping) -> Result<Added, PullError> {
        let retries = self.order.retries;
        let mut download = Download::begin(client, self.pulling, keeping, retries, self.observer)?;
        let url = client.url().to_string();
        self.refuse_unsound(&download, &url)?;
        self.begins(&url, download.total(), download.kept());
        let outcome = self.take_in(&mut download);
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

    fn take_in(&self, stream: impl Read + Send) -> Result<Added, crate::store::StoreError> {
        let incoming = Incoming {
            name: self.order.image.name(),
            stream,
            digest: self.digest,
            most: self.order.most,
        };
        self.store.add(incoming, &Stop(self.observer))
    }
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
