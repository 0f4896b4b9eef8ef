//! Guests that write down that they run: who runs, and how often it has said so, in
//! one sector after the other.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::path::Path;

/// What a guest does to write it, ten times a second at most, on the disk `history`.
/// It goes on behind what is there.
pub(crate) const RECORD: &str = "(d=/dev/disk-by-serial/history; boot=$(cat /proc/sys/kernel/random/boot_id); \
     n=$(tr -d '\\000' <$d | wc -l); i=0; \
     while echo $boot $i | dd of=$d bs=512 seek=$n conv=notrunc,fsync 2>/dev/null; \
     do n=$((n + 1)); i=$((i + 1)); usleep 100000; done) &";

/// Who has run, one after the other, and how often each has said so.
pub(crate) type Boots = Vec<(String, u64)>;

/// Reads what was written. Nobody may have been started twice, or have gone on after
/// somebody else has begun.
pub(crate) fn check(disk: &Path) -> Boots {
    let bytes = std::fs::read(disk).expect("the disk is there");
    let boots = judge(&bytes).unwrap_or_else(|why| panic!("{}: {why}", disk.display()));
    assert!(!boots.is_empty(), "nobody has written anything");
    boots
}

/// Who has run so far, while somebody may be writing.
pub(crate) fn so_far(disk: &Path) -> Boots {
    let bytes = std::fs::read(disk).expect("the disk is there");
    judge(&bytes).unwrap_or_else(|why| panic!("{}: {why}", disk.display()))
}

/// The boots that a history tells of; or why it cannot be one of guests that ran one after
/// the other.
pub(crate) fn judge(bytes: &[u8]) -> Result<Boots, String> {
    let texts = bytes.chunks(512).map(text);
    let written: Vec<_> = texts.clone().take_while(|it| !it.is_empty()).collect();
    let mut beyond = texts.skip(written.len());
    if beyond.any(|it| !it.is_empty()) {
        return Err("records after a gap".to_owned());
    }
    let mut boots = Boots::new();
    for (sector, line) in written.iter().enumerate() {
        let record = line.split_once(' ');
        let record = record.and_then(|(boot, count)| Some((boot, count.parse::<u64>().ok()?)));
        let (boot, count) = record.ok_or_else(|| format!("sector {sector}: {line:?}"))?;
        let is_known = boots.iter().any(|(other, _)| other == boot);
        match boots.last_mut() {
            Some((running, said)) if running == boot => {
                if count != *said {
                    return Err(format!("sector {sector}: {count} after {said} records"));
                }
                *said += 1;
            }
            _ if is_known => {
                return Err(format!("sector {sector}: {boot} goes on after another"));
            }
            _ if count != 0 => {
                return Err(format!("sector {sector}: {boot} has begun elsewhere"));
            }
            _ => boots.push((boot.to_owned(), 1)),
        }
    }
    Ok(boots)
}

fn text(sector: &[u8]) -> String {
    let text: Vec<_> = sector.iter().copied().filter(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).trim().to_owned()
}
