//! A disk of the guest: the image, what its bytes must be, and what the guest
//! is told to do with it.

use std::fmt::Write as _;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::support::Random;

pub(crate) const SECTOR: usize = 512;

pub(crate) struct Disk {
    pub(crate) name: &'static str,
    pub(crate) image: PathBuf,
    /// Sectors of a cluster.
    pub(crate) cluster: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Sectors that the guest writes, taken from a place in its pattern; without
/// one they are zeroes.
struct Put {
    pattern: Option<usize>,
    first: usize,
    count: usize,
}

impl Disk {
    fn sectors(&self) -> usize {
        self.bytes.len() / SECTOR
    }

    /// Makes the guest tell of all sectors. The lines that it must print.
    pub(crate) fn tell(&self, when: &str, script: &mut String) -> Vec<String> {
        let (end, edge) = (self.sectors(), self.cluster);
        let half = end / 2;
        let ranges = [0..half, half..end, edge - 1..edge + 1, end - 1..end];
        let mut expected = Vec::new();
        for range in ranges {
            let what = format!("{when} {} {} {}", self.name, range.start, range.len());
            writeln!(script, "tell {what}").unwrap();
            let digest = Sha256::digest(&self.bytes[range.start * SECTOR..range.end * SECTOR]);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            expected.push(format!("TOLD {what} {digest}"));
        }
        expected
    }

    /// Makes the guest write, and writes the same here.
    pub(crate) fn put(&mut self, pattern: &[u8], random: &mut Random, script: &mut String) {
        for put in self.puts(pattern.len() / SECTOR, random) {
            let range = put.first * SECTOR..(put.first + put.count) * SECTOR;
            let (file, skipped) = match put.pattern {
                Some(skipped) => {
                    let from = skipped * SECTOR;
                    let new = &pattern[from..from + range.len()];
                    self.bytes[range].copy_from_slice(new);
                    ("/pattern", skipped)
                }
                None => {
                    self.bytes[range].fill(0);
                    ("/dev/zero", 0)
                }
            };
            let (name, first, count) = (self.name, put.first, put.count);
            writeln!(script, "put {file} {skipped} {name} {first} {count}").unwrap();
        }
    }

    /// At both ends of the disk, across the edges of clusters and of what one
    /// L2 table covers, and anywhere.
    fn puts(&self, pattern: usize, random: &mut Random) -> Vec<Put> {
        let (end, cluster) = (self.sectors(), self.cluster);
        let table = cluster * (cluster * SECTOR / 8);
        let mut places = vec![
            (0, 1),
            (cluster - 1, 2),
            (5 * cluster - 1, 2 * cluster + 2),
            (end - 3, 3),
        ];
        if table < end {
            places.push((table - 1, 2));
        }
        for _ in 0..8 {
            let first = random.index(end);
            places.push((first, 1 + random.index(200.min(end - first))));
        }
        let mut puts: Vec<Put> = places
            .into_iter()
            .map(|(first, count)| Put {
                pattern: Some(random.index(pattern - count)),
                first,
                count,
            })
            .collect();
        puts.push(Put {
            pattern: None,
            first: 11 * cluster - 1,
            count: 2 * cluster + 2,
        });
        puts
    }
}
