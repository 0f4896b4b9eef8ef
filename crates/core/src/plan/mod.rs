//! A plan: what a VM's disks are and what would be done to have them.
//!
//! It is a value. Printing it changes nothing, and the executor consumes its
//! steps as they are.

mod access;
mod build;
mod disk;
mod launcher;
mod master;
mod pool;
mod step;
mod step_kind;
mod storage;
mod view;
mod whose;

pub use access::{Access, Copy, CopyMode};
pub use build::{Draft, Purpose};
pub use disk::{
    Claimed, ExposedPath, HostPath, Later, Migration, MountPoint, NetworkKey, PlannedDisk, Size,
    Source, StorageContainer, TuningWish, VolumeFile,
};
pub use launcher::Launcher;
pub use master::Master;
pub use pool::{PoolAccount, PoolShare};
pub use step::{LeaseEnd, Step};
pub use step_kind::StepKind;
pub(crate) use storage::plain_path;
pub use storage::{Clustered, Nodes, Storage};
pub use view::PlanView;
pub use whose::Whose;

use uuid::Uuid;

use crate::cloudinit::CloudInit;
use crate::domain::Domain;
use crate::names::{ImageName, Namespace, ObjectName, Sha256};

/// The plan of one VM.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: ObjectName,
    /// The domain's UUID.
    pub uuid: Uuid,
    /// Its disks, in order.
    pub disks: Vec<PlannedDisk>,
    /// What would be done, in order.
    pub steps: Vec<Step>,
    /// The domain.
    pub domain: Domain,
    /// The pools that hold files of its own.
    pub pools: Vec<PoolShare>,
    /// The cloud-init image, if it has one.
    pub cloud_init: Option<CloudInit>,
    /// The pod that it runs for, in a cluster.
    pub launcher: Option<Launcher>,
    /// What is not known yet, each in a sentence.
    pub known_later: Vec<String>,
}

impl Plan {
    /// Namespace and name, as users write them.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the VM shall run; else it is only prepared.
    #[must_use]
    pub fn is_to_run(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::StartDomain { .. }))
    }

    /// The digests of the images that it uses, as far as they are known.
    pub fn images(&self) -> impl Iterator<Item = Sha256> + '_ {
        self.named_images().map(|(_, digest)| digest)
    }

    /// The same with their names.
    pub fn named_images(&self) -> impl Iterator<Item = (&ImageName, Sha256)> {
        self.disks.iter().filter_map(|disk| match &disk.source {
            Source::Image { image, digest, .. } | Source::PersistentRoot { image, digest, .. } => {
                Some((image, (*digest)?))
            }
            _ => None,
        })
    }
}
