//! Masters of clones, which are needed only while they are copied.

use std::path::Path;

use disklet_core::plan::{Copy, Plan, PlannedDisk, Step};

use super::{Executor, made_by, unmake};
use crate::agent::Whose;
use crate::failure::Result;
use crate::record::Made;

impl Executor<'_> {
    /// What shows the master goes, and then the record of it. After a crash in
    /// between, the next `up` does not need the master, and removes what is left.
    pub(super) fn end_lease(&self, disk: &str) -> Result<()> {
        let steps = self.plan.steps.iter();
        let of_master = steps.filter(|step| step.has_master_of() == Some(disk));
        let mut gone: Vec<_> = of_master.filter_map(made_by).collect();
        gone.retain(|made| !self.is_needed_besides(disk, made));
        for made in &gone {
            unmake(self.libvirt, made)?;
        }
        if let (Some(leases), Some(record)) = (self.leases, self.held.read()?) {
            // Of a disk that comes while the VM runs, the plan knows no other.
            let given_up = gone.iter().filter(|made| !record.needs_besides_new(made));
            leases.give_up(self.plan.uuid, given_up)?;
        }
        self.held.forget_made(&gone)
    }

    /// Has the right to use a disk's master, as far as other nodes have a say.
    /// On this one, the VM's record is the lease.
    pub(super) fn take_lease(&self, step: &Step) -> Result<()> {
        let (Some(leases), Some(lease)) = (self.leases, made_by(step)) else {
            return Ok(());
        };
        let whose = Whose {
            uuid: self.plan.uuid,
            namespace: self.plan.namespace.as_str(),
            name: self.plan.name.as_str(),
        };
        leases.take(whose, &lease)
    }

    /// Two disks of a VM may have one master.
    fn is_needed_besides(&self, disk: &str, made: &Made) -> bool {
        let steps = self.plan.steps.iter();
        let mut others = steps.filter(|step| {
            step.has_master_of().is_some_and(|it| it != disk) && !is_needless(self.plan, step)
        });
        others.any(|step| made_by(step).as_ref() == Some(made))
    }
}

/// Whether a disk has all of its master's bytes. A file that has its name is
/// complete.
pub(crate) fn is_cloned(disk: &PlannedDisk) -> bool {
    matches!(&disk.copy, Copy::Clone(file) if Path::new(&file.path).exists())
}

/// Whether a step would show or lease a master that nobody needs any more.
pub(crate) fn is_needless(plan: &Plan, step: &Step) -> bool {
    let Some(name) = step.has_master_of() else {
        return false;
    };
    let mut disks = plan.disks.iter();
    disks.any(|disk| disk.name == name && is_cloned(disk))
}
