//! A disk of a VM that runs gets larger.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use disklet::disks::ResizeArgs;
use disklet_block::convert::Watch;
use disklet_core::live::{self, Growth, RunningDisk, Seen};
use disklet_core::units::ByteSize;
use serde_json::Value;

use super::{Meant, kept, refused, shown};
use crate::cut::{self, Cut};
use crate::executor::enlarge;
use crate::failure::{Failure, Result};
use crate::interrupt::UntilInterrupted;
use crate::libvirt::Libvirt;
use crate::record::{Change, Held, Record};
use crate::verbs::{Node, lost_meanwhile};

pub(super) fn resize(args: &ResizeArgs) -> Result<String> {
    let meant = Meant::find(&args.vm)?;
    let name = meant.record.full_name();
    let libvirt = Libvirt::open(args.vm.libvirt.connect.as_deref())?;
    let node = meant.node(&libvirt);
    let (words, disk) = grow(&node, &meant, args).map_err(|failure| failure.of(&name))?;
    Ok(shown(args.vm.output, &name, &words, &disk))
}

fn grow(node: &Node<'_>, meant: &Meant, args: &ResizeArgs) -> Result<(String, Value)> {
    let (held, record) = node.hold_running(&meant.record)?;
    let (vm, _) = node.running_vm(&record)?;
    let disk = vm.disk(&args.disk).map_err(|refusal| refused(&refusal))?;
    let words = disk.in_words();
    let of_disk = |failure: Failure| failure.of(&format!("disk {words}"));
    let seen = node.seen(&record, disk).map_err(of_disk)?;
    let growth = live::resize(disk, args.size, seen).map_err(|it| of_disk(refused(&it)))?;
    let size = match growth {
        Growth::Already(size) => size,
        Growth::To(size) => node
            .grow(&held, record, disk, size, &UntilInterrupted)
            .map_err(of_disk)?,
        Growth::AsItsUnit => node
            .grow_as_its_unit(&record, disk, seen.guest, &UntilInterrupted)
            .map_err(of_disk)?,
    };
    let kept = node.kept_plan(vm.uuid).unwrap_or_default();
    let mut disks = kept["disks"].as_array().into_iter().flatten();
    let view = disks.find(|view| view["name"] == disk.name.as_str());
    let told = match size == seen.guest {
        true => format!("has disk {words} of {size} already"),
        false => format!("has disk {words} of {size}"),
    };
    Ok((told, view.cloned().unwrap_or_default()))
}

impl Node<'_> {
    /// Makes a disk as large as is wanted; how large it then is.
    pub(crate) fn grow_to(
        &self,
        held: &Held,
        record: Record,
        disk: &RunningDisk,
        wanted: ByteSize,
        watch: &dyn Watch,
    ) -> Result<ByteSize> {
        let seen = self.seen(&record, disk)?;
        match live::resize(disk, Some(wanted), seen).map_err(|refusal| refused(&refusal))? {
            Growth::Already(size) => Ok(size),
            Growth::To(size) => self.grow(held, record, disk, size, watch),
            Growth::AsItsUnit => self.grow_as_its_unit(&record, disk, seen.guest, watch),
        }
    }

    fn seen(&self, record: &Record, disk: &RunningDisk) -> Result<Seen> {
        let guest = self.libvirt.capacity(record.uuid, &disk.target)?;
        // What is no device is asked for by nobody.
        let device = disk.source.exposed_at.as_deref();
        let device = device.and_then(|path| File::open(path).ok()?.seek(SeekFrom::End(0)).ok());
        Ok(Seen {
            guest: ByteSize::from_bytes(guest),
            device: device.map(ByteSize::from_bytes),
        })
    }

    fn grow(
        &self,
        held: &Held,
        mut record: Record,
        disk: &RunningDisk,
        size: ByteSize,
        watch: &dyn Watch,
    ) -> Result<ByteSize> {
        let uuid = record.uuid;
        let shared = self.records.hold_shared_things()?;
        self.promise_more(&mut record, &disk.name, size)?;
        record.changes.push(Change::Resize {
            name: disk.name.clone(),
            target: disk.target.clone(),
            size: size.as_bytes(),
        });
        held.write(&record)?;
        drop(shared);
        cut::boundary(Cut::Growing);
        let outcome = enlarge(self.libvirt, uuid, &disk.target, size, watch);
        if !self.libvirt.is_alive() {
            return Err(
                outcome.map_or_else(lost_meanwhile, |()| Failure::new("libvirt has gone away"))
            );
        }
        cut::boundary(Cut::Done);
        let settled = self.settle(held);
        outcome.and(settled)?;
        Ok(size)
    }

    /// Told the size that it has, QEMU asks the target for that of the unit, and tells the guest.
    /// Nothing is begun that would have to be finished: it may be asked at any time.
    fn grow_as_its_unit(
        &self,
        record: &Record,
        disk: &RunningDisk,
        before: ByteSize,
        watch: &dyn Watch,
    ) -> Result<ByteSize> {
        let (uuid, target) = (record.uuid, &disk.target);
        enlarge(self.libvirt, uuid, target, before, watch).map_err(|failure| {
            match failure.to_string().contains("Cannot grow iSCSI devices") {
                true => Failure::new(format!(
                    "its unit has less by now than the {before} that the guest sees"
                ))
                .help("make the unit as large as it was: what is beyond its end cannot be read or written"),
                false => failure,
            }
        })?;
        let size = self.libvirt.capacity(uuid, target)?;
        if size > before.as_bytes()
            && let Some(mut plan) = self.kept_plan(uuid)
        {
            kept::grow(&mut plan, &disk.name, size);
            self.keep_view(uuid, &plan)?;
        }
        Ok(ByteSize::from_bytes(size))
    }

    /// What a file of ours grows by is promised by its pool, or refused.
    fn promise_more(&self, record: &mut Record, disk: &str, size: ByteSize) -> Result<()> {
        let mut plan = self.kept_plan(record.uuid).unwrap_or_default();
        let before = kept::promised(&plan, self.config);
        kept::grow(&mut plan, disk, size.as_bytes());
        self.promise(record, &before, &plan)
    }
}
