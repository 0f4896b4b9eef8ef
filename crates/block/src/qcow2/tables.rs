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
    /// Reads the L1 table, as far as the disk reaches.
    pub(super) fn load(file: &(impl ReadAt + Size + ?Sized), header: &Header) -> Result<Self> {
        header.check_places(file.size()?)?;
        let l1 = read_l1(file, header)?;
        refuse_overlaps(&l1, header)?;
        let capacity = (CACHE_BYTES / header.cluster.bytes()).max(4);
        Ok(Self {
            l1,
            cache: RwLock::default(),
            capacity: usize::try_from(capacity).unwrap_or(4),
        })
    }

    /// Takes no more memory than its share if several images are open.
    pub(super) fn share_memory(&mut self, images: usize) {
        self.capacity = (self.capacity / images.max(1)).max(1);
    }

    /// The most memory that it takes.
    pub(super) fn memory(&self, cluster: ClusterSize) -> u64 {
        let tables = self.l1.iter().filter(|entry| **entry != 0).count();
        self.l1.len() as u64 * 8 + tables.min(self.capacity) as u64 * cluster.bytes()
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

/// In pieces: the largest table takes 32 MiB, and must not take them twice.
fn read_l1(file: &(impl ReadAt + Size + ?Sized), header: &Header) -> Result<Vec<u64>> {
    const PIECE: u64 = 64 << 10;
    let length = header.l1_needed() * 8;
    let mut l1 = Vec::with_capacity(usize::try_from(length / 8).unwrap_or(0));
    let mut at = 0;
    while at < length {
        let step = PIECE.min(length - at);
        let offset = HostOffset(header.l1_offset.0.saturating_add(at));
        let bytes = read_table(file, offset, step, "L1 table")?;
        l1.extend(bytes.chunks_exact(8).map(|word| be64(word, 0)));
        at += step;
    }
    Ok(l1)
}

/// An L2 table belongs to one part of the disk and to nothing else. A few
/// bytes of tables that point at each other could otherwise describe exabytes
/// of data.
fn refuse_overlaps(l1: &[u64], header: &Header) -> Result<()> {
    let offset = |entry: u64| entry & entry::OFFSET_MASK;
    let cluster = header.cluster.bytes();
    for entry in l1.iter().copied().filter(|entry| offset(*entry) != 0) {
        let table = offset(entry)..offset(entry) + cluster;
        if let Some(other) = header.what_is_in(&table) {
            return Err(corrupt(format!("an L2 table overlaps the {other}")));
        }
    }
    // A part at a time: a copy of the largest table would be too much.
    let parts = l1.len().div_ceil(PART) as u64;
    for part in 0..parts {
        let offsets = l1.iter().copied().map(offset).filter(|offset| *offset != 0);
        refuse_twins(
            offsets
                .filter(|offset| offset / cluster % parts == part)
                .collect(),
        )?;
    }
    Ok(())
}

/// Entries of an L1 table that are compared at once.
const PART: usize = 1 << 19;

fn refuse_twins(mut tables: Vec<u64>) -> Result<()> {
    // Usually they ascend, and need not be sorted.
    if !tables.is_sorted() {
        tables.sort_unstable();
    }
    if tables.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(corrupt("two parts of the disk share an L2 table"));
    }
    Ok(())
}

/// Reads a table that must lie inside the file: its length is checked before
/// memory is taken for it.
pub(super) fn read_table(
    file: &(impl ReadAt + Size + ?Sized),
    offset: HostOffset,
    length: u64,
    what: &str,
) -> Result<Vec<u8>> {
    let size = file.size()?;
    let end = offset.0.checked_add(length);
    if end.is_none_or(|end| end > size) {
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
