//! Writing a new image, cluster after cluster.
//!
//! ```text
//!   header | L1 | L2, data … | L2, data … | refcount blocks | refcount table
//! ```
//!
//! Clusters come in the order of the disk. Each L2 table has its place before
//! its data, so that the image can be read as a stream. The header is written
//! last, when everything else is durable: until then the file is no image.

use super::append::Appender;
use super::cluster::{GuestOffset, HostOffset};
use super::header::Header;
use super::spec::{NewImage, encode};
use crate::device::{Flush, Resize, WriteAt};
use crate::error::{Result, invalid};

/// A file that an image can be written into.
pub trait NewFile: WriteAt + Resize + Flush + Send + Sync {}
impl<T: WriteAt + Resize + Flush + Send + Sync> NewFile for T {}

/// Bits of table entries.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// An image being written.
pub struct Writer<'t> {
    file: &'t dyn NewFile,
    header: Header,
    /// Where the next byte goes.
    end: u64,
    l1: Vec<u64>,
    l2: Option<OpenTable>,
    /// References to each cluster of the file.
    references: Vec<u16>,
    out: Appender,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("header", &self.header)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// The L2 table that is being filled.
struct OpenTable {
    index: u64,
    offset: u64,
    entries: Vec<u64>,
}

impl<'t> Writer<'t> {
    /// Begins an image in an empty file.
    pub fn new(file: &'t dyn NewFile, spec: &NewImage) -> Result<Self> {
        let mut header = spec.header()?;
        // Known to be encodable before anything is written.
        encode(&header)?;
        let cluster = header.cluster;
        header.l1_offset = HostOffset(cluster.bytes());
        let l1_clusters = cluster.count_for(u64::from(header.l1_entries) * 8).max(1);
        let end = cluster.bytes() * (1 + l1_clusters);
        let clusters = usize::try_from(1 + l1_clusters).unwrap_or(0);
        Ok(Self {
            file,
            l1: vec![0; header.l1_entries as usize],
            header,
            end,
            l2: None,
            references: vec![1; clusters],
            out: Appender::starting_at(end),
        })
    }

    /// Adds a cluster as it is; the last one of a disk may be shorter.
    pub fn put_data(&mut self, guest: GuestOffset, bytes: &[u8]) -> Result<()> {
        let table = self.table_for(guest)?;
        let offset = self.take_clusters(1)?;
        self.out.append(self.file, offset, bytes)?;
        self.set(table, COPIED | offset);
        Ok(())
    }

    /// Adds a packed cluster. Packed clusters follow each other byte by byte.
    pub fn put_packed(&mut self, guest: GuestOffset, packed: &[u8]) -> Result<()> {
        let table = self.table_for(guest)?;
        let offset = self.end;
        let length = packed.len() as u64;
        self.out.append(self.file, offset, packed)?;
        self.end += length;
        let bits = self.header.cluster.bits();
        for index in offset >> bits..=(self.end - 1) >> bits {
            self.reference(index)?;
        }
        let sectors = (self.end - 1) / 512 - offset / 512;
        let split = 62 - (bits - 8);
        self.set(table, COMPRESSED | sectors << split | offset);
        Ok(())
    }

    /// Adds a cluster of zeroes that hides what lies below.
    pub fn put_zero(&mut self, guest: GuestOffset) -> Result<()> {
        let table = self.table_for(guest)?;
        self.set(table, ZERO);
        Ok(())
    }

    /// Sets space aside for a cluster without writing it; the file's bytes
    /// there must read as zeroes.
    pub fn reserve(&mut self, guest: GuestOffset) -> Result<HostOffset> {
        let table = self.table_for(guest)?;
        let offset = self.take_clusters(1)?;
        self.set(table, COPIED | offset);
        Ok(HostOffset(offset))
    }

    /// Writes the tables and the header, and makes it all durable. Returns
    /// the size of the file.
    pub fn finish(mut self) -> Result<u64> {
        self.close_table()?;
        self.out.flush(self.file)?;
        self.align();
        let layout = self.place_refcounts()?;
        self.file.resize(layout.file_size)?;
        self.write_refcounts(&layout)?;
        let l1: Vec<u8> = self
            .l1
            .iter()
            .flat_map(|entry| entry.to_be_bytes())
            .collect();
        self.file.write_at(&l1, self.header.l1_offset.0)?;
        self.file.flush()?;
        self.header.refcount_offset = HostOffset(layout.table);
        self.header.refcount_clusters = layout.table_clusters;
        self.file.write_at(&encode(&self.header)?, 0)?;
        self.file.flush()?;
        Ok(layout.file_size)
    }

    /// The entry for a cluster of the disk, in an open table.
    fn table_for(&mut self, guest: GuestOffset) -> Result<usize> {
        let header = &self.header;
        let index = guest.0 / header.l2_reach();
        let entry =
            usize::try_from(guest.0 % header.l2_reach() / header.cluster.bytes()).unwrap_or(0);
        let in_order = self.l2.as_ref().is_none_or(|open| open.index <= index);
        if !in_order || !header.cluster.begins_at(guest.0) || guest.0 >= header.size {
            return Err(invalid("clusters must come in the order of the disk"));
        }
        if self.l2.as_ref().is_none_or(|open| open.index != index) {
            self.close_table()?;
            let offset = self.take_clusters(1)?;
            // Its place is written when it is full.
            self.out.append(self.file, offset, &[])?;
            let entries = usize::try_from(self.header.l2_entries()).unwrap_or(0);
            self.l2 = Some(OpenTable {
                index,
                offset,
                entries: vec![0; entries],
            });
        }
        Ok(entry)
    }

    fn set(&mut self, entry: usize, value: u64) {
        if let Some(open) = &mut self.l2 {
            open.entries[entry] = value;
        }
    }

    fn close_table(&mut self) -> Result<()> {
        let Some(open) = self.l2.take() else {
            return Ok(());
        };
        let bytes: Vec<u8> = open
            .entries
            .iter()
            .flat_map(|entry| entry.to_be_bytes())
            .collect();
        self.out.patch(self.file, open.offset, &bytes)?;
        if let Some(entry) = usize::try_from(open.index)
            .ok()
            .and_then(|index| self.l1.get_mut(index))
        {
            *entry = COPIED | open.offset;
        }
        Ok(())
    }

    /// Takes clusters at the end of the file.
    fn take_clusters(&mut self, count: u64) -> Result<u64> {
        self.align();
        let offset = self.end;
        let bits = self.header.cluster.bits();
        for index in 0..count {
            self.reference((offset >> bits) + index)?;
        }
        self.end += count << bits;
        Ok(offset)
    }

    fn align(&mut self) {
        self.end = self.end.next_multiple_of(self.header.cluster.bytes());
    }

    fn reference(&mut self, cluster: u64) -> Result<()> {
        let index = usize::try_from(cluster).map_err(|_| invalid("the image is too large"))?;
        if self.references.len() <= index {
            self.references.resize(index + 1, 0);
        }
        self.references[index] += 1;
        Ok(())
    }

    /// Where the refcount blocks and their table go. They count themselves,
    /// so their number is found by trying.
    fn place_refcounts(&self) -> Result<RefcountLayout> {
        let cluster = self.header.cluster;
        let per_block = cluster.bytes() / 2;
        let before = self.end >> cluster.bits();
        let (mut blocks, mut table) = (0, 0);
        loop {
            let all = before + blocks + table;
            let wanted = all.div_ceil(per_block);
            let wanted_table = cluster.count_for(wanted * 8);
            if (wanted, wanted_table) == (blocks, table) {
                break;
            }
            (blocks, table) = (wanted, wanted_table);
        }
        let table_offset = self.end + (blocks << cluster.bits());
        Ok(RefcountLayout {
            blocks: self.end,
            count: blocks,
            table: table_offset,
            table_clusters: u32::try_from(table).map_err(|_| invalid("the image is too large"))?,
            file_size: table_offset + (table << cluster.bits()),
        })
    }

    fn write_refcounts(&mut self, layout: &RefcountLayout) -> Result<()> {
        let cluster = self.header.cluster;
        let total = usize::try_from(layout.file_size >> cluster.bits()).unwrap_or(0);
        self.references.resize(total, 1);
        let per_block = cluster.buffer_len() / 2;
        let mut table = Vec::new();
        for (index, block) in self.references.chunks(per_block).enumerate() {
            let offset = layout.blocks + ((index as u64) << cluster.bits());
            let bytes: Vec<u8> = block.iter().flat_map(|count| count.to_be_bytes()).collect();
            self.file.write_at(&bytes, offset)?;
            table.extend(offset.to_be_bytes());
        }
        debug_assert_eq!(table.len() as u64, layout.count * 8);
        self.file.write_at(&table, layout.table)
    }
}

struct RefcountLayout {
    blocks: u64,
    count: u64,
    table: u64,
    table_clusters: u32,
    file_size: u64,
}
