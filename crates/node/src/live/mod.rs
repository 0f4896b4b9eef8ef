//! `disk`: attaching, detaching and growing disks of VMs that run.
//!
//! What is begun is in the VM's record first. Whether it has been done, the
//! domain tells: [`Node::settle`] finishes or undoes it, after a crash as well.

mod attach;
mod detach;
mod kept;
mod promised;
mod resize;
mod settle;

pub(crate) use attach::view_of;
pub(crate) use kept::remove;

use disklet::disks::{DiskCommand, DiskOutput, VmArgs};
use disklet_core::config::Config;
use disklet_core::live::{Refusal, RunningVm};
use disklet_core::names::{Namespace, ObjectName};
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Held, Record, Records};
use crate::verbs::Node;
use crate::vms::{configuration, refuse_pods, select};

pub(crate) fn disk(command: &DiskCommand) -> Result<String> {
    match command {
        DiskCommand::Attach(args) => attach::attach(args),
        DiskCommand::Detach(args) => detach::detach(args),
        DiskCommand::Resize(args) => resize::resize(args),
    }
}

/// The VM that is meant, where its record is, and this machine's configuration.
struct Meant {
    config: Config,
    records: Records,
    record: Record,
}

impl Meant {
    fn find(args: &VmArgs) -> Result<Self> {
        let config = configuration(args.config.as_deref())?;
        let records = Records::of(&config);
        let all = records.list()?;
        let record = select(&all, &args.vm, &args.namespace)?.clone();
        refuse_pods(
            &record,
            "its disks are those of its object: change that, and the guest follows",
        )?;
        Ok(Self {
            config,
            records,
            record,
        })
    }

    /// Who works on it, by hand: neither for a pod nor with the leases of a cluster.
    fn node<'n>(&'n self, libvirt: &'n Libvirt) -> Node<'n> {
        Node {
            libvirt,
            config: &self.config,
            records: &self.records,
            launcher: None,
            leases: None,
        }
    }
}

impl Node<'_> {
    /// Nobody else works on the VM, and it runs; what was begun before is
    /// finished or undone.
    pub(crate) fn hold_running(&self, of: &Record) -> Result<(Held, Record)> {
        let held = self.records.hold(of.uuid)?;
        let gone = || Failure::new("is gone").help("disklet ps lists the VMs there are");
        let record = held.read()?.ok_or_else(gone)?;
        self.libvirt.demand_daemon_of(&record)?;
        self.settle(&held)?;
        if self.libvirt.is_running(record.uuid)? != Some(true) {
            return Err(Failure::new("does not run").help(
                "its disks are those of its manifests: change these, and disklet up starts it",
            ));
        }
        let record = held.read()?.ok_or_else(gone)?;
        Ok((held, record))
    }

    /// What a VM has, by the plan that is kept of it.
    pub(crate) fn running_vm(&self, record: &Record) -> Result<(RunningVm, Value)> {
        let unread = || {
            Failure::new("its plan cannot be read, so its disks are not known")
                .help("disklet down and up make it anew")
        };
        let kept = self.kept_plan(record.uuid).ok_or_else(unread)?;
        let disks = serde_json::from_value(kept["disks"].clone());
        let vm = RunningVm {
            namespace: Namespace::parse(&record.namespace).map_err(|_| unread())?,
            name: ObjectName::parse(&record.name).map_err(|_| unread())?,
            uuid: record.uuid,
            disks: disks.map_err(|error| unread().because(error))?,
        };
        Ok((vm, kept))
    }
}

fn refused(refusal: &Refusal) -> Failure {
    Failure::new(refusal.to_string()).help(refusal.remedy())
}

/// What was done, in the form that is wanted.
fn shown(output: DiskOutput, vm: &str, words: &str, disk: &Value) -> String {
    match output {
        DiskOutput::Text => format!("{vm} {words}\n"),
        DiskOutput::Json => format!("{disk:#}\n"),
    }
}
