//! An open image: where each piece of the disk is, and its bytes.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use super::HostOffset;
use super::cluster::GuestOffset;
use super::compressed::Unpacker;
use super::entry::{CompressedCluster, L2Entry, Mapping, SubclusterState};
use super::header::{DataFile, Header, LEAST_HEADER};
use super::listing::{self, BitmapInfo, SnapshotInfo};
use super::tables::Tables;
use crate::device::{Extent, Extents, ReadAt, Shareable, Size, Source};
use crate::error::{Error, ErrorKind, Result, corrupt, invalid};
use crate::image::Image;

/// An image, with what it is laid over.
pub struct Qcow2 {
    header: Header,
    name: String,
    file: Arc<dyn Source>,
    data: Option<Arc<dyn Source>>,
    /// The size of the data file when it was opened.
    data_size: u64,
    /// Where the clusters of the data file end; its last one may be cut short.
    data_end: u64,
    backing: Option<Arc<Image>>,
    tables: Tables,
    unpacked: Mutex<Unpacked>,
}

/// The cluster that was unpacked last: reads are smaller than clusters.
struct Unpacked {
    cluster: Option<CompressedCluster>,
    bytes: Vec<u8>,
    unpacker: Unpacker,
}

impl std::fmt::Debug for Qcow2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qcow2")
            .field("name", &self.name)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl Qcow2 {
    /// Reads the header of a file.
    pub fn read_header(file: &(impl ReadAt + Size + ?Sized), name: &str) -> Result<Header> {
        let size = file.size()?;
        let start = read_start(file, size, LEAST_HEADER as u64)?;
        let reach = Header::reach(&start).map_err(|error| error.of(name))?;
        let cluster = read_start(file, size, reach)?;
        Header::parse(&cluster).map_err(|error| error.of(name))
    }

    /// Puts an image together from its parts; what the header names has been
    /// opened, or refused, by the caller.
    pub fn assemble(
        header: Header,
        name: impl Into<String>,
        file: Arc<dyn Source>,
        data: Option<Arc<dyn Source>>,
        backing: Option<Arc<Image>>,
    ) -> Result<Self> {
        let name = name.into();
        if data.is_none() && header.data_file != DataFile::Own {
            return Err(invalid("the image keeps its data in another file").of(name));
        }
        let tables = Tables::load(&*file, &header).map_err(|error| error.of(&name))?;
        let unpacker = Unpacker::new(header.compression);
        let data_size = data.as_ref().unwrap_or(&file).size()?;
        Ok(Self {
            data_size,
            data_end: data_size.next_multiple_of(header.cluster.bytes()),
            unpacked: Mutex::new(Unpacked {
                cluster: None,
                bytes: Vec::new(),
                unpacker,
            }),
            header,
            name,
            file,
            data,
            backing,
            tables,
        })
    }

    /// Is one of so many images that lie below each other, and share memory.
    #[must_use]
    pub(crate) fn in_chain_of(mut self, images: usize) -> Self {
        self.tables.share_memory(images);
        self
    }

    /// The most memory that its tables take.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.tables.memory(self.header.cluster)
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The name for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What lies below.
    #[must_use]
    pub fn backing(&self) -> Option<&Arc<Image>> {
        self.backing.as_ref()
    }

    /// Where the image's data is.
    #[must_use]
    pub fn data_file(&self) -> &Arc<dyn Source> {
        self.data.as_ref().unwrap_or(&self.file)
    }

    /// Fails if the file has become shorter since it was opened: what lay
    /// there would read as zeroes.
    pub(crate) fn demand_whole(&self) -> Result<()> {
        if self.data_file().size()? < self.data_size {
            return Err(corrupt("the file has become shorter while it was read").of(&self.name));
        }
        self.backing
            .as_ref()
            .map_or(Ok(()), |backing| backing.demand_whole())
    }

    /// The internal snapshots.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        listing::snapshots(&*self.file, &self.header).map_err(|error| error.of(&self.name))
    }

    /// The dirty bitmaps.
    pub fn bitmaps(&self) -> Result<Vec<BitmapInfo>> {
        let Some(directory) = self.header.bitmaps else {
            return Ok(Vec::new());
        };
        listing::bitmaps(&*self.file, directory).map_err(|error| error.of(&self.name))
    }

    /// Where the disk's bytes from `offset` on are, and for how many bytes
    /// that is so. At most `most` bytes are looked at, and no more than one L2
    /// table.
    pub fn map(&self, offset: GuestOffset, most: u64) -> Result<(Mapping, u64)> {
        self.map_run(offset, most)
            .map_err(|error| error.of(&self.name))
    }

    fn map_run(&self, offset: GuestOffset, most: u64) -> Result<(Mapping, u64)> {
        let header = &self.header;
        let rest = header.size.saturating_sub(offset.0).min(most);
        if rest == 0 {
            return Err(invalid("nothing is there to be mapped"));
        }
        let reach = header.l2_reach();
        let in_table = (reach - offset.0 % reach).min(rest);
        let index = usize::try_from(offset.0 / reach).unwrap_or(usize::MAX);
        let Some(table) = self.tables.l2(index, &*self.file, header)? else {
            return Ok((Mapping::Unallocated, in_table));
        };
        let first = offset.0 % reach;
        let mut length = 0;
        let mut start = None;
        while length < in_table {
            let at = first + length;
            let number = usize::try_from(at >> header.cluster.bits()).unwrap_or(0);
            let (mapping, run) = self.piece(table.entry(number)?, header.cluster.within(at))?;
            match &start {
                None => start = Some(mapping),
                Some(start) if follows(start, length, &mapping) => {}
                Some(_) => break,
            }
            length += run;
            if matches!(mapping, Mapping::Compressed(_)) {
                break;
            }
        }
        let start = start.unwrap_or(Mapping::Unallocated);
        let length = self.inside(&start, length.min(in_table))?;
        Ok((start, length))
    }

    /// How much of a run is in the data file. Clusters that are not, as in an
    /// image that was cut short, must not pass for zeroes.
    fn inside(&self, start: &Mapping, length: u64) -> Result<u64> {
        let Mapping::Data(host) = start else {
            return Ok(length);
        };
        match self.data_end.saturating_sub(host.0) {
            0 => Err(corrupt("a cluster lies beyond the end of the file")),
            rest => Ok(length.min(rest)),
        }
    }

    /// What an entry says about the bytes from `within` its cluster on.
    fn piece(&self, entry: L2Entry, within: u64) -> Result<(Mapping, u64)> {
        let cluster = self.header.cluster.bytes();
        let (host, states) = match entry {
            L2Entry::Compressed(packed) => {
                return Ok((Mapping::Compressed(packed), cluster - within));
            }
            L2Entry::Plain { host, states } => (host, states),
        };
        let subcluster = cluster / 32;
        let index = u32::try_from(within / subcluster).unwrap_or(0);
        let (state, end) = states.run_at(index);
        let length = u64::from(end) * subcluster - within;
        let here = host.map(|host| HostOffset(host.0 + within));
        let mapping = match (state, here) {
            (SubclusterState::Zero, kept) => Mapping::Zero { kept },
            (SubclusterState::Allocated, Some(host)) => Mapping::Data(host),
            (SubclusterState::Allocated, None) | (SubclusterState::Unallocated, _) => {
                Mapping::Unallocated
            }
        };
        Ok((mapping, length))
    }

    /// Reads packed bytes as they are.
    pub fn read_packed(&self, packed: CompressedCluster, buffer: &mut Vec<u8>) -> Result<()> {
        let size = self.file.size()?;
        // The last sector of the last cluster may end with the file.
        let length = size.saturating_sub(packed.offset.0).min(packed.length);
        if length == 0 {
            return Err(
                corrupt("a compressed cluster lies beyond the end of the file").of(&self.name),
            );
        }
        buffer.resize(usize::try_from(length).unwrap_or(0), 0);
        self.file.read_at(buffer, packed.offset.0)
    }

    fn read_compressed(
        &self,
        packed: CompressedCluster,
        within: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let mut unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        let Unpacked {
            cluster,
            bytes,
            unpacker,
        } = &mut *unpacked;
        if *cluster != Some(packed) {
            *cluster = None;
            let mut raw = Vec::new();
            self.read_packed(packed, &mut raw)?;
            bytes.resize(self.header.cluster.buffer_len(), 0);
            unpacker.unpack(&raw, bytes)?;
            *cluster = Some(packed);
        }
        let start = usize::try_from(within).unwrap_or(0);
        into.copy_from_slice(&bytes[start..start + into.len()]);
        Ok(())
    }

    fn read_plain(&self, host: HostOffset, into: &mut [u8]) -> Result<()> {
        let data = self.data_file();
        let size = data.size()?;
        // A file may end within its last cluster; the rest reads as zeroes.
        // What lies further out was not mapped.
        let there = size.saturating_sub(host.0).min(into.len() as u64);
        let (present, absent) = into.split_at_mut(usize::try_from(there).unwrap_or(0));
        if !present.is_empty() {
            data.read_at(present, host.0)?;
        }
        absent.fill(0);
        Ok(())
    }

    fn read_backing(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let Some(backing) = &self.backing else {
            into.fill(0);
            return Ok(());
        };
        let size = backing.size()?;
        let there = size.saturating_sub(offset).min(into.len() as u64);
        let (present, absent) = into.split_at_mut(usize::try_from(there).unwrap_or(0));
        if !present.is_empty() {
            backing.read_at(present, offset)?;
        }
        absent.fill(0);
        Ok(())
    }
}

/// Whether `next`, which is `distance` bytes further on, continues `start`.
fn follows(start: &Mapping, distance: u64, next: &Mapping) -> bool {
    match (start, next) {
        (Mapping::Unallocated, Mapping::Unallocated) => true,
        (Mapping::Zero { kept: None }, Mapping::Zero { kept: None }) => true,
        (Mapping::Zero { kept: Some(start) }, Mapping::Zero { kept: Some(next) }) => {
            start.0 + distance == next.0
        }
        (Mapping::Data(start), Mapping::Data(next)) => start.0 + distance == next.0,
        _ => false,
    }
}

fn read_start(file: &(impl ReadAt + ?Sized), size: u64, most: u64) -> Result<Vec<u8>> {
    let length = usize::try_from(size.min(most)).unwrap_or(0);
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

impl Size for Qcow2 {
    fn size(&self) -> Result<u64> {
        Ok(self.header.size)
    }
}

impl ReadAt for Qcow2 {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.header.size) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a read reaches beyond the end of the disk",
            )
            .of(&self.name));
        }
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            let (mapping, length) = self.map(GuestOffset(at), rest.len() as u64)?;
            let (piece, after) = rest.split_at_mut(usize::try_from(length).unwrap_or(0));
            match mapping {
                Mapping::Unallocated => self.read_backing(at, piece),
                Mapping::Zero { .. } => {
                    piece.fill(0);
                    Ok(())
                }
                Mapping::Data(host) => self.read_plain(host, piece),
                Mapping::Compressed(packed) => {
                    self.read_compressed(packed, self.header.cluster.within(at), piece)
                }
            }
            .map_err(|error| error.of(&self.name))?;
            rest = after;
            at += length;
        }
        Ok(())
    }
}

impl Extents for Qcow2 {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        let (mapping, length) = self.map(GuestOffset(offset), u64::MAX)?;
        let zero = match mapping {
            Mapping::Zero { .. } => true,
            Mapping::Data(_) | Mapping::Compressed(_) => false,
            Mapping::Unallocated => match &self.backing {
                None => true,
                Some(backing) if offset >= backing.size()? => true,
                Some(backing) => {
                    let below = backing.extent_at(offset)?;
                    return Ok(Extent {
                        length: below.length.min(length),
                        zero: below.zero,
                    });
                }
            },
        };
        Ok(Extent { length, zero })
    }
}

impl Shareable for Qcow2 {
    /// The file's blocks are not the disk's.
    fn shareable_file(&self) -> Option<&File> {
        None
    }
}
