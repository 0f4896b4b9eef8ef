//! Which VM shows how a step can be cut, and where.

use disklet_core::plan::StepKind;

/// Who cuts a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// real_kills.rs, with the VM of that name.
    NewVolume,
    RawDevice,
    DiskImage,
    PersistentRoot,
    Object,
    Uefi,
    /// real_kills.rs, with a disk in Ceph.
    Ceph,
    /// cluster_cuts.rs: only there are launchers.
    Launchers,
    /// real_live.rs: only while a VM runs.
    WhileItRuns,
    /// flags.rs shows that nothing is begun.
    Refused,
}

impl Shown {
    /// A new step that nobody cuts does not compile.
    pub(crate) fn of(step: StepKind) -> Self {
        match step {
            StepKind::EnsurePool
            | StepKind::PullImage
            | StepKind::CreateOverlay
            | StepKind::CreateVolume
            | StepKind::WriteCloudInit
            | StepKind::DefineDomain
            | StepKind::StartDomain => Self::NewVolume,
            StepKind::ExposeDevice | StepKind::TakeLease => Self::RawDevice,
            StepKind::ExposeFile => Self::DiskImage,
            StepKind::FillRoot => Self::PersistentRoot,
            StepKind::CloneMaster | StepKind::EndLease | StepKind::CreateDiskImage => Self::Object,
            StepKind::WriteFirmwareVariables => Self::Uefi,
            StepKind::CheckServers | StepKind::DefineSecret | StepKind::WriteCephConfig => {
                Self::Ceph
            }
            StepKind::ExposeSocket | StepKind::JoinLauncher | StepKind::ResumeDomain => {
                Self::Launchers
            }
            StepKind::AttachDisk => Self::WhileItRuns,
            StepKind::AskContainer | StepKind::AttachIdentity => Self::Refused,
        }
    }

    /// Its steps: there has to be a cut before each.
    pub(crate) fn steps(self) -> impl Iterator<Item = StepKind> {
        let steps = StepKind::ALL.iter().copied();
        steps.filter(move |step| Self::of(*step) == self)
    }
}
