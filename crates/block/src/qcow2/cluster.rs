//! Offsets and cluster arithmetic. A guest's offset and a host's are different
//! things, and only the L2 tables lead from one to the other.

/// An offset on the virtual disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestOffset(pub u64);

/// An offset in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostOffset(pub u64);

/// The size of a cluster: a power of two from 512 bytes to 2 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSize {
    bits: u32,
}

impl ClusterSize {
    /// What QEMU chooses.
    pub const DEFAULT: Self = Self { bits: 16 };

    /// From the header's exponent.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        (9..=21).contains(&bits).then_some(Self { bits })
    }

    /// The exponent.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        1 << self.bits
    }

    /// In bytes, for buffers.
    #[must_use]
    pub fn buffer_len(self) -> usize {
        1 << self.bits
    }

    /// How far an offset is into its cluster.
    #[must_use]
    pub fn within(self, offset: u64) -> u64 {
        offset & (self.bytes() - 1)
    }

    /// Whether a cluster begins at an offset.
    #[must_use]
    pub fn begins_at(self, offset: u64) -> bool {
        self.within(offset) == 0
    }

    /// How many clusters hold so many bytes.
    #[must_use]
    pub fn count_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes())
    }
}
