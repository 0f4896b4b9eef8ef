//! Who may use a master, and how it is copied.

use serde::{Deserialize, Serialize};

use super::VolumeFile;

/// Who may use the master at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// One VM, alone.
    WriteExclusive,
    /// Many, all of which may write to it.
    WriteShared,
    /// Many, none of which writes to it.
    ReadShared,
}

impl Access {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::WriteExclusive, Self::WriteShared, Self::ReadShared];

    /// As manifests write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteExclusive => "write-exclusive",
            Self::WriteShared => "write-shared",
            Self::ReadShared => "read-shared",
        }
    }

    /// Whether two VMs may use one master in these ways at the same time.
    #[must_use]
    pub fn agrees_with(self, other: Self) -> bool {
        self == other && self != Self::WriteExclusive
    }
}

/// Whether the guest writes to the master or to a copy of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy {
    /// To the master itself.
    None,
    /// To an overlay; what it has not written is read from the master.
    OnWrite(VolumeFile),
    /// The same, and what it has read is in the overlay as well.
    OnRead(VolumeFile),
    /// To a file that has all of the master's bytes.
    Clone(VolumeFile),
}

impl Copy {
    /// Without its file.
    #[must_use]
    pub fn mode(&self) -> CopyMode {
        match self {
            Self::None => CopyMode::None,
            Self::OnWrite(_) => CopyMode::CopyOnWrite,
            Self::OnRead(_) => CopyMode::CopyOnRead,
            Self::Clone(_) => CopyMode::Clone,
        }
    }

    /// The file of ours.
    #[must_use]
    pub fn file(&self) -> Option<&VolumeFile> {
        match self {
            Self::None => None,
            Self::OnWrite(file) | Self::OnRead(file) | Self::Clone(file) => Some(file),
        }
    }
}

/// How a copy comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyMode {
    /// There is none.
    None,
    /// Where the guest writes.
    CopyOnWrite,
    /// Where the guest writes or reads.
    CopyOnRead,
    /// All at once, before the guest starts.
    Clone,
}

impl CopyMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::CopyOnWrite, Self::CopyOnRead, Self::Clone];

    /// As manifests write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::CopyOnWrite => "copy-on-write",
            Self::CopyOnRead => "copy-on-read",
            Self::Clone => "clone",
        }
    }
}
