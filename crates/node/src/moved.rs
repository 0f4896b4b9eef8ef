//! Disks that somebody has moved. After a snapshot or a copy by virsh, a domain
//! writes to another file than the one that was made for it, and what its guest
//! writes from then on is only there. A domain that is defined anew would be over
//! the old file, as if nothing had been written since.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use disklet_core::plan::Plan;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::libvirt::{DomainDisk, disks_in};
use crate::record::Record;
use crate::verbs::Node;

/// A disk that is not where it was.
#[derive(Debug)]
pub(crate) struct Moved {
    /// As the manifest names it.
    disk: String,
    target: String,
    /// What was made for it.
    from: String,
    /// What its domain writes to.
    pub(crate) to: String,
}

impl Node<'_> {
    /// Refuses to do what would have the guest find an older disk.
    pub(crate) fn refuse_moved(&self, record: &Record, plan: &Plan) -> Result<()> {
        match self.moved(record, Some(plan))?.first() {
            Some(moved) => Err(self.explained(record, moved)?),
            None => Ok(()),
        }
    }

    /// Tells of disks that were moved: nothing happens to them while the VM runs.
    pub(crate) fn tell_moved(&self, record: &Record, plan: &Plan) -> Result<()> {
        for moved in self.moved(record, Some(plan))? {
            let failure = self.explained(record, &moved)?;
            let failure = failure.of(&record.full_name());
            let _ = writeln!(io::stderr(), "notice: {failure}");
        }
        Ok(())
    }

    /// The disks of a VM's domain that are elsewhere than everything that was
    /// made for it, or is about to be.
    pub(crate) fn moved(&self, record: &Record, plan: Option<&Plan>) -> Result<Vec<Moved>> {
        let kept = self.kept_plan(record.uuid).unwrap_or_default();
        let before = disks_in(kept["domainXml"].as_str().unwrap_or_default());
        let now = plan.map(|plan| disks_in(&plan.domain.to_xml()));
        let planned: Vec<DomainDisk> = before.into_iter().chain(now.unwrap_or_default()).collect();
        let made = record.made.iter().filter_map(|made| made.path());
        let ours: HashSet<&Path> = planned
            .iter()
            .filter_map(|disk| disk.path.as_deref().map(Path::new))
            .chain(made)
            .collect();
        let disks = self.libvirt.disks(record.uuid)?.into_iter();
        // What is not there any more, such as a device that the VM had once, or
        // cannot be written to, holds nothing that could be lost.
        let moved = disks.filter(|disk| !disk.read_only).filter_map(|disk| {
            let to = disk.path.filter(|path| {
                let path = Path::new(path);
                !ours.contains(path) && path.symlink_metadata().is_ok()
            })?;
            let mut planned = planned.iter();
            let was = planned.find(|planned| planned.target == disk.target)?;
            Some(Moved {
                disk: name_of(&disk.target, &kept, plan),
                from: was.path.clone()?,
                target: disk.target,
                to,
            })
        });
        Ok(moved.collect())
    }

    /// What has happened to a disk, and what to do about it. Without `--base`,
    /// what was written would go down into the image.
    pub(crate) fn explained(&self, record: &Record, moved: &Moved) -> Result<Failure> {
        let Moved {
            disk,
            target,
            from,
            to,
        } = moved;
        let (uuid, address) = (record.uuid, self.libvirt.address()?);
        Ok(Failure::new(format!(
            "disk {disk}: its domain writes to {to}, and no more to {from}, which was made for it: \
             somebody has taken a snapshot of it, or copied it"
        ))
        .help(format!(
            "what the guest has written since is only there; to bring it back, say virsh -c \
             '{address}' blockcommit {uuid} {target} --base '{from}' --active --pivot while the VM \
             runs (virsh -c '{address}' start {uuid} starts it); to give it up, disklet down {}",
            record.full_name()
        )))
    }
}

/// What the manifest calls the disk at a target.
fn name_of(target: &str, kept: &Value, plan: Option<&Plan>) -> String {
    let none = Vec::new();
    let mut kept = kept["disks"].as_array().unwrap_or(&none).iter();
    let kept = kept.find(|disk| disk["target"] == target);
    let kept = kept.and_then(|disk| disk["name"].as_str());
    let now = || {
        let mut disks = plan.into_iter().flat_map(|plan| &plan.disks);
        let disk = disks.find(|disk| disk.target.name() == target)?;
        Some(disk.name.as_str())
    };
    kept.or_else(now).unwrap_or(target).to_owned()
}
