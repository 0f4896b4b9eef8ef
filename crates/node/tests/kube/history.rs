//! Guests that write down that they run: who runs, and how often it has said so, in
//! one sector after the other.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::path::Path;

/// So many sectors are blank before each boot's first record, but for the very first. An
/// older guest that is still there when a younger one begins writes into them.
pub(crate) const GAP: usize = 64;

/// What a guest does to write it, ten times a second at most, on the disk `history`.
/// It goes on behind what is there, and a gap. Nobody ever writes over a record, so that
/// none of two guests hides the other one: who finds a sector taken, takes the next one.
/// Linux forgets what it knows of a device when the last one closes it, so that each look
/// and each record goes by what the disk has now.
pub(crate) const RECORD: &str = "(d=/dev/disk-by-serial/history; boot=$(cat /proc/sys/kernel/random/boot_id); \
     n=$(tr -d '\\000' <$d | awk '!seen[$1]++ { n += 64 } { n++ } END { print n + 0 }'); i=0; \
     while \
     while [ \"$(dd if=$d bs=512 skip=$n count=1 2>/dev/null | tr -d '\\000')\" ]; \
     do n=$((n + 1)); done; \
     echo $boot $i | dd of=$d bs=512 seek=$n conv=notrunc,fsync 2>/dev/null; \
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
    let mut boots = Boots::new();
    let mut blank = 0;
    for (sector, line) in bytes.chunks(512).map(text).enumerate() {
        if line.is_empty() {
            blank += 1;
            continue;
        }
        let why = follows(&mut boots, blank, &line).err();
        if let Some(why) = why {
            return Err(format!("sector {sector}: {why}"));
        }
        blank = 0;
    }
    Ok(boots)
}

/// Takes the next record, which is so many blank sectors behind the last one.
fn follows(boots: &mut Boots, blank: usize, line: &str) -> Result<(), String> {
    let record = line.split_once(' ');
    let record = record.and_then(|(boot, count)| Some((boot, count.parse::<u64>().ok()?)));
    let (boot, count) = record.ok_or_else(|| format!("{line:?}"))?;
    let is_known = boots.iter().any(|(other, _)| other == boot);
    let gap = if boots.is_empty() { 0 } else { GAP };
    match boots.last_mut() {
        Some((running, said)) if running == boot => {
            if count != *said {
                return Err(format!("{count} after {said} records"));
            }
            if blank > 0 {
                return Err(format!("{boot} has left out {blank} sectors"));
            }
            *said += 1;
        }
        _ if is_known => return Err(format!("{boot} goes on after another")),
        _ if count != 0 => return Err(format!("{boot} has begun elsewhere")),
        _ if blank != gap => {
            return Err(format!(
                "{boot} has begun {blank} sectors behind what was there, not {gap}"
            ));
        }
        _ => boots.push((boot.to_owned(), 1)),
    }
    Ok(())
}

fn text(sector: &[u8]) -> String {
    let text: Vec<_> = sector.iter().copied().filter(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).trim().to_owned()
}
