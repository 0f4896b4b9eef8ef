//! Which clusters of the file are parked: one bit each.

/// More clusters than this are refused: 4 MiB of bits, and a file of 2 TiB
/// with usual clusters.
pub(super) const MOST_CLUSTERS: u64 = 1 << 25;

/// A set of clusters, by their number in the file.
#[derive(Debug, Default)]
pub(super) struct Parked {
    words: Vec<u64>,
}

impl Parked {
    pub(super) fn insert(&mut self, cluster: u64) {
        let (word, bit) = place(cluster);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    pub(super) fn contains(&self, cluster: u64) -> bool {
        let (word, bit) = place(cluster);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }
}

fn place(cluster: u64) -> (usize, u64) {
    let word = usize::try_from(cluster / 64).unwrap_or(usize::MAX - 1);
    (word, 1 << (cluster % 64))
}
