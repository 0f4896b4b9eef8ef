//! The L1 table, held in memory, and a bounded cache of L2 tables.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use super::cluster::{ClusterSize, HostOffset};
use super::entry::{self, L2Entry};
use super::extension::be64;
use super::header::{DataFile, Header};
use crate::device::{ReadAt, Size};
use crate::error::{Result, corrupt};

/// How much memory the L2 tables of one image may take: enough for 128 GiB of
/// disk with usual clusters, and little enough to have many images open.
const CACHE_BYTES: u64 = 16 << 20;

/// One L2 table.
#[derive(Debug)]
pub(super) struct L2Table {
    words: Box<[u64]>,
    cluster: ClusterSize,
    extended: bool,
    own_data: bool,
}

impl L2Table {
    fn parse(bytes: &[u8], header: &Header) -> Self {
        Self {
            words: bytes.chunks_exact(8).map(|word| be64(word, 0)).collect(),
            cluster: header.cluster,
            extended: header.extended_l2,
            own_data: header.data_file == DataFile::Own,
        }
    }

    /// The entry with this number, which is below the table's length.
    pub(super) fn entry(&self, index: usize) -> Result<L2Entry> {
        if self.extended {
            let (entry, bitmap) = (self.words[2 * index], self.words[2 * index + 1]);
            L2Entry::decode(entry, Some(bitmap), self.cluster, self.own_data)
        } else {
            L2Entry::decode(self.words[index], None, self.cluster, self.own_data)
        }
    }
}

/// All tables of an image.
#[derive(Debug)]
pub(super) struct Tables {
    l1: Vec<u64>,
    cache: RwLock<Cache>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Cache {
    tables: HashMap<u64, Arc<L2Table>>,
    /// In the order in which they came; the oldest goes first.
    order: VecDeque<u64>,
}

impl Tables {
    /// Reads the L1 table.
    pub(super) fn load(file: &(impl ReadAt + Size + ?Sized), header: &Header) -> Result<Self> {
        let length = u64::from(header.l1_entries) * 8;
        let bytes = read_table(file, header.l1_offset, length, "L1 table")?;
        let capacity = (CACHE_BYTES / header.cluster.bytes()).max(4);
        Ok(Self {
            l1: bytes.chunks_exact(8).map(|word| be64(word, 0)).collect(),
            cache: RwLock::default(),
            capacity: usize::try_from(capacity).unwrap_or(4),
        })
    }

    /// Where the L2 table with this number is.
    pub(super) fn l2_offset(
        &self,
        index: usize,
        cluster: ClusterSize,
    ) -> Result<Option<HostOffset>> {
        entry::l2_table(self.l1[index], cluster)
    }

    /// The L2 table with this number, if the image has it.
    pub(super) fn l2(
        &self,
        index: usize,
        file: &(impl ReadAt + Size + ?Sized),
        header: &Header,
    ) -> Result<Option<Arc<L2Table>>> {
        let Some(offset) = self.l2_offset(index, header.cluster)? else {
            return Ok(None);
        };
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = cache.tables.get(&offset.0) {
            return Ok(Some(table.clone()));
        }
        drop(cache);
        let bytes = read_table(file, offset, header.cluster.bytes(), "L2 table")?;
        let table = Arc::new(L2Table::parse(&bytes, header));
        self.remember(offset, &table);
        Ok(Some(table))
    }

    fn remember(&self, offset: HostOffset, table: &Arc<L2Table>) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        if cache.tables.insert(offset.0, table.clone()).is_none() {
            cache.order.push_back(offset.0);
        }
        if cache.order.len() > self.capacity
            && let Some(oldest) = cache.order.pop_front()
        {
            cache.tables.remove(&oldest);
        }
    }
}

/// Reads a table that must lie inside the file: its length is checked before
/// memory is taken for it.
pub(super) fn read_table(
    file: &(impl ReadAt + Size + ?Sized),
    offset: HostOffset,
    length: u64,
    what: &str,
) -> Result<Vec<u8>> {
    let end = offset.0.checked_add(length);
    if end.is_none_or(|end| file.size().is_ok_and(|size| end > size)) {
        return Err(corrupt(format!(
            "the {what} reaches beyond the end of the file"
        )));
    }
    let length =
        usize::try_from(length).map_err(|_| corrupt(format!("the {what} is too large")))?;
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, offset.0)?;
    Ok(bytes)
}
