//! Content of a registry on its way: what it is said to be, or not at all.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use disklet_core::names::Sha256;
use sha2::Digest;

use super::documents::Layer;
use crate::pull::http::{Client, Download, Keeping};
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

/// Content that comes.
pub(super) struct Blob<'b> {
    download: Download<'b>,
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
        let download = Download::begin(client, None, Keeping::Nothing, retries, observer)?;
        let url = client.url().to_string();
        if let Some(total) = download.total().filter(|total| *total != layer.size) {
            let what = format!(
                "{url}: the registry sends {total} bytes, not {} as the manifest says",
                layer.size
            );
            return Err(PullError::new(PullErrorKind::Digest, what));
        }
        Ok(Self {
            download,
            url,
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

impl Read for Blob<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = match self.download.read(buffer) {
            Ok(length) => length,
            Err(error) => {
                return Err(match self.download.take_failure() {
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
