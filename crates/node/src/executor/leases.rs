//! Masters of clones, which are needed only while they are copied.

use std::path::Path;

use disklet_core::plan::{Copy, Plan, PlannedDisk, Step};

use super::{Executor, made_by, unmake};
use crate::failure::Result;

impl Executor<'_> {
    /// What shows the master goes, and then the record of it. After a crash in
    /// between, the next `up` does not need the master, and removes what is left.
    pub(super) fn end_lease(&self, disk: &str) -> Result<()> {
        let steps = self.plan.steps.iter();
        let of_master = steps.filter(|step| disk_of_master(step) == Some(disk));
        let gone: Vec<_> = of_master.filter_map(made_by).collect();
        for made in &gone {
            unmake(self.libvirt, made)?;
        }
        self.held
            .forget_made(|made| gone.iter().any(|gone| gone.is_at(made)))
    }
}

/// Whether a disk has all of its master's bytes. A file that has its name is
/// complete.
pub(crate) fn is_cloned(disk: &PlannedDisk) -> bool {
    matches!(&disk.copy, Copy::Clone(file) if Path::new(&file.path).exists())
}

/// Whether a step would show or lease a master that nobody needs any more.
pub(crate) fn is_needless(plan: &Plan, step: &Step) -> bool {
    let Some(name) = disk_of_master(step) else {
        return false;
    };
    let mut disks = plan.disks.iter();
    disks.any(|disk| disk.name == name && is_cloned(disk))
}

/// Whose master a step is about.
fn disk_of_master(step: &Step) -> Option<&str> {
    match step {
        Step::CheckServers { disk, .. }
        | Step::TakeLease { disk, .. }
        | Step::ExposeDevice { disk, .. }
        | Step::ExposeFile { disk, .. } => Some(disk),
        _ => None,
    }
}
