//! What is to be done with the device of a persistent root, given what is on
//! it. The bytes are the block engine's to read; see
//! docs/formats/root-device.md.

use std::fmt;

use crate::names::Sha256;

/// What is on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootFact {
    /// Nothing.
    Blank,
    /// Something that is not ours.
    Foreign,
    /// A root that Virtlet has filled.
    Virtlet(Sha256),
    /// A root that was being filled.
    Filling(Sha256),
    /// A complete root.
    Complete(Sha256),
    /// A root of a later version than this program knows.
    Later(u16),
    /// Our mark, and nonsense behind it.
    Damaged,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootVerdict {
    /// The disk is there and begins at this offset.
    Keep(u64),
    /// It has to be filled from its image; it will begin at [`DATA_OFFSET`].
    Fill,
}

/// Why a device is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootRefusal {
    /// It holds something that is not ours.
    Foreign,
    /// It holds a disk that came from another image.
    OtherImage(Sha256),
    /// Its header is damaged.
    Damaged,
    /// A later version of this program has written it.
    Later(u16),
}

/// The header comes before the disk; a MiB keeps the guest's blocks aligned on
/// any device.
pub const DATA_OFFSET: u64 = 1 << 20;

/// Where the disk begins on a device that Virtlet has filled.
pub const VIRTLET_DATA_OFFSET: u64 = 512;

/// Decides. `overwrite` is the user's word that what is there may be lost.
pub fn judge(
    found: RootFact,
    wanted: &Sha256,
    overwrite: bool,
) -> Result<RootVerdict, RootRefusal> {
    let unless_allowed = |refusal| {
        if overwrite {
            Ok(RootVerdict::Fill)
        } else {
            Err(refusal)
        }
    };
    match found {
        // No guest has ever run on a disk that was not complete.
        RootFact::Blank | RootFact::Filling(_) => Ok(RootVerdict::Fill),
        RootFact::Complete(digest) if digest == *wanted => Ok(RootVerdict::Keep(DATA_OFFSET)),
        RootFact::Virtlet(digest) if digest == *wanted => {
            Ok(RootVerdict::Keep(VIRTLET_DATA_OFFSET))
        }
        RootFact::Complete(digest) | RootFact::Virtlet(digest) => {
            unless_allowed(RootRefusal::OtherImage(digest))
        }
        RootFact::Foreign => unless_allowed(RootRefusal::Foreign),
        RootFact::Damaged => unless_allowed(RootRefusal::Damaged),
        // Whoever wrote it may have meant more than we can know.
        RootFact::Later(version) => Err(RootRefusal::Later(version)),
    }
}

impl RootRefusal {
    /// What the user can do.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Later(_) => "use the version of Disklet that wrote it, or another volume",
            _ => {
                "use another volume; or, if all that is on the device may be lost, say so in the pod: \
                 disklet.io/recreate-root: \"true\""
            }
        }
    }
}

impl fmt::Display for RootRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the device holds data that is not a root disk of ours"),
            Self::OtherImage(digest) => write!(
                f,
                "the device holds a root disk that was made from another image, sha256:{digest}"
            ),
            Self::Damaged => f.write_str("the header of the root disk is damaged"),
            Self::Later(version) => write!(
                f,
                "the root disk has a header of version {version}, which this program does not know"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_disk_of_anybodys_is_filled_unasked() {
        let (ours, other) = (Sha256::from_bytes([1; 32]), Sha256::from_bytes([2; 32]));
        let keep = |offset| Ok(RootVerdict::Keep(offset));
        let fill = Ok(RootVerdict::Fill);
        // Found, without and with the user's permission.
        let table = [
            (RootFact::Blank, fill, fill),
            (RootFact::Foreign, Err(RootRefusal::Foreign), fill),
            (RootFact::Virtlet(ours), keep(512), keep(512)),
            (
                RootFact::Virtlet(other),
                Err(RootRefusal::OtherImage(other)),
                fill,
            ),
            (RootFact::Filling(ours), fill, fill),
            (RootFact::Filling(other), fill, fill),
            (RootFact::Complete(ours), keep(1 << 20), keep(1 << 20)),
            (
                RootFact::Complete(other),
                Err(RootRefusal::OtherImage(other)),
                fill,
            ),
            (
                RootFact::Later(3),
                Err(RootRefusal::Later(3)),
                Err(RootRefusal::Later(3)),
            ),
            (RootFact::Damaged, Err(RootRefusal::Damaged), fill),
        ];
        for (found, unasked, allowed) in table {
            assert_eq!(judge(found, &ours, false), unasked, "{found:?}");
            assert_eq!(judge(found, &ours, true), allowed, "{found:?}");
        }
    }
}
