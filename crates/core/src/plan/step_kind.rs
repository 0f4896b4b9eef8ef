//! The kinds of steps, all of them, for whoever has to go through them.

use super::Step;

macro_rules! step_kinds {
    ($($kind:ident)*) => {
        /// What sort of step it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "they are those of the steps themselves")]
        pub enum StepKind {
            $($kind,)*
        }

        impl StepKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];
        }

        impl Step {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> StepKind {
                match self {
                    $(Self::$kind { .. } => StepKind::$kind,)*
                }
            }
        }
    };
}

step_kinds! {
    CheckServers TakeLease EndLease EnsurePool PullImage CreateOverlay CloneMaster CreateVolume CreateDiskImage
    ExposeDevice ExposeFile ExposeSocket FillRoot DefineSecret AskContainer AttachIdentity WriteCloudInit
    WriteCephConfig WriteFirmwareVariables DefineDomain StartDomain
    JoinLauncher ResumeDomain
    AttachDisk
}
