//! The clusters that hold tables, of the whole file: few, and far apart.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hasher};

use super::census::{Kind, Use, join};
use crate::error::{Result, limit};

/// Tables of small clusters lie side by side, those of large ones do not.
const GROUP: u64 = 32;

#[derive(Clone)]
struct Group {
    counts: [u16; 32],
    uses: [Use; 32],
}

/// With its place in the map.
const GROUP_BYTES: usize = size_of::<Group>() + 40;

/// What is known of clusters with tables.
pub(super) struct TableCensus {
    /// Where groups are.
    places: HashMap<u32, u32, Seeded>,
    groups: Vec<Group>,
    most: usize,
}

impl TableCensus {
    pub(super) fn within(memory: usize) -> Self {
        Self {
            places: HashMap::with_hasher(Seeded::new()),
            groups: Vec::new(),
            most: memory / GROUP_BYTES,
        }
    }

    /// How much memory it takes.
    pub(super) fn memory(&self) -> usize {
        self.groups.len() * GROUP_BYTES
    }

    /// Adds a reference. Says whether the cluster was in use as something
    /// else, or by something that does not share.
    pub(super) fn add(&mut self, cluster: u64, kind: Kind) -> Result<bool> {
        let (count, uses) = self.slot(cluster)?;
        Ok(join(count, uses, kind, 1))
    }

    /// Adds a table that the disk's own L1 table names, and what it says of
    /// it.
    pub(super) fn add_active(&mut self, cluster: u64, kind: Kind, says: Use) -> Result<()> {
        let (count, uses) = self.slot(cluster)?;
        if uses.has(Use::ACTIVE) {
            // The disk has no use for a table twice.
            uses.set(Use::OVERLAP);
        }
        join(count, uses, kind, 1);
        uses.set(Use::ACTIVE);
        uses.set(says);
        Ok(())
    }

    /// The groups, in the order of the file.
    pub(super) fn groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.places.keys().copied().collect();
        groups.sort_unstable();
        groups
    }

    /// The clusters of a group of which something is known, in order.
    pub(super) fn of_group(&self, number: u32) -> impl Iterator<Item = (u64, u16, Use)> + '_ {
        let place = self.places.get(&number).map(|place| *place as usize);
        let group = place.and_then(|place| self.groups.get(place));
        group
            .into_iter()
            .flat_map(move |group| {
                let known = group.counts.iter().zip(&group.uses);
                (u64::from(number) * GROUP..).zip(known)
            })
            .filter(|(_, (count, _))| **count > 0)
            .map(|(cluster, (count, uses))| (cluster, *count, *uses))
    }

    fn slot(&mut self, cluster: u64) -> Result<(&mut u16, &mut Use)> {
        let too_many = || limit("the image has too many tables to be checked");
        let number = u32::try_from(cluster / GROUP).map_err(|_| too_many())?;
        let place = match self.places.entry(number) {
            Entry::Occupied(known) => *known.get() as usize,
            Entry::Vacant(vacant) => {
                let place = self.groups.len();
                if place >= self.most {
                    return Err(too_many());
                }
                vacant.insert(u32::try_from(place).map_err(|_| too_many())?);
                self.groups.push(Group {
                    counts: [0; 32],
                    uses: [Use::NONE; 32],
                });
                place
            }
        };
        let group = &mut self.groups[place];
        let index = usize::try_from(cluster % GROUP).unwrap_or(0);
        Ok((&mut group.counts[index], &mut group.uses[index]))
    }
}

/// A hash for numbers that an image chooses and a seed that it cannot know.
/// There may be millions, for which the usual one is slow.
#[derive(Clone)]
struct Seeded {
    seed: u64,
    factor: u64,
}

impl Seeded {
    fn new() -> Self {
        let random = RandomState::new();
        Self {
            seed: random.hash_one(1),
            factor: random.hash_one(2) | 1,
        }
    }
}

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher {
            state: self.seed,
            factor: self.factor,
        }
    }
}

struct SeededHasher {
    state: u64,
    factor: u64,
}

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.state = (self.state ^ u64::from(number)).wrapping_mul(self.factor);
    }

    /// The product's upper half depends on all of the number.
    fn finish(&self) -> u64 {
        self.state ^ self.state >> 32
    }
}
