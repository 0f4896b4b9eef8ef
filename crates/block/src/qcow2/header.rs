//! The header: bytes to values, within limits.

use std::ops::Range;

use super::cluster::{ClusterSize, HostOffset};
use super::extension::{BitmapDirectory, Extensions, be32, be64};
use crate::error::{Error, ErrorKind, Result, corrupt, limit, unsupported};

/// The first four bytes of every image.
pub const MAGIC: [u8; 4] = *b"QFI\xfb";

/// How compressed clusters are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Raw deflate with a window of 4 KiB.
    Zlib,
    /// A zstd frame.
    Zstd,
}

/// A header whose numbers are within limits and agree with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// The size of the virtual disk.
    pub size: u64,
    /// The size of clusters.
    pub cluster: ClusterSize,
    /// The file below, as the image names it.
    pub backing_file: Option<String>,
    /// The format of the file below, as the image names it.
    pub backing_format: Option<String>,
    /// Where data is kept instead of in the image.
    pub data_file: DataFile,
    /// How compressed clusters are packed.
    pub compression: Compression,
    /// L2 entries have bitmaps of 32 subclusters.
    pub extended_l2: bool,
    /// Reference counts may be written late; the image is dirty meanwhile.
    pub lazy_refcounts: bool,
    /// Reference counts may be wrong: the image was not closed.
    pub dirty: bool,
    /// Somebody has found it corrupt; it may only be read.
    pub marked_corrupt: bool,
    /// Entries of the L1 table.
    pub l1_entries: u32,
    /// Where the L1 table is.
    pub l1_offset: HostOffset,
    /// Where the refcount table is.
    pub refcount_offset: HostOffset,
    /// Clusters of the refcount table.
    pub refcount_clusters: u32,
    /// Bits of a reference count.
    pub refcount_bits: u32,
    /// How many internal snapshots there are.
    pub snapshots: u32,
    /// Where their table is.
    pub snapshots_offset: HostOffset,
    /// The bytes of the header proper.
    pub header_length: u32,
    pub(super) bitmaps: Option<BitmapDirectory>,
}

/// Where an image keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataFile {
    /// In itself.
    Own,
    /// In another file; the name may be missing.
    External {
        /// As the image names it.
        name: Option<String>,
        /// The file is a raw image that can be read alone.
        raw: bool,
    },
}

const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
const KNOWN_INCOMPATIBLE: u64 = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | EXTENDED_L2;
/// Of the features that need not be known.
const LAZY_REFCOUNTS: u64 = 1 << 0;
/// Of the features that a writer clears if it does not know them.
const AUTOCLEAR_BITMAPS: u64 = 1 << 0;
const AUTOCLEAR_RAW_DATA: u64 = 1 << 1;

/// QEMU opens no larger L1 table.
pub(super) const MAX_L1_BYTES: u64 = 32 << 20;
/// QEMU opens no larger refcount table.
pub(super) const MAX_REFCOUNT_TABLE_BYTES: u64 = 8 << 20;
/// Offsets on a disk are 63 bits.
const MAX_SIZE: u64 = (1 << 63) - 512;
const MAX_SNAPSHOTS: u32 = 65536;
const MAX_BACKING_NAME: u32 = 1023;
/// The bytes of a snapshot's entry without its names.
const LEAST_SNAPSHOT: u64 = 40;

/// The bytes of the smallest header, version 2.
pub(super) const LEAST_HEADER: usize = 72;
const V3_HEADER: usize = 104;

impl Header {
    /// How many bytes from the start a header with its extensions can take:
    /// its first cluster.
    pub(crate) fn reach(start: &[u8]) -> Result<u64> {
        check_magic(start)?;
        let bits = be32(start, 20);
        let cluster = ClusterSize::from_bits(bits);
        let cluster =
            cluster.ok_or_else(|| corrupt(format!("clusters of 2^{bits} bytes do not exist")))?;
        Ok(cluster.bytes())
    }

    /// Reads the header out of the image's first cluster (or all of a shorter
    /// file).
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let cluster_bytes = Self::reach(bytes)?;
        let version = be32(bytes, 4);
        let v3 = match version {
            2 => None,
            3 if bytes.len() >= V3_HEADER => Some(&bytes[72..]),
            3 => return Err(corrupt("the header is cut short")),
            other => return Err(unsupported(format!("version {other} of the qcow2 format"))),
        };
        let incompatible = v3.map_or(0, |v3| be64(v3, 0));
        let compatible = v3.map_or(0, |v3| be64(v3, 8));
        let autoclear = v3.map_or(0, |v3| be64(v3, 16));
        let refcount_order = v3.map_or(4, |v3| be32(v3, 24));
        let header_length = v3.map_or(72, |v3| be32(v3, 28));
        if refcount_order > 6 {
            return Err(corrupt(format!(
                "reference counts of 2^{refcount_order} bits do not exist"
            )));
        }
        let length = header_length as usize;
        if v3.is_some() && (length < V3_HEADER || !length.is_multiple_of(8) || header_length > 4096)
        {
            return Err(corrupt(format!(
                "a header of {header_length} bytes does not exist"
            )));
        }
        if length as u64 > cluster_bytes || length > bytes.len() {
            return Err(corrupt("the header does not fit its cluster"));
        }
        let extensions = Self::extensions(bytes, length)?;
        refuse_unknown_features(incompatible, &extensions)?;
        refuse_encryption(be32(bytes, 32), &extensions)?;
        let header = Self {
            version,
            size: be64(bytes, 24),
            cluster: ClusterSize::from_bits(be32(bytes, 20)).unwrap_or(ClusterSize::DEFAULT),
            backing_file: backing_name(bytes)?,
            backing_format: extensions.backing_format,
            data_file: if incompatible & EXTERNAL_DATA == 0 {
                DataFile::Own
            } else {
                DataFile::External {
                    name: extensions.data_file,
                    raw: autoclear & AUTOCLEAR_RAW_DATA != 0,
                }
            },
            compression: compression(bytes, length, incompatible)?,
            extended_l2: incompatible & EXTENDED_L2 != 0,
            lazy_refcounts: compatible & LAZY_REFCOUNTS != 0,
            dirty: incompatible & DIRTY != 0,
            marked_corrupt: incompatible & CORRUPT != 0,
            l1_entries: be32(bytes, 36),
            l1_offset: HostOffset(be64(bytes, 40)),
            refcount_offset: HostOffset(be64(bytes, 48)),
            refcount_clusters: be32(bytes, 56),
            refcount_bits: 1 << refcount_order,
            snapshots: be32(bytes, 60),
            snapshots_offset: HostOffset(be64(bytes, 64)),
            header_length,
            bitmaps: extensions
                .bitmaps
                .filter(|_| autoclear & AUTOCLEAR_BITMAPS != 0),
        };
        header.check()?;
        Ok(header)
    }

    fn extensions(bytes: &[u8], length: usize) -> Result<Extensions> {
        // Version 2 images have extensions as well; they end where the name
        // of the backing file begins.
        let name_at = usize::try_from(be64(bytes, 8))
            .ok()
            .filter(|at| *at > length);
        let end = name_at.unwrap_or(bytes.len()).min(bytes.len());
        Extensions::parse(&bytes[length..end])
    }

    /// Bytes of an entry of an L2 table.
    #[must_use]
    pub fn l2_entry_bytes(&self) -> u64 {
        if self.extended_l2 { 16 } else { 8 }
    }

    /// Entries of an L2 table.
    #[must_use]
    pub fn l2_entries(&self) -> u64 {
        self.cluster.bytes() / self.l2_entry_bytes()
    }

    /// How much of the disk one L2 table covers.
    #[must_use]
    pub fn l2_reach(&self) -> u64 {
        self.l2_entries() * self.cluster.bytes()
    }

    /// Whether data is kept in another file.
    pub(super) fn has_data_file(&self) -> bool {
        self.data_file != DataFile::Own
    }

    /// How many entries of the L1 table the disk needs.
    pub(super) fn l1_needed(&self) -> u64 {
        self.size.div_ceil(self.l2_reach())
    }

    /// What the header itself names, and where it is in the file.
    fn places(&self) -> [(&'static str, Range<u64>); 4] {
        let from = |offset: HostOffset, length: u64| offset.0..offset.0.saturating_add(length);
        let cluster = self.cluster.bytes();
        let l1 = u64::from(self.l1_entries) * 8;
        let refcounts = u64::from(self.refcount_clusters) * cluster;
        let snapshots = u64::from(self.snapshots) * LEAST_SNAPSHOT;
        [
            ("header", 0..cluster),
            ("L1 table", from(self.l1_offset, l1)),
            ("refcount table", from(self.refcount_offset, refcounts)),
            ("snapshot table", from(self.snapshots_offset, snapshots)),
        ]
    }

    /// What of [`places`](Self::places) lies in a range, if anything.
    pub(super) fn what_is_in(&self, range: &Range<u64>) -> Option<&'static str> {
        let mut places = self.places().into_iter();
        places
            .find(|(_, place)| overlap(place, range))
            .map(|(what, _)| what)
    }

    /// Whether all that the header names is in the file, and apart.
    pub(super) fn check_places(&self, file_size: u64) -> Result<()> {
        let places = self.places();
        let end = file_size.next_multiple_of(self.cluster.bytes());
        for (index, (what, place)) in places.iter().enumerate() {
            if !place.is_empty() && place.end > end {
                return Err(corrupt(format!(
                    "the {what} reaches beyond the end of the file"
                )));
            }
            for (other, before) in &places[..index] {
                if overlap(before, place) {
                    return Err(corrupt(format!("the {what} overlaps the {other}")));
                }
            }
        }
        Ok(())
    }

    /// Whether all numbers are possible together.
    fn check(&self) -> Result<()> {
        if self.size > MAX_SIZE {
            return Err(limit(format!(
                "a disk of {} bytes is larger than any",
                self.size
            )));
        }
        if self.extended_l2 && self.cluster.bits() < 14 {
            return Err(corrupt("subclusters need clusters of 16 KiB at least"));
        }
        if u64::from(self.l1_entries) * 8 > MAX_L1_BYTES {
            return Err(limit(format!(
                "an L1 table of {} entries is too large",
                self.l1_entries
            )));
        }
        if self.size.div_ceil(self.l2_reach()) > u64::from(self.l1_entries) {
            return Err(corrupt("the L1 table is too small for the disk"));
        }
        if self.refcount_clusters == 0 {
            return Err(corrupt("the image has no refcount table"));
        }
        let table = u64::from(self.refcount_clusters) << self.cluster.bits();
        if table > MAX_REFCOUNT_TABLE_BYTES {
            return Err(limit("the refcount table is too large"));
        }
        if self.snapshots > MAX_SNAPSHOTS {
            return Err(limit(format!("{} snapshots are too many", self.snapshots)));
        }
        let starts = [
            ("L1 table", self.l1_offset, self.l1_entries > 0),
            ("refcount table", self.refcount_offset, true),
            ("snapshot table", self.snapshots_offset, self.snapshots > 0),
        ];
        for (what, offset, used) in starts {
            if used && !self.cluster.begins_at(offset.0) {
                return Err(corrupt(format!(
                    "the {what} is not at the start of a cluster"
                )));
            }
        }
        Ok(())
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end && !one.is_empty() && !other.is_empty()
}

fn check_magic(bytes: &[u8]) -> Result<()> {
    if bytes.len() < LEAST_HEADER || bytes[..4] != MAGIC {
        return Err(
            Error::new(ErrorKind::NotAnImage, "this is not a qcow2 image")
                .help("see what format it has, with qemu-img info, and say that"),
        );
    }
    Ok(())
}

fn refuse_unknown_features(incompatible: u64, extensions: &Extensions) -> Result<()> {
    let unknown = incompatible & !KNOWN_INCOMPATIBLE;
    if unknown == 0 {
        return Ok(());
    }
    let bit = unknown.trailing_zeros();
    let name = extensions
        .feature_names
        .iter()
        .find(|feature| feature.incompatible && u32::from(feature.bit) == bit)
        .map_or_else(String::new, |feature| {
            format!(" ({})", feature.name.escape_debug())
        });
    Err(unsupported(format!(
        "the image uses feature {bit}{name}, which is not known here"
    )))
}

const DECRYPT: &str = "have it without encryption: qemu-img convert -O qcow2 FILE NEW, with FILE's \
                       key as qemu-img's --object secret";

fn refuse_encryption(method: u32, extensions: &Extensions) -> Result<()> {
    match method {
        0 if !extensions.encryption_header => Ok(()),
        1 => Err(unsupported(
            "the image is encrypted with AES; encrypted images are not supported",
        )
        .help(DECRYPT)),
        2 => Err(unsupported(
            "the image is encrypted with LUKS; encrypted images are not supported",
        )
        .help(DECRYPT)),
        _ => Err(
            unsupported("the image is encrypted; encrypted images are not supported").help(DECRYPT),
        ),
    }
}

fn compression(bytes: &[u8], length: usize, incompatible: u64) -> Result<Compression> {
    // The byte exists only in headers that are long enough for it.
    let byte = if length > V3_HEADER {
        bytes[V3_HEADER]
    } else {
        0
    };
    let announced = incompatible & COMPRESSION_TYPE != 0;
    match (byte, announced) {
        (0, false) => Ok(Compression::Zlib),
        (1, true) => Ok(Compression::Zstd),
        (0, true) | (1, false) => Err(corrupt("the compression type contradicts its feature bit")),
        (other, _) => Err(unsupported(format!("compression type {other}"))),
    }
}

fn backing_name(bytes: &[u8]) -> Result<Option<String>> {
    let (offset, length) = (be64(bytes, 8), be32(bytes, 16));
    if offset == 0 {
        return Ok(None);
    }
    if length > MAX_BACKING_NAME {
        return Err(limit("the name of the backing file is too long"));
    }
    let start = usize::try_from(offset).ok();
    let name = start.and_then(|start| bytes.get(start..)?.get(..length as usize));
    let name =
        name.ok_or_else(|| corrupt("the name of the backing file lies outside the header"))?;
    if name.is_empty() {
        return Ok(None);
    }
    String::from_utf8(name.to_vec())
        .map(Some)
        .map_err(|_| corrupt("the name of the backing file is not text"))
}
