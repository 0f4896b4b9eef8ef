//! What an L2 table says, as a list of pieces of the disk.

use crate::error::{Result, corrupt};
use crate::qcow2::{Header, L2Entry, SubclusterState};

/// A stretch of the disk that comes from one place. It ends with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// Reads as zeroes.
    Zero { guest: u64, length: u64 },
    /// Lies in the file as it is.
    Plain { guest: u64, host: u64, length: u64 },
    /// One cluster, packed into `packed` bytes at most, of which `length`
    /// bytes belong to the disk.
    Packed {
        guest: u64,
        host: u64,
        packed: u64,
        length: u64,
    },
}

impl Piece {
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Zero { length, .. }
            | Self::Plain { length, .. }
            | Self::Packed { length, .. } => *length,
        }
    }

    /// Where its bytes end in the file, if it has any there.
    pub(super) fn host_end(&self) -> u64 {
        match self {
            Self::Zero { .. } => 0,
            Self::Plain { host, length, .. } => host.saturating_add(*length),
            Self::Packed { host, packed, .. } => host.saturating_add(*packed),
        }
    }

    /// Divides it into what begins before an offset of the file and what
    /// begins there or later. A packed cluster is not divided.
    pub(super) fn split(self, boundary: u64) -> (Option<Self>, Option<Self>) {
        match self {
            Self::Zero { .. } => (Some(self), None),
            Self::Packed { host, .. } if host < boundary => (Some(self), None),
            Self::Plain { .. } if self.host_end() <= boundary => (Some(self), None),
            Self::Plain {
                guest,
                host,
                length,
            } if host < boundary => {
                let before = boundary - host;
                let first = Self::Plain {
                    guest,
                    host,
                    length: before,
                };
                let second = Self::Plain {
                    guest: guest + before,
                    host: boundary,
                    length: length - before,
                };
                (Some(first), Some(second))
            }
            Self::Plain { .. } | Self::Packed { .. } => (None, Some(self)),
        }
    }

    /// Makes it longer by what follows on the disk, if that lies behind it in
    /// the file as well.
    fn extend(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Zero { length, .. }, Self::Zero { length: more, .. }) => {
                *length += more;
                true
            }
            (
                Self::Plain { host, length, .. },
                Self::Plain {
                    host: behind,
                    length: more,
                    ..
                },
            ) if *host + *length == *behind && *length + more <= LONGEST => {
                *length += more;
                true
            }
            _ => false,
        }
    }
}

/// The longest plain piece: lengths are kept in 32 bits.
const LONGEST: u64 = 1 << 30;

/// The pieces of one L2 table, in the order of the disk.
pub(super) struct Pieces<'t> {
    table: &'t [u8],
    header: &'t Header,
    /// Where the table's part of the disk begins.
    start: u64,
    /// How far the table has been read, counted from there.
    at: u64,
    end: u64,
    ahead: Option<Piece>,
}

impl<'t> Pieces<'t> {
    /// Of the table with this number in the L1 table.
    pub(super) fn of(table: &'t [u8], header: &'t Header, index: u32) -> Self {
        let reach = header.l2_reach();
        let start = u64::from(index) * reach;
        Self {
            table,
            header,
            start,
            at: 0,
            end: header.size.saturating_sub(start).min(reach),
            ahead: None,
        }
    }

    /// The next piece of at most one cluster.
    fn small(&mut self) -> Result<Option<Piece>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let cluster = self.header.cluster;
        let within = cluster.within(self.at);
        let guest = self.start + self.at;
        let rest = self.end - self.at;
        let piece = match self.entry(self.at >> cluster.bits())? {
            L2Entry::Compressed(packed) => Piece::Packed {
                guest,
                host: packed.offset.0,
                packed: packed.length,
                length: rest.min(cluster.bytes()),
            },
            L2Entry::Plain { host, states } => {
                let subcluster = cluster.bytes() / 32;
                let index = u32::try_from(within / subcluster).unwrap_or(0);
                let (state, end) = states.run_at(index);
                let length = (u64::from(end) * subcluster - within).min(rest);
                match (state, host) {
                    (SubclusterState::Allocated, Some(host)) => Piece::Plain {
                        guest,
                        host: host.0 + within,
                        length,
                    },
                    // Nothing lies below a streamed image.
                    _ => Piece::Zero { guest, length },
                }
            }
        };
        self.at += piece.length();
        Ok(Some(piece))
    }

    fn entry(&self, number: u64) -> Result<L2Entry> {
        let size = usize::try_from(self.header.l2_entry_bytes()).unwrap_or(8);
        let start = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_mul(size);
        let words = self.table.get(start..).unwrap_or_default();
        let word = |at: usize| {
            let bytes = words.get(at..at + 8).and_then(|word| word.try_into().ok());
            bytes
                .map(u64::from_be_bytes)
                .ok_or_else(|| corrupt("an L2 table is cut short"))
        };
        let bitmap = if size == 16 { Some(word(8)?) } else { None };
        L2Entry::decode(word(0)?, bitmap, self.header.cluster, true)
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        let first = match self.ahead.take() {
            Some(piece) => Ok(Some(piece)),
            None => self.small(),
        };
        let mut piece = match first {
            Ok(piece) => piece?,
            Err(error) => {
                self.at = self.end;
                return Some(Err(error));
            }
        };
        loop {
            match self.small() {
                Ok(Some(next)) if piece.extend(&next) => {}
                Ok(next) => {
                    self.ahead = next;
                    return Some(Ok(piece));
                }
                Err(error) => {
                    self.at = self.end;
                    return Some(Err(error));
                }
            }
        }
    }
}
