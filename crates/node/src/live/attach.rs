//! A disk for a VM that runs.

use std::fs::File;

use disklet::disks::AttachArgs;
use disklet_block::convert::Watch;
use disklet_core::plan::Plan;
use disklet_core::text::Reveal;
use serde_json::Value;

use super::{Meant, shown};
use crate::executor::{is_needless, is_there, made_by};
use crate::failure::{Failure, Result};
use crate::interrupt::UntilInterrupted;
use crate::libvirt::Libvirt;
use crate::plans::{Planned, Request};
use crate::record::{Change, Held, Made, Record};
use crate::taken::refuse_overlapping;
use crate::verbs::{Node, lost_meanwhile};

pub(super) fn attach(args: &AttachArgs) -> Result<String> {
    let meant = Meant::find(&args.vm)?;
    let name = meant.record.full_name();
    let libvirt = Libvirt::open(args.vm.libvirt.connect.as_deref())?;
    let node = meant.node(&libvirt);
    let of_vm = |failure: Failure| failure.of(&name);
    // Nobody waits for a VM whose image is being fetched.
    let (held, record) = node.hold_running(&meant.record).map_err(of_vm)?;
    let (vm, known) = node.running_vm(&record).map_err(of_vm)?;
    drop(held);
    let Planned { plans, images, .. } = Request::read_disk(args, vm)?.plan()?;
    let Some(plan) = plans.first() else {
        return Err(Failure::already_told());
    };
    let (held, record) = node.hold_running(&meant.record).map_err(of_vm)?;
    if node.running_vm(&record).map_err(of_vm)?.1["disks"] != known["disks"] {
        return Err(of_vm(
            Failure::new("its disks have changed meanwhile").help("say it again"),
        ));
    }
    let disk = view_of(plan)?;
    if args.dry_run {
        return Ok(steps_of(plan));
    }
    node.attach(plan, &held, disk.clone(), &UntilInterrupted)
        .map_err(of_vm)?;
    // The record names the image from here on.
    drop(images);
    let field = |key: &str| disk[key].as_str().unwrap_or_default().to_owned();
    let words = format!("has disk {} at {}", field("name"), field("target"));
    Ok(shown(args.vm.output, &name, &words, &disk))
}

fn steps_of(plan: &Plan) -> String {
    let steps = plan.steps.iter().enumerate();
    let lines = steps.map(|(nth, step)| format!("{}. {step}\n", nth + 1));
    lines.collect()
}

/// The disk as plans show it.
pub(crate) fn view_of(plan: &Plan) -> Result<Value> {
    let view = serde_json::to_value(plan.view(Reveal::Redact));
    let view =
        view.map_err(|error| Failure::new("the disk cannot be written down").because(error))?;
    let mut disk = view["disks"][0].clone();
    disk["attached"] = true.into();
    Ok(disk)
}

impl Node<'_> {
    /// Attaches the disk of a plan. If that fails, nothing of it is left.
    pub(crate) fn attach(
        &self,
        plan: &Plan,
        held: &Held,
        disk: Value,
        watch: &dyn Watch,
    ) -> Result<()> {
        let shared = self.records.hold_shared_things()?;
        self.intend_disk(plan, held, disk, shared)?;
        let outcome = self.carry_out(plan, held, watch, |_| true);
        // QEMU has opened the disk, or will not.
        let outcome = outcome.and(self.forget_keys(plan));
        if !self.libvirt.is_alive() {
            return outcome.map_err(lost_meanwhile);
        }
        let settled = self.settle(held);
        match outcome {
            Ok(()) => settled,
            Err(failure) => Err(match settled {
                Ok(()) => failure,
                Err(undoing) => failure.and_not_undone(&undoing),
            }),
        }
    }

    /// Writes down what is about to be made, unless something is in the way.
    fn intend_disk(&self, plan: &Plan, held: &Held, disk: Value, _shared: File) -> Result<()> {
        let Some(mut record) = held.read()? else {
            return Err(Failure::new("the VM is gone"));
        };
        let made = self.new_things(plan, &record);
        for made in &made {
            if let Some(what) = is_there(self.libvirt, made)? {
                return Err(Failure::new(format!(
                    "{what} is there already and was not made for this VM"
                ))
                .help("remove it if nobody needs it, or give the disk another name"));
            }
        }
        for disk in &plan.disks {
            let target = disk.target.name();
            if self.libvirt.disk_at(record.uuid, &target)?.is_some() {
                return Err(Failure::new(format!(
                    "somebody else has put a disk into the domain at {target}"
                ))
                .help("take it out with virsh detach-disk, or give the disk another target"));
            }
        }
        let all: Vec<Made> = record.made.iter().chain(&made).cloned().collect();
        refuse_overlapping(plan, &all)?;
        self.refuse_layered(plan, &all)?;
        self.refuse_taken(plan, &made)?;
        self.refuse_beyond_pools(plan, &record.promised)?;
        for share in &plan.pools {
            let promised = record.promised.entry(share.path.clone()).or_default();
            *promised += share.promised_bytes.as_bytes();
        }
        let domain = &plan.domain;
        // Before the domain: it uses them, so they go after it.
        let is_domain = |made: &Made| matches!(made, Made::Domain { .. });
        let end = record.made.iter().position(is_domain);
        let end = end.unwrap_or(record.made.len());
        record.made.splice(end..end, made.iter().cloned());
        record.take(&made);
        record.begin(&made);
        record.images.extend(plan.images().map(|it| it.to_string()));
        let names = plan.named_images();
        let names =
            names.map(|(image, digest)| (image.as_written().to_owned(), digest.to_string()));
        record.image_names.extend(names);
        record.changes.push(Change::Attach {
            disk,
            xml: domain.disks.iter().map(|it| domain.disk_xml(it)).collect(),
            made,
        });
        held.write(&record)
    }

    /// What is there because of the disk alone.
    fn new_things(&self, plan: &Plan, record: &Record) -> Vec<Made> {
        let needed = plan.steps.iter().filter(|step| !is_needless(plan, step));
        let mut made: Vec<Made> = needed.filter_map(made_by).collect();
        self.number_devices(&mut made);
        if self.leases.is_none() {
            made.iter_mut().for_each(Made::be_known_here_only);
        }
        let is_new = |made: &Made| match made {
            // One for each disk that has it.
            Made::Lease { .. } => true,
            made => !record.made.iter().any(|there| there.is_at(made)),
        };
        made.retain(is_new);
        made
    }
}
