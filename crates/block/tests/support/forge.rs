//! Images built byte by byte, sound ones and others.
//!
//! ```text
//!   cluster 0   1    2     3          4     5…
//!         header  L1   L2  refcounts  block  data
//! ```

use disklet_block::device::MemoryDevice;

/// Clusters of the usual layout.
pub(crate) const L1: u64 = 1;
pub(crate) const L2: u64 = 2;
pub(crate) const REFCOUNTS: u64 = 3;
pub(crate) const BLOCK: u64 = 4;
pub(crate) const DATA: u64 = 5;

pub(crate) const COPIED: u64 = 1 << 63;
pub(crate) const COMPRESSED: u64 = 1 << 62;

const HEADER: usize = 112;

/// An image that is changed before it is written.
#[derive(Clone)]
pub(crate) struct Forged {
    pub(crate) bytes: Vec<u8>,
    bits: u32,
    extension_end: usize,
}

impl Forged {
    /// A sound image of 1 MiB with one cluster of data at its start.
    pub(crate) fn sound(bits: u32) -> Self {
        let cluster = 1u64 << bits;
        let mut image = Self {
            bytes: vec![0; usize::try_from(6 * cluster).unwrap()],
            bits,
            extension_end: HEADER,
        };
        image.bytes[..4].copy_from_slice(b"QFI\xfb");
        image.put32(4, 3).put32(20, bits).put64(24, 1 << 20);
        let reach = cluster / 8 * cluster;
        let entries = u32::try_from((1u64 << 20).div_ceil(reach)).unwrap();
        image.put32(36, entries).put64(40, L1 * cluster);
        image.put64(48, REFCOUNTS * cluster).put32(56, 1);
        image.put32(96, 4).put32(100, 112);
        image.set(L1, 0, COPIED | (L2 * cluster));
        image.set(L2, 0, COPIED | (DATA * cluster));
        image.set(REFCOUNTS, 0, BLOCK * cluster);
        for index in 0..6 {
            let at = image.at(BLOCK) + 2 * index;
            image.bytes[at + 1] = 1;
        }
        let data = image.at(DATA);
        image.bytes[data..].fill(7);
        image
    }

    pub(crate) fn cluster(&self) -> u64 {
        1 << self.bits
    }

    /// Where a cluster begins.
    pub(crate) fn at(&self, cluster: u64) -> usize {
        usize::try_from(cluster << self.bits).unwrap()
    }

    pub(crate) fn put32(&mut self, at: usize, value: u32) -> &mut Self {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn put64(&mut self, at: usize, value: u64) -> &mut Self {
        self.bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Sets an entry of the table in a cluster.
    pub(crate) fn set(&mut self, table: u64, index: usize, value: u64) -> &mut Self {
        let at = self.at(table) + 8 * index;
        self.put64(at, value)
    }

    pub(crate) fn virtual_size(&mut self, size: u64) -> &mut Self {
        self.put64(24, size)
    }

    /// Adds a header extension that claims a length.
    pub(crate) fn extension(&mut self, kind: u32, length: u32, content: &[u8]) -> &mut Self {
        let at = self.extension_end;
        self.put32(at, kind).put32(at + 4, length);
        self.bytes[at + 8..at + 8 + content.len()].copy_from_slice(content);
        self.extension_end = at + 8 + content.len().next_multiple_of(8);
        self
    }

    /// Names a file below, and its format.
    pub(crate) fn backing(&mut self, name: &str, format: &str) -> &mut Self {
        let length = u32::try_from(format.len()).unwrap();
        self.extension(0xe279_2aca, length, format.as_bytes());
        let at = self.extension_end + 8;
        self.bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        self.put64(8, at as u64);
        self.put32(16, u32::try_from(name.len()).unwrap())
    }

    /// Names a data file.
    pub(crate) fn data_file(&mut self, name: &str) -> &mut Self {
        self.incompatible(1 << 2);
        self.extension(
            0x4441_5441,
            u32::try_from(name.len()).unwrap(),
            name.as_bytes(),
        )
    }

    pub(crate) fn incompatible(&mut self, bits: u64) -> &mut Self {
        let old: [u8; 8] = self.bytes[72..80].try_into().unwrap();
        self.put64(72, u64::from_be_bytes(old) | bits)
    }

    /// Clusters are packed with zstd.
    pub(crate) fn zstd(&mut self) -> &mut Self {
        self.bytes[104] = 1;
        self.incompatible(1 << 3)
    }

    /// Puts packed bytes where the data is, with an entry that gives them so
    /// many sectors.
    pub(crate) fn packed(&mut self, bytes: &[u8], sectors: u64) -> &mut Self {
        let data = self.at(DATA);
        self.bytes.truncate(data);
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len().next_multiple_of(512);
        self.bytes.resize(end, 0);
        let split = 62 - (self.bits - 8);
        let entry = COMPRESSED | (sectors - 1) << split | DATA << self.bits;
        self.set(L2, 0, entry)
    }

    /// Makes the file longer.
    pub(crate) fn padded(&mut self, clusters: u64) -> &mut Self {
        let length = self.at(clusters);
        self.bytes.resize(length.max(self.bytes.len()), 0);
        self
    }

    pub(crate) fn device(&self) -> MemoryDevice {
        MemoryDevice::new(self.bytes.clone())
    }
}

/// Something done to a sound image.
pub(crate) type Change = fn(&mut Forged) -> &mut Forged;

/// A sound image with a change.
pub(crate) fn forged(change: Change) -> Forged {
    let mut image = Forged::sound(16);
    change(&mut image);
    image
}
