//! Rewrites an image with its clusters in another order.

use super::Noise;

/// In which order clusters are put.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// Any.
    Random(u64),
    /// Data, L2 tables, the L1 table.
    TablesLast,
    /// The L1 table, L2 tables, data.
    TablesFirst,
    /// Backwards.
    Reversed,
}

/// What a cluster of the file is, as far as the order goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    L1,
    L2,
    Other,
}

struct Shuffler<'f> {
    file: &'f [u8],
    bits: u32,
    roles: Vec<Role>,
    /// Whether a cluster has to stay behind the one before.
    tied: Vec<bool>,
}

const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;

pub(super) fn be(file: &[u8], at: usize, bytes: usize) -> u64 {
    file[at..at + bytes]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(super) fn put(file: &mut [u8], at: usize, number: u64) {
    file[at..at + 8].copy_from_slice(&number.to_be_bytes());
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Permutes all clusters but the first and leads every pointer to its new
/// place. Snapshots are forgotten.
pub(super) fn shuffled(file: &[u8], order: Order) -> Vec<u8> {
    let bits = u32::try_from(be(file, 20, 4)).unwrap();
    let mut file = file.to_vec();
    file.resize(file.len().next_multiple_of(1 << bits), 0);
    file[60..64].fill(0);
    let mut shuffler = Shuffler::new(&file, bits);
    shuffler.look();
    let places = shuffler.places(order);
    shuffler.rewritten(&places)
}

impl<'f> Shuffler<'f> {
    fn new(file: &'f [u8], bits: u32) -> Self {
        let clusters = file.len() >> bits;
        Self {
            file,
            bits,
            roles: vec![Role::Other; clusters],
            tied: vec![false; clusters],
        }
    }

    fn entry_bytes(&self) -> usize {
        let extended = be(self.file, 4, 4) == 3 && self.file[79] & 0x10 != 0;
        if extended { 16 } else { 8 }
    }

    fn l1(&self) -> (usize, usize) {
        let entries = size(be(self.file, 36, 4));
        (size(be(self.file, 40, 8)), entries)
    }

    fn tie(&mut self, start: usize, length: usize) {
        for cluster in (start >> self.bits) + 1..=(start + length.max(1) - 1) >> self.bits {
            if let Some(tied) = self.tied.get_mut(cluster) {
                *tied = true;
            }
        }
    }

    /// Finds out what each cluster is.
    fn look(&mut self) {
        let (l1, entries) = self.l1();
        self.tie(l1, entries * 8);
        for cluster in l1 >> self.bits..=(l1 + entries * 8 - 1) >> self.bits {
            self.roles[cluster] = Role::L1;
        }
        self.tie(
            size(be(self.file, 48, 8)),
            size(be(self.file, 56, 4)) << self.bits,
        );
        for table in self.tables() {
            self.roles[table >> self.bits] = Role::L2;
            for at in (table..table + (1 << self.bits)).step_by(self.entry_bytes()) {
                let entry = be(self.file, at, 8);
                if entry & COMPRESSED != 0 {
                    let split = 62 - (self.bits - 8);
                    let offset = size(entry & ((1 << split) - 1));
                    let sectors = size((entry & (COMPRESSED - 1)) >> split);
                    self.tie(offset, (sectors + 1) * 512 - offset % 512);
                }
            }
        }
    }

    fn tables(&self) -> Vec<usize> {
        let (l1, entries) = self.l1();
        (0..entries)
            .map(|index| size(be(self.file, l1 + index * 8, 8) & OFFSET))
            .filter(|table| *table != 0)
            .collect()
    }

    /// Where each cluster goes.
    fn places(&self, order: Order) -> Vec<usize> {
        let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
        for cluster in 1..self.tied.len() {
            match groups.last_mut() {
                Some(group) if self.tied[cluster] => group.end = cluster + 1,
                _ => groups.push(cluster..cluster + 1),
            }
        }
        let role = |group: &std::ops::Range<usize>| self.roles[group.start];
        match order {
            Order::Random(seed) => {
                let mut noise = Noise(seed);
                for last in (1..groups.len()).rev() {
                    groups.swap(last, size(noise.below(last as u64 + 1)));
                }
            }
            Order::TablesLast => groups.sort_by_key(|group| std::cmp::Reverse(role(group))),
            Order::TablesFirst => groups.sort_by_key(role),
            Order::Reversed => groups.reverse(),
        }
        let mut places = vec![0; self.tied.len()];
        for (place, cluster) in groups.into_iter().flatten().enumerate() {
            places[cluster] = place + 1;
        }
        places
    }

    fn rewritten(&self, places: &[usize]) -> Vec<u8> {
        let moved = |offset: usize| {
            let within = offset & ((1 << self.bits) - 1);
            (places[offset >> self.bits] << self.bits) + within
        };
        let mut out = vec![0; self.file.len()];
        for (cluster, bytes) in self.file.chunks(1 << self.bits).enumerate() {
            let start = places[cluster] << self.bits;
            out[start..start + bytes.len()].copy_from_slice(bytes);
        }
        for at in [40, 48] {
            put(&mut out, at, moved(size(be(self.file, at, 8))) as u64);
        }
        let (l1, entries) = self.l1();
        for at in (l1..l1 + entries * 8).step_by(8) {
            self.lead(&mut out, at, &moved);
        }
        for table in self.tables() {
            for at in (table..table + (1 << self.bits)).step_by(self.entry_bytes()) {
                self.lead(&mut out, at, &moved);
            }
        }
        out
    }

    /// Leads the entry that was at this offset to where its cluster is now.
    fn lead(&self, out: &mut [u8], at: usize, moved: &impl Fn(usize) -> usize) {
        let entry = be(self.file, at, 8);
        let mask = if entry & COMPRESSED != 0 {
            (1 << (62 - (self.bits - 8))) - 1
        } else {
            OFFSET
        };
        if entry & mask != 0 {
            let offset = moved(size(entry & mask)) as u64;
            put(out, moved(at), entry & !mask | offset);
        }
    }
}
