//! What stands beside the options and does not go with them.

use std::fmt;

use crate::options::{Options, Qcow2};

/// Something beside a FlexVolume's options that does not go with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contradiction {
    /// A new volume's filesystem cannot be chosen.
    Filesystem,
    /// There is a Secret, and the options have a key of their own.
    KeyTwice,
    /// There is a Secret, and nothing to use it for.
    SecretUnused,
}

impl Contradiction {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Filesystem => "remove fsType, or write ext4",
            Self::KeyTwice => "keep secretRef and remove the option secret",
            Self::SecretUnused => "remove secretRef",
        }
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filesystem => {
                write!(f, "a qcow2 volume is formatted with {}", Qcow2::FILESYSTEM)
            }
            Self::KeyTwice => f.write_str("the key stands in the options as well"),
            Self::SecretUnused => f.write_str("only a ceph volume uses a Secret"),
        }
    }
}

impl Options {
    /// What is wrong with `fsType` beside these options; empty is the same as
    /// absent.
    #[must_use]
    pub fn filesystem_problem(&self, fs_type: &str) -> Option<Contradiction> {
        let is_new = matches!(self, Self::Qcow2(_));
        let is_other = !fs_type.is_empty() && fs_type != Qcow2::FILESYSTEM;
        (is_new && is_other).then_some(Contradiction::Filesystem)
    }

    /// What is wrong with a `secretRef` beside these options.
    #[must_use]
    pub const fn secret_problem(&self) -> Option<Contradiction> {
        match self {
            Self::Ceph(ceph) if ceph.secret.is_none() => None,
            Self::Ceph(_) => Some(Contradiction::KeyTwice),
            Self::Qcow2(_) | Self::Raw(_) => Some(Contradiction::SecretUnused),
        }
    }
}
