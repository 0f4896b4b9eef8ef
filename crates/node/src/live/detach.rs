//! A disk less for a VM that runs.

use std::time::{Duration, Instant};

use disklet::disks::DetachArgs;
use disklet_core::live::{self, RunningDisk, RunningVm};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Meant, kept, refused, shown};
use crate::cut::{self, Cut};
use crate::executor::ask_to_let_go;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::libvirt::{Event, Events, Libvirt};
use crate::record::{Change, Held, Record};
use crate::verbs::{Node, lost_meanwhile};

pub(super) fn detach(args: &DetachArgs) -> Result<String> {
    let meant = Meant::find(&args.vm)?;
    let name = meant.record.full_name();
    let (libvirt, events) = Libvirt::open_listening(args.vm.libvirt.connect.as_deref())?;
    libvirt.tell_of_devices(&events)?;
    interrupt::tell(events.sender.clone());
    let node = meant.node(&libvirt);
    let disk = detach_from(&node, &meant, &events, args).map_err(|failure| failure.of(&name))?;
    let words = format!(
        "has let go of disk {}",
        disk["name"].as_str().unwrap_or("-")
    );
    Ok(shown(args.vm.output, &name, &words, &disk))
}

fn detach_from(
    node: &Node<'_>,
    meant: &Meant,
    events: &Events,
    args: &DetachArgs,
) -> Result<Value> {
    let (held, record) = node.hold_running(&meant.record)?;
    let (vm, kept) = node.running_vm(&record)?;
    let disk = match vm.disk(&args.disk) {
        Ok(disk) => disk,
        // The guest let go of it after all, and what was left was just freed.
        Err(refusal) => match begun(&meant.record, &args.disk) {
            Some(name) => return Ok(json!({"name": name, "attached": false})),
            None => return Err(refused(&refusal)),
        },
    };
    let of_disk = |failure: Failure| failure.of(&format!("disk {}", disk.in_words()));
    let mut shown = kept["disks"].as_array().into_iter().flatten();
    let view = shown.find(|view| view["name"] == disk.name.as_str());
    let view = view.cloned().unwrap_or_default();
    let outcome = node
        .ask_to_detach(&held, &vm, disk)
        .and_then(|()| until_gone(node, events, vm.uuid, &disk.target, args.timeout));
    if !node.libvirt.is_alive() {
        return Err(outcome.map_or_else(lost_meanwhile, |()| Failure::new("libvirt has gone away")));
    }
    outcome.map_err(of_disk)?;
    cut::boundary(Cut::Done);
    node.settle(&held)?;
    Ok(view)
}

impl Node<'_> {
    /// Asks the guest to let go of a disk; that it does is told later.
    pub(crate) fn ask_to_detach(
        &self,
        held: &Held,
        vm: &RunningVm,
        disk: &RunningDisk,
    ) -> Result<()> {
        live::demand_detachable(vm, disk).map_err(|refusal| refused(&refusal))?;
        let gone = || Failure::new("the VM is gone");
        let record = held.read()?.ok_or_else(gone)?;
        let plan = self.kept_plan(record.uuid).unwrap_or_default();
        let mut shown = plan["disks"].as_array().into_iter().flatten();
        let view = shown.find(|view| view["name"] == disk.name.as_str());
        self.intend_detach(held, record, disk, view.unwrap_or(&Value::Null))?;
        cut::boundary(Cut::LettingGo);
        ask_to_let_go(self.libvirt, vm.uuid, &disk.target)
    }

    /// Disks that are wanted again keep what the guest wrote, whenever it lets go of them, and
    /// the right to what that stands on.
    pub(crate) fn keep_volumes_of(
        &self,
        held: &Held,
        mut record: Record,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Record> {
        let before = record.clone();
        for change in &mut record.changes {
            if let Change::Detach { name, made, .. } = change
                && is_wanted(name)
            {
                made.retain(|made| !made.is_volume() && !made.is_lease());
            }
        }
        if record != before {
            held.write(&record)?;
        }
        Ok(record)
    }

    /// Writes down what goes with the disk, unless that was done before.
    fn intend_detach(
        &self,
        held: &Held,
        mut record: Record,
        disk: &RunningDisk,
        view: &Value,
    ) -> Result<()> {
        let mut begun = record.changes.iter();
        if begun.any(|begun| begun.detaches(&disk.name)) {
            return Ok(());
        }
        record.changes.push(Change::Detach {
            name: disk.name.clone(),
            target: disk.target.clone(),
            made: Self::things_of(view, &record),
            promised: kept::promised(&json!({"disks": [view]}), self.config),
        });
        held.write(&record)
    }
}

/// The disk that a detach was begun of before.
fn begun<'r>(record: &'r Record, wanted: &str) -> Option<&'r str> {
    record.changes.iter().find_map(|change| match change {
        Change::Detach { name, target, .. } if name == wanted || target == wanted => {
            Some(name.as_str())
        }
        _ => None,
    })
}

/// Waits until a guest has let go of a disk. libvirt tells; nothing is asked
/// again and again.
fn until_gone(
    node: &Node<'_>,
    events: &Events,
    uuid: Uuid,
    target: &str,
    patience: Duration,
) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        if node.libvirt.is_running(uuid)? != Some(true)
            || node.libvirt.disk_at(uuid, target)?.is_none()
        {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        match events.receiver.recv_timeout(left) {
            Ok(Event::Kept(whose)) if whose == uuid => {
                return Err(Failure::new("the guest refuses to let go of it").help(AGAIN));
            }
            Ok(Event::Interrupted) => {
                return Err(Failure::cancelled_but(
                    "the guest was asked to let go of the disk, and may still do so",
                ));
            }
            Ok(Event::Lost) => return Err(Failure::new("libvirt has gone away meanwhile")),
            // Whatever happened, a look tells.
            Ok(_) => {}
            Err(_) => {
                return Err(Failure::new(format!(
                    "the guest has not let go of it within {} seconds",
                    patience.as_secs()
                ))
                .help(AGAIN));
            }
        }
    }
}

const AGAIN: &str = "the disk stays, as does all that was made for it: unmount it in the guest, and say it again; a guest that has not booted yet, or has no driver for hot-plug, does not answer";
