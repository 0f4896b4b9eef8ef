//! Guests that write down that they run: who runs, and how often it has said so, in
//! one sector after the other.

use std::collections::BTreeSet;
use std::path::Path;

/// What a guest does to write it, ten times a second at most, on the disk `history`.
/// It goes on behind what is there.
pub(crate) const RECORD: &str = "(d=/dev/disk-by-serial/history; boot=$(cat /proc/sys/kernel/random/boot_id); \
     n=$(tr -d '\\000' <$d | wc -l); i=0; \
     while echo $boot $i | dd of=$d bs=512 seek=$n conv=notrunc,fsync 2>/dev/null; \
     do n=$((n + 1)); i=$((i + 1)); usleep 100000; done) &";

/// Reads what was written. Nobody may have been started twice, or have gone on after
/// somebody else has begun. Returns how many guests there were.
pub(crate) fn check(disk: &Path) -> usize {
    let bytes = std::fs::read(disk).expect("the disk is there");
    let texts = bytes.chunks(512).map(text);
    let written: Vec<_> = texts.clone().take_while(|it| !it.is_empty()).collect();
    let beyond = texts
        .skip(written.len())
        .filter(|it| !it.is_empty())
        .count();
    assert_eq!(beyond, 0, "records after a gap");
    let mut boots = BTreeSet::new();
    let mut last: Option<(&str, u64)> = None;
    for (sector, line) in written.iter().enumerate() {
        let (boot, count) = line.split_once(' ').expect("a boot and a number");
        let count: u64 = count.parse().expect("a number");
        match last {
            Some((running, so_far)) if running == boot => {
                assert_eq!(count, so_far + 1, "sector {sector}");
            }
            _ => {
                assert!(
                    boots.insert(boot),
                    "sector {sector}: {boot} goes on after another"
                );
                assert_eq!(count, 0, "sector {sector}: {boot} has begun elsewhere");
            }
        }
        last = Some((boot, count));
    }
    assert!(!boots.is_empty(), "nobody has written anything");
    boots.len()
}

fn text(sector: &[u8]) -> String {
    let text: Vec<_> = sector.iter().copied().filter(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).trim().to_owned()
}
