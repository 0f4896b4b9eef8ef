//! Entries of L1 and L2 tables: what one says about a cluster.

use super::cluster::{ClusterSize, HostOffset};
use crate::error::{Result, corrupt};

/// Where a piece of the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Not in this image: ask the one below.
    Unallocated,
    /// It reads as zeroes; space may be kept for it.
    Zero {
        /// The space, if any.
        kept: Option<HostOffset>,
    },
    /// In the data file, from here on.
    Data(HostOffset),
    /// The whole cluster is packed.
    Compressed(CompressedCluster),
}

/// A packed cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedCluster {
    /// Where the packed bytes begin.
    pub offset: HostOffset,
    /// How many bytes they take at most: up to the end of their last sector.
    pub length: u64,
}

/// The state of one of 32 subclusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubclusterState {
    /// Ask the image below.
    Unallocated,
    /// In the cluster.
    Allocated,
    /// Reads as zeroes.
    Zero,
}

pub(super) const COPIED: u64 = 1 << 63;
pub(super) const COMPRESSED: u64 = 1 << 62;
pub(super) const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
pub(super) const ZERO: u64 = 1;

/// The L2 table that an L1 entry names, if any.
pub(crate) fn l2_table(entry: u64, cluster: ClusterSize) -> Result<Option<HostOffset>> {
    let offset = entry & OFFSET_MASK;
    if entry & !(OFFSET_MASK | COPIED) != 0 {
        return Err(corrupt("an L1 entry has reserved bits set"));
    }
    if offset == 0 {
        return Ok(None);
    }
    if !cluster.begins_at(offset) {
        return Err(corrupt("an L2 table is not at the start of a cluster"));
    }
    Ok(Some(HostOffset(offset)))
}

/// An entry of an L2 table, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum L2Entry {
    Compressed(CompressedCluster),
    Plain {
        /// The cluster, if there is one.
        host: Option<HostOffset>,
        /// The state of the subclusters, all alike in images without them.
        states: Subclusters,
    },
}

/// The states of a cluster's subclusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subclusters {
    allocated: u32,
    zero: u32,
}

impl Subclusters {
    const NONE: Self = Self {
        allocated: 0,
        zero: 0,
    };
    const ALL: Self = Self {
        allocated: u32::MAX,
        zero: 0,
    };
    const ZERO: Self = Self {
        allocated: 0,
        zero: u32::MAX,
    };

    /// The state of a subcluster, and up to which subcluster it is the same.
    pub(crate) fn run_at(self, index: u32) -> (SubclusterState, u32) {
        let state = self.state(index);
        let same = (index + 1..32).take_while(|next| self.state(*next) == state);
        let end = same.last().unwrap_or(index) + 1;
        (state, end)
    }

    fn state(self, index: u32) -> SubclusterState {
        let bit = 1 << index;
        if self.zero & bit != 0 {
            SubclusterState::Zero
        } else if self.allocated & bit != 0 {
            SubclusterState::Allocated
        } else {
            SubclusterState::Unallocated
        }
    }
}

impl L2Entry {
    /// Decodes an entry; `bitmap` is the second word of an extended one.
    /// `own_data` says that offset 0 cannot hold data, since the header is
    /// there.
    pub(crate) fn decode(
        entry: u64,
        bitmap: Option<u64>,
        cluster: ClusterSize,
        own_data: bool,
    ) -> Result<Self> {
        if entry & COMPRESSED != 0 {
            return Self::compressed(entry, bitmap, cluster);
        }
        if entry & !(OFFSET_MASK | COPIED | ZERO) != 0 {
            return Err(corrupt("an L2 entry has reserved bits set"));
        }
        let offset = entry & OFFSET_MASK;
        if !cluster.begins_at(offset) {
            return Err(corrupt("a cluster is not at a multiple of its size"));
        }
        // With a data file, offset 0 is a cluster like any other, and the
        // copied bit tells it from none.
        let exists = offset != 0 || (!own_data && entry & COPIED != 0);
        let host = exists.then_some(HostOffset(offset));
        let states = match bitmap {
            None if entry & ZERO != 0 => Subclusters::ZERO,
            None if exists => Subclusters::ALL,
            None => Subclusters::NONE,
            Some(_) if entry & ZERO != 0 => {
                return Err(corrupt("an extended L2 entry has a reserved bit set"));
            }
            Some(bitmap) => Self::subclusters(bitmap, exists)?,
        };
        Ok(Self::Plain { host, states })
    }

    fn subclusters(bitmap: u64, exists: bool) -> Result<Subclusters> {
        let half = |n: u64| u32::try_from(n & 0xffff_ffff).unwrap_or(0);
        let states = Subclusters {
            allocated: half(bitmap),
            zero: half(bitmap >> 32),
        };
        if states.allocated & states.zero != 0 {
            return Err(corrupt("a subcluster is both allocated and zero"));
        }
        if states.allocated != 0 && !exists {
            return Err(corrupt("subclusters are allocated in no cluster"));
        }
        Ok(states)
    }

    fn compressed(entry: u64, bitmap: Option<u64>, cluster: ClusterSize) -> Result<Self> {
        if bitmap.is_some_and(|bitmap| bitmap != 0) {
            return Err(corrupt("a compressed cluster has subclusters"));
        }
        Ok(Self::Compressed(CompressedCluster::decode(entry, cluster)))
    }
}

impl CompressedCluster {
    /// From an entry of an L2 table that says compressed.
    pub(super) fn decode(entry: u64, cluster: ClusterSize) -> Self {
        let split = 62 - (cluster.bits() - 8);
        let offset = entry & ((1 << split) - 1);
        let sectors = (entry & (COMPRESSED - 1)) >> split;
        // The first sector is counted from its own start, wherever in it the
        // bytes begin.
        Self {
            offset: HostOffset(offset),
            length: (sectors + 1) * 512 - (offset & 511),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ClusterSize = ClusterSize::DEFAULT;

    #[test]
    fn plain_entries_say_where_the_cluster_is() {
        let decode = |entry| L2Entry::decode(entry, None, CLUSTER, true).unwrap();
        let L2Entry::Plain { host, states } = decode(COPIED | 0x5_0000) else {
            panic!("not plain")
        };
        assert_eq!(host, Some(HostOffset(0x5_0000)));
        assert_eq!(states.run_at(0), (SubclusterState::Allocated, 32));
        let L2Entry::Plain { states, .. } = decode(ZERO) else {
            panic!("not plain")
        };
        assert_eq!(states.run_at(3), (SubclusterState::Zero, 32));
        for bad in [0x5_0200, 0x2, 1 << 60] {
            L2Entry::decode(bad, None, CLUSTER, true).unwrap_err();
        }
    }

    #[test]
    fn compressed_entries_end_with_their_last_sector() {
        let entry = COMPRESSED | (3 << 54) | 0x1_0010;
        let decoded = L2Entry::decode(entry, None, CLUSTER, true).unwrap();
        let expected = CompressedCluster {
            offset: HostOffset(0x1_0010),
            length: 4 * 512 - 16,
        };
        assert_eq!(decoded, L2Entry::Compressed(expected));
    }

    #[test]
    fn subclusters_have_states_of_their_own() {
        let bitmap = (0b100 << 32) | 0b011;
        let entry = L2Entry::decode(0x5_0000, Some(bitmap), CLUSTER, true).unwrap();
        let L2Entry::Plain { states, .. } = entry else {
            panic!("not plain")
        };
        assert_eq!(states.run_at(0), (SubclusterState::Allocated, 2));
        assert_eq!(states.run_at(2), (SubclusterState::Zero, 3));
        assert_eq!(states.run_at(3), (SubclusterState::Unallocated, 32));
        L2Entry::decode(0, Some(1), CLUSTER, true).unwrap_err();
        L2Entry::decode(0x5_0000, Some((1 << 32) | 1), CLUSTER, true).unwrap_err();
    }
}
