//! What a new image shall be, and its header as bytes.

use super::cluster::{ClusterSize, HostOffset};
use super::header::{Compression, DataFile, Header, MAGIC, MAX_L1_BYTES};
use crate::error::{Result, invalid, limit};
use crate::image::Format;

/// A new image. Version 3, reference counts of 16 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImage {
    /// The size of the virtual disk.
    pub size: u64,
    /// The size of clusters.
    pub cluster: ClusterSize,
    /// How compressed clusters are packed.
    pub compression: Compression,
    /// What it is laid over.
    pub backing: Option<Backing>,
}

/// The file below a new image, and its format: always both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// As the image names it.
    pub file: String,
    /// Its format.
    pub format: Format,
}

pub(super) const REFCOUNT_BITS: u32 = 16;
const HEADER_LENGTH: u32 = 112;
const COMPRESSION_BIT: u64 = 1 << 3;
const BACKING_FORMAT: u32 = 0xe279_2aca;

impl NewImage {
    /// An empty disk with QEMU's usual settings.
    #[must_use]
    pub fn of_size(size: u64) -> Self {
        Self {
            size,
            cluster: ClusterSize::DEFAULT,
            compression: Compression::Zlib,
            backing: None,
        }
    }

    /// The header that such an image begins with; the places of its tables are
    /// filled in later.
    pub(super) fn header(&self) -> Result<Header> {
        if !self.size.is_multiple_of(512) {
            return Err(invalid(
                "the size of a disk must be a multiple of 512 bytes",
            ));
        }
        let reach = self.cluster.bytes() / 8 * self.cluster.bytes();
        // Even an empty disk has a table: it may grow.
        let entries = self.size.div_ceil(reach).max(1);
        if entries * 8 > MAX_L1_BYTES {
            return Err(limit(format!(
                "a disk of {} bytes needs larger clusters than {} bytes",
                self.size,
                self.cluster.bytes()
            )));
        }
        if let Some(backing) = &self.backing
            && (backing.file.is_empty() || backing.file.len() > 1023)
        {
            return Err(invalid("the name of a backing file has 1 to 1023 bytes"));
        }
        Ok(Header {
            version: 3,
            size: self.size,
            cluster: self.cluster,
            backing_file: self.backing.as_ref().map(|backing| backing.file.clone()),
            backing_format: self
                .backing
                .as_ref()
                .map(|backing| backing.format.name().to_owned()),
            data_file: DataFile::Own,
            compression: self.compression,
            extended_l2: false,
            lazy_refcounts: false,
            dirty: false,
            marked_corrupt: false,
            l1_entries: u32::try_from(entries).unwrap_or(u32::MAX),
            l1_offset: HostOffset(0),
            refcount_offset: HostOffset(0),
            refcount_clusters: 0,
            refcount_bits: REFCOUNT_BITS,
            snapshots: 0,
            snapshots_offset: HostOffset(0),
            header_length: HEADER_LENGTH,
            bitmaps: None,
        })
    }
}

/// The header as bytes, with its extension and the name of the backing file.
/// It fits the smallest cluster unless the name is long.
pub(super) fn encode(header: &Header) -> Result<Vec<u8>> {
    let mut extension = Vec::new();
    if let Some(format) = &header.backing_format {
        extension.extend(BACKING_FORMAT.to_be_bytes());
        extension.extend(length_of(format)?.to_be_bytes());
        extension.extend(format.as_bytes());
        extension.resize(extension.len().next_multiple_of(8), 0);
    }
    extension.extend([0; 8]);
    let name = header.backing_file.as_deref().unwrap_or_default();
    let name_offset = u64::from(HEADER_LENGTH) + extension.len() as u64;
    let zstd = header.compression == Compression::Zstd;

    let mut bytes = MAGIC.to_vec();
    let mut word = |value: u32| bytes.extend(value.to_be_bytes());
    word(header.version);
    let long = |bytes: &mut Vec<u8>, value: u64| bytes.extend(value.to_be_bytes());
    long(&mut bytes, if name.is_empty() { 0 } else { name_offset });
    bytes.extend(length_of(name)?.to_be_bytes());
    bytes.extend(header.cluster.bits().to_be_bytes());
    long(&mut bytes, header.size);
    bytes.extend(0u32.to_be_bytes());
    bytes.extend(header.l1_entries.to_be_bytes());
    long(&mut bytes, header.l1_offset.0);
    long(&mut bytes, header.refcount_offset.0);
    bytes.extend(header.refcount_clusters.to_be_bytes());
    bytes.extend(0u32.to_be_bytes());
    long(&mut bytes, 0);
    long(&mut bytes, if zstd { COMPRESSION_BIT } else { 0 });
    long(&mut bytes, 0);
    long(&mut bytes, 0);
    bytes.extend(REFCOUNT_BITS.trailing_zeros().to_be_bytes());
    bytes.extend(HEADER_LENGTH.to_be_bytes());
    bytes.push(u8::from(zstd));
    bytes.resize(HEADER_LENGTH as usize, 0);
    bytes.extend(extension);
    bytes.extend(name.as_bytes());
    if bytes.len() as u64 > header.cluster.bytes() {
        return Err(invalid(
            "the name of the backing file does not fit the first cluster",
        ));
    }
    Ok(bytes)
}

fn length_of(text: &str) -> Result<u32> {
    u32::try_from(text.len()).map_err(|_| invalid("a name is too long"))
}
