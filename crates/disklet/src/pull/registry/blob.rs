//! Content of a registry on its way: what it is said to be, or not at all.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use disklet_core::names::Sha256;
use sha2::Digest;

use super::documents::Layer;
use crate::pull::http::{Ahead, Client, Download, Keeping};
use crate::pull::{Observer, PullError, PullErrorKind};

/// Why something did not come, for whoever hears only that it did not.
#[derive(Debug, Clone, Default)]
pub(super) struct Why(Arc<Mutex<Option<PullError>>>);

impl Why {
    pub(super) fn take(&self) -> Option<PullError> {
        self.0.lock().ok()?.take()
    }

    pub(super) fn keep(&self, error: PullError) -> io::Error {
        let told = io::Error::other(error.to_string());
        if let Ok(mut why) = self.0.lock() {
            why.get_or_insert(error);
        }
        told
    }
}

/// How content comes.
enum Coming<'b> {
    /// By one connection.
    Stream(Box<Download<'b>>),
    /// By several at once.
    Parts(Ahead<'b>),
}

impl Coming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stream(download) => download.read(buffer),
            Self::Parts(ahead) => ahead.read(buffer),
        }
    }

    fn take_failure(&mut self) -> Option<PullError> {
        match self {
            Self::Stream(download) => download.take_failure(),
            Self::Parts(ahead) => ahead.take_failure(),
        }
    }
}

/// Content that comes.
pub(super) struct Blob<'b> {
    coming: Coming<'b>,
    url: String,
    wanted: Sha256,
    /// How much is still to come.
    left: u64,
    hash: sha2::Sha256,
    why: Why,
}

impl<'b> Blob<'b> {
    pub(super) fn begin(
        client: &'b Client,
        layer: &Layer,
        retries: u32,
        observer: &'b dyn Observer,
        why: &Why,
    ) -> Result<Self, PullError> {
        let coming = match Ahead::begin(client, layer.size, retries, observer) {
            Some(ahead) => Coming::Parts(ahead),
            None => Coming::Stream(Box::new(stream(client, layer, retries, observer)?)),
        };
        Ok(Self {
            coming,
            url: client.url().to_string(),
            wanted: layer.digest,
            left: layer.size,
            hash: sha2::Sha256::new(),
            why: why.clone(),
        })
    }

    /// Reads what nobody has read, and makes sure of all of it.
    pub(super) fn demand(mut self) -> io::Result<()> {
        io::copy(&mut self, &mut io::sink())?;
        let digest: [u8; 32] = self.hash.finalize().into();
        let digest = Sha256::from_bytes(digest);
        if self.left == 0 && digest == self.wanted {
            return Ok(());
        }
        let what = format!(
            "{}: what came has the digest sha256:{digest}, not the one that it was asked by",
            self.url
        );
        let error = PullError::new(PullErrorKind::Digest, what);
        Err(self
            .why
            .keep(error.help("the registry is damaged, or somebody is between it and us")))
    }
}

fn stream<'b>(
    client: &'b Client,
    layer: &Layer,
    retries: u32,
    observer: &'b dyn Observer,
) -> Result<Download<'b>, PullError> {
    let download = Download::begin(client, None, Keeping::Nothing, retries, observer)?;
    match download.total().filter(|total| *total != layer.size) {
        None => Ok(download),
        Some(total) => {
            let what = format!(
                "{}: the registry sends {total} bytes, not {} as the manifest says",
                client.url(),
                layer.size
            );
            Err(PullError::new(PullErrorKind::Digest, what))
        }
    }
}

impl Read for Blob<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = match self.coming.read(buffer) {
            Ok(length) => length,
            Err(error) => {
                return Err(match self.coming.take_failure() {
                    Some(failure) => self.why.keep(failure),
                    None => error,
                });
            }
        };
        let Some(left) = self.left.checked_sub(length as u64) else {
            let what = format!("{}: more comes than the manifest says", self.url);
            return Err(self.why.keep(PullError::new(PullErrorKind::Digest, what)));
        };
        self.left = left;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}

impl std::fmt::Debug for Blob<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({})", self.url)
    }
}
