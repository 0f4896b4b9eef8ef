//! Which disk a step is for, and when it is its turn.

use uuid::Uuid;

use super::{Plan, PlannedDisk, Step};
use crate::domain::Location;

/// Whom a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'s> {
    /// The disk of that name.
    Disk(&'s str),
    /// The disk whose file it is.
    DiskAt(&'s str),
    /// The disk that is opened with this key.
    KeyOf(Uuid),
    /// The root disk.
    Root,
    /// The whole VM.
    Vm,
}

impl Plan {
    /// The disk whose file it is.
    #[must_use]
    pub fn disk_at(&self, file: &str) -> Option<&PlannedDisk> {
        let mut disks = self.disks.iter().zip(&self.domain.disks);
        let found = disks.find(|(_, disk)| match &disk.top.at {
            Location::File(path) => path == file,
            _ => false,
        });
        found.map(|(planned, _)| planned)
    }
}

impl Step {
    /// Whom it is for.
    #[must_use]
    pub fn whose(&self) -> Whose<'_> {
        match self {
            Self::CheckServers { disk, .. }
            | Self::TakeLease { disk, .. }
            | Self::EndLease { disk }
            | Self::AskContainer { disk, .. }
            | Self::AttachIdentity { disk, .. }
            | Self::CreateDiskImage { disk, .. }
            | Self::ExposeDevice { disk, .. }
            | Self::ExposeFile { disk, .. }
            | Self::AttachDisk { disk, .. } => Whose::Disk(disk),
            Self::CreateOverlay { file, .. }
            | Self::CloneMaster { file, .. }
            | Self::CreateVolume { file, .. }
            | Self::WriteCloudInit { file, .. } => Whose::DiskAt(file),
            Self::FillRoot { .. } => Whose::Root,
            Self::DefineSecret { uuid, .. } => Whose::KeyOf(*uuid),
            Self::EnsurePool { .. }
            | Self::PullImage { .. }
            | Self::WriteCephConfig { .. }
            | Self::WriteFirmwareVariables { .. }
            | Self::DefineDomain { .. }
            | Self::ExposeSocket { .. }
            | Self::StartDomain { .. }
            | Self::JoinLauncher { .. }
            | Self::ResumeDomain { .. } => Whose::Vm,
        }
    }

    /// Whether it is part of the start, not of what comes before.
    #[must_use]
    pub fn is_of_start(&self) -> bool {
        match self {
            Self::StartDomain { .. } | Self::JoinLauncher { .. } | Self::ResumeDomain { .. } => {
                true
            }
            Self::CheckServers { .. }
            | Self::TakeLease { .. }
            | Self::EndLease { .. }
            | Self::EnsurePool { .. }
            | Self::PullImage { .. }
            | Self::CreateOverlay { .. }
            | Self::CloneMaster { .. }
            | Self::CreateVolume { .. }
            | Self::CreateDiskImage { .. }
            | Self::ExposeDevice { .. }
            | Self::ExposeFile { .. }
            | Self::ExposeSocket { .. }
            | Self::FillRoot { .. }
            | Self::DefineSecret { .. }
            | Self::AskContainer { .. }
            | Self::AttachIdentity { .. }
            | Self::WriteCloudInit { .. }
            | Self::WriteCephConfig { .. }
            | Self::WriteFirmwareVariables { .. }
            | Self::DefineDomain { .. }
            | Self::AttachDisk { .. } => false,
        }
    }

    /// The disk whose master it checks, leases or shows: once that is cloned, nobody needs it.
    #[must_use]
    pub fn has_master_of(&self) -> Option<&str> {
        match self {
            Self::CheckServers { disk, .. }
            | Self::TakeLease { disk, .. }
            | Self::ExposeDevice { disk, .. }
            | Self::ExposeFile { disk, .. } => Some(disk),
            Self::EndLease { .. }
            | Self::EnsurePool { .. }
            | Self::PullImage { .. }
            | Self::CreateOverlay { .. }
            | Self::CloneMaster { .. }
            | Self::CreateDiskImage { .. }
            | Self::AskContainer { .. }
            | Self::AttachIdentity { .. }
            | Self::CreateVolume { .. }
            | Self::ExposeSocket { .. }
            | Self::FillRoot { .. }
            | Self::DefineSecret { .. }
            | Self::WriteCloudInit { .. }
            | Self::WriteCephConfig { .. }
            | Self::WriteFirmwareVariables { .. }
            | Self::DefineDomain { .. }
            | Self::StartDomain { .. }
            | Self::AttachDisk { .. }
            | Self::JoinLauncher { .. }
            | Self::ResumeDomain { .. } => None,
        }
    }
}
