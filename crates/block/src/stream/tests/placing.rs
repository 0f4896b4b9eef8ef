//! The placer alone, with memory for a target and a scratch.

use super::expected::Expected;
use super::hostile::{CLUSTER, crafted, crafted_disk};
use super::shuffle::{Order, shuffled};
use super::*;

struct Memory {
    disk: Vec<u8>,
    parked: Vec<u8>,
    parked_bytes: usize,
}

impl Memory {
    fn carry(&mut self, action: Action<'_>) -> Result<u64> {
        let at = |n: u64| usize::try_from(n).unwrap();
        match action {
            Action::Write { guest, bytes } => {
                self.disk[at(guest)..at(guest) + bytes.len()].copy_from_slice(bytes);
            }
            Action::Zero { guest, length } => self.disk[at(guest)..at(guest + length)].fill(0),
            Action::Park { host, bytes } => {
                self.parked[at(host)..at(host) + bytes.len()].copy_from_slice(bytes);
                self.parked_bytes += bytes.len();
            }
            Action::Fetch {
                guest,
                host,
                length,
            } => {
                let bytes = &self.parked[at(host)..at(host + length)];
                self.disk[at(guest)..at(guest + length)].copy_from_slice(bytes);
            }
            other => panic!("{other:?}"),
        }
        Ok(0)
    }

    fn recall(&mut self, placer: &mut Placer) {
        while let Some(host) = placer.wanted().unwrap() {
            let host = usize::try_from(host).unwrap();
            let table = self.parked[host..host + CLUSTER].to_vec();
            placer
                .recall(&table, &mut |action| self.carry(action))
                .unwrap();
        }
    }
}

/// Feeds a file in the smallest steps, with room for so many awaited pieces.
fn placed(file: &[u8], most: usize) -> Memory {
    let mut placer = Placer::new(file, None).unwrap();
    placer.expected = Expected::at_most(most);
    let mut memory = Memory {
        disk: vec![0xee; usize::try_from(placer.header().size).unwrap()],
        parked: vec![0xdd; file.len()],
        parked_bytes: 0,
    };
    let mut at = 0;
    while at < file.len() {
        let end = (at + 3 * CLUSTER).min(file.len());
        let last = end == file.len();
        at += placer
            .feed(&file[at..end], last, &mut |action| memory.carry(action))
            .unwrap();
        memory.recall(&mut placer);
    }
    placer.end().unwrap();
    memory.recall(&mut placer);
    memory
}

#[test]
fn tables_that_cannot_be_kept_in_mind_are_parked_with_their_data() {
    for most in 0..6 {
        for seed in 0..200 {
            let file = shuffled(&crafted(), Order::Random(seed));
            let memory = placed(&file, most);
            assert!(memory.disk == crafted_disk(), "{most} {seed}");
        }
    }
    let few = placed(&crafted(), 0).parked_bytes;
    let more = placed(&crafted(), 3).parked_bytes;
    assert!(few > 0);
    assert_eq!(more, 0);
}

#[test]
fn too_few_bytes_are_left_for_the_next_time() {
    let file = crafted();
    let mut placer = Placer::new(&file, None).unwrap();
    let mut nothing = |action: Action<'_>| panic!("{action:?}");
    let taken = placer.feed(&file[..3 * CLUSTER - 1], false, &mut nothing);
    assert_eq!(taken.unwrap(), 0);
}
