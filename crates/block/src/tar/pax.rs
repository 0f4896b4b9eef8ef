//! What is said of the next entry, where a header has no room for it.

use super::header::{Header, has_data};
use super::{Entry, Kind};
use crate::error::{Error, Result, corrupt};

/// What counts instead of what the header says.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl Overrides {
    pub(super) fn name(&mut self, bytes: Vec<u8>) {
        self.path = Some(without_zeroes(bytes));
    }

    pub(super) fn link(&mut self, bytes: Vec<u8>) {
        self.link = Some(without_zeroes(bytes));
    }

    /// Records like `23 path=disk/disk.img` and a line's end, whose number is
    /// their own length.
    pub(super) fn pax(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (key, value, rest) = record(bytes).ok_or_else(wrong)?;
            bytes = rest;
            match key {
                _ if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
                // Nothing said is as if it were not there.
                _ if value.is_empty() => {}
                b"path" | b"linkpath" if value.contains(&0) => return Err(wrong()),
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(size(value).ok_or_else(wrong)?),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn complete(self, header: Header) -> Result<Entry> {
        let mut header = header;
        if let Some(path) = self.path {
            header.path = path;
        }
        if let Some(link) = self.link {
            header.link = link;
        }
        if let Some(size) = self.size.filter(|_| has_data(header.mark)) {
            header.size = size;
        }
        if header.path.is_empty() {
            return Err(corrupt("the archive has an entry without a name"));
        }
        let mut entry = header.entry();
        if self.is_sparse && entry.kind == Kind::File {
            entry.kind = Kind::Sparse;
        }
        Ok(entry)
    }
}

/// The first record's key and value, and what follows it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..blank]).ok()?.parse().ok()?;
    let record = bytes.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &bytes[length..]))
}

fn size(value: &[u8]) -> Option<u64> {
    let size: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    u64::try_from(size).ok()
}

fn without_zeroes(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    bytes
}

fn wrong() -> Error {
    corrupt("what the archive says of an entry cannot be read")
}
