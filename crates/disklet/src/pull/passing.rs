//! A file of a web server that passes by: it is read once, and kept by whoever reads it.

use std::io::{self, Read};

use disklet_core::images::Address;

use super::entry::refuse_page;
use super::http::{Client, Download, Keeping};
use super::{Beginning, Observer, PullError, PullErrorKind};

/// A file that comes.
pub struct Passing<'p> {
    /// Its bytes. A lost connection is taken up again where it was lost.
    pub stream: &'p mut (dyn Read + Send),
    /// How many there are, if the server says so.
    pub total: Option<u64>,
}

impl std::fmt::Debug for Passing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passing({:?} bytes)", self.total)
    }
}

/// Has a file read by somebody, who knows whether it is whole by its digest if it says
/// so. Why it did not come to its end is told rather than what they made of that.
pub fn read_once<T, E: From<PullError>>(
    address: &Address,
    retries: u32,
    knows_its_end: bool,
    observer: &dyn Observer,
    read: impl FnOnce(Passing<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let client = Client::new(address)?;
    let mut download = Download::begin(&client, None, Keeping::Nothing, retries, observer)?;
    let url = client.url().to_string();
    if !download.has_end() && !knows_its_end {
        let what = format!(
            "{url}: the server does not say how long the file is, so that it could be cut short unseen"
        );
        let error = PullError::new(PullErrorKind::Protocol, what);
        return Err(error.help("demand its digest: --digest sha256:…").into());
    }
    observer.begins(&Beginning {
        image: "the disk",
        from: &url,
        total: download.total(),
        before: 0,
    });
    let start = refuse_page(&mut download, &url)?;
    let total = download.total();
    let outcome = read(Passing {
        stream: &mut io::Cursor::new(start).chain(&mut download),
        total,
    });
    match (outcome, download.take_failure()) {
        (Ok(done), _) => Ok(done),
        (Err(_), Some(failure)) => Err(failure.into()),
        (Err(error), None) => Err(error),
    }
}
