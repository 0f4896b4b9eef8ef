//! Decides what becomes of each cluster of a qcow2 file that comes as a
//! stream. It touches no file: it is fed bytes and emits actions.
//!
//! ```text
//!   cluster comes --+-- part of the L1 table ------> its L2 tables are known
//!                   +-- an L2 table ---------------> its data is awaited
//!                   +-- awaited data --------------> Write, Unpack
//!                   +-- unknown, may matter later -> Park
//!                   +-- unknown, cannot matter ----> nothing
//!   stream ends ------- tables with parked data ---> Fetch, FetchPacked
//! ```

use super::action::{Action, Carry, Joiner};
use super::expected::Expected;
use super::parked::{MOST_CLUSTERS, Parked};
use super::piece::Piece;
use super::tables::Tables;
use crate::error::{Error, ErrorKind, Result, corrupt, limit};
use crate::qcow2::{ClusterSize, DataFile, Header};

/// A packed cluster takes at most two clusters and can begin at the end of a
/// third.
const LOOKAHEAD: u64 = 3;

/// The state between clusters.
#[derive(Debug)]
pub struct Placer {
    pub(super) header: Header,
    pub(super) tables: Tables,
    pub(super) parked: Parked,
    pub(super) expected: Expected,
    /// How far the stream has been taken in; a multiple of the cluster size
    /// until it ends.
    pub(super) position: u64,
    /// How much of the L1 table has come.
    pub(super) l1_entries: u32,
    /// The packed bytes that are known reach up to here without a gap.
    packed_reach: u64,
    /// No file is longer.
    pub(super) most: u64,
    pub(super) settling: bool,
}

impl Placer {
    /// Begins with a file's first bytes: a whole cluster, or all there are.
    /// A file that is longer than `most` is refused.
    pub fn new(start: &[u8], most: Option<u64>) -> Result<Self> {
        let cluster = usize::try_from(Header::reach(start)?).unwrap_or(usize::MAX);
        let header = Header::parse(&start[..cluster.min(start.len())])?;
        refuse_other_files(&header)?;
        let most = most.unwrap_or_else(|| default_most(header.size));
        let most = most.min(MOST_CLUSTERS << header.cluster.bits());
        let l1_bytes = u64::from(header.l1_entries) * 8;
        if l1_bytes > 0 && header.l1_offset.0 == 0 {
            return Err(corrupt("the L1 table lies in the header"));
        }
        if header.l1_offset.0.saturating_add(l1_bytes) > most {
            return Err(beyond(most, "the L1 table"));
        }
        Ok(Self {
            header,
            tables: Tables::default(),
            parked: Parked::default(),
            expected: Expected::default(),
            position: 0,
            l1_entries: 0,
            packed_reach: 0,
            most,
            settling: false,
        })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes at once [`Placer::feed`] needs, unless the file ends
    /// before.
    #[must_use]
    pub fn lookahead(cluster: ClusterSize) -> u64 {
        LOOKAHEAD * cluster.bytes()
    }

    /// Takes in bytes of the file, from where the last call left off, and
    /// returns how many; the others are fed again. `last` says that the file
    /// ends with these bytes. Takes nothing while a table is
    /// [wanted](Placer::wanted).
    pub fn feed(&mut self, bytes: &[u8], last: bool, carry: &mut Carry<'_>) -> Result<usize> {
        let base = self.position;
        let end = base + bytes.len() as u64;
        if end > self.most {
            return Err(limit(format!(
                "the image is longer than {} bytes, which is more than it may be",
                self.most
            )));
        }
        let mut joiner = Joiner::new(bytes, base, carry);
        let lookahead = Self::lookahead(self.header.cluster);
        while self.position < end && (last || end - self.position >= lookahead) {
            if self.tables.passed().is_some() {
                break;
            }
            self.take_cluster(end, &mut joiner)?;
        }
        joiner.finish()?;
        Ok(usize::try_from(self.position - base).unwrap_or(0))
    }

    fn take_cluster(&mut self, fed: u64, joiner: &mut Joiner<'_, '_>) -> Result<()> {
        let cluster = self.header.cluster;
        let start = self.position;
        let end = (start + cluster.bytes()).min(fed);
        let mut known = self.place(end, fed, joiner)?;
        let mut needed = false;
        if start == 0 {
            known = true;
        }
        if self.is_l1(start) {
            self.take_l1(end, joiner)?;
            known = true;
        } else if self.l1_is_complete() && self.tables.awaited() == Some(start >> cluster.bits()) {
            let tables = self.tables.arriving(start >> cluster.bits());
            let table = joiner.bytes(start, end - start);
            needed = self.read_tables(table, tables, end, joiner)?;
            known = true;
        }
        let may_matter = !self.l1_is_complete() || self.tables.some_unread();
        if needed || (!known && may_matter) {
            self.parked.insert(start >> cluster.bits());
            joiner.park(start, end - start)?;
        }
        self.position = end;
        Ok(())
    }

    /// Places what is awaited of the cluster that ends at `end`. Returns
    /// whether all of it is known.
    fn place(&mut self, end: u64, fed: u64, joiner: &mut Joiner<'_, '_>) -> Result<bool> {
        let start = self.position;
        let cluster_end = start + self.header.cluster.bytes();
        let mut reach = self.packed_reach.max(start);
        let (mut plain, mut gap) = (false, false);
        while let Some(piece) = self.expected.pop_before(cluster_end) {
            let (now, later) = piece.split(cluster_end);
            if let Piece::Packed { host, .. } = piece {
                gap |= host > reach;
                let used = unpack(piece, fed, joiner)?;
                reach = reach.max(host + used);
            } else if let Some(Piece::Plain {
                guest,
                host,
                length,
            }) = now
            {
                plain = true;
                if host + length > end {
                    return Err(truncated(end, "a cluster of the disk"));
                }
                joiner.write(guest, host, length)?;
                later
                    .into_iter()
                    .for_each(|later| self.expected.push(later));
            }
        }
        self.packed_reach = reach;
        Ok(plain || (!gap && reach >= end))
    }

    /// The file has ended. What is left to do is [wanted](Placer::wanted).
    pub fn end(&mut self) -> Result<()> {
        let end = self.position;
        if !self.l1_is_complete() {
            return Err(truncated(end, "its L1 table"));
        }
        if self.tables.awaited().is_some() {
            return Err(truncated(end, "an L2 table"));
        }
        if self.expected.next_host().is_some() {
            return Err(truncated(end, "a cluster of the disk"));
        }
        self.tables.begin_settling();
        self.expected = Expected::default();
        self.settling = true;
        Ok(())
    }
}

/// Unpacks a cluster that lies in the bytes at hand, up to `fed`. Returns how
/// many bytes its packing took.
fn unpack(piece: Piece, fed: u64, joiner: &mut Joiner<'_, '_>) -> Result<u64> {
    let Piece::Packed {
        guest,
        host,
        packed,
        length,
    } = piece
    else {
        return Ok(0);
    };
    // The last sector may end with the file.
    if host >= fed || host + packed >= fed + 512 {
        return Err(truncated(fed, "a compressed cluster"));
    }
    let packed = joiner.bytes(host, packed);
    joiner.carry(Action::Unpack {
        guest,
        length,
        packed,
    })
}

/// The longest file of a disk of this size, unless the caller knows better:
/// twice the disk, for snapshots and tables.
fn default_most(size: u64) -> u64 {
    size.saturating_mul(2).saturating_add(64 << 20)
}

const FLATTEN: &str = "flatten it: qemu-img convert -O qcow2 FILE NEW";

fn refuse_other_files(header: &Header) -> Result<()> {
    let what = match (&header.backing_file, &header.data_file) {
        (None, DataFile::Own) => return Ok(()),
        (Some(_), _) => "a backing file",
        (None, DataFile::External { .. }) => "a data file",
    };
    Err(Error::new(
        ErrorKind::Forbidden,
        format!("the image needs {what}, which a stream does not have"),
    )
    .help(FLATTEN))
}

pub(super) fn truncated(end: u64, what: &str) -> Error {
    corrupt(format!(
        "the stream ends after {end} bytes, before the end of {what}: it is truncated, or the image is corrupt"
    ))
}

pub(super) fn beyond(most: u64, what: &str) -> Error {
    corrupt(format!(
        "{what} is said to lie beyond {most} bytes, where the file cannot reach"
    ))
}
