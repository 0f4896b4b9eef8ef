//! The plan that a VM was last prepared by, kept beside its record.

use std::fs;
use std::io::{self, Write};

use disklet_block::new_file::replace_file;
use disklet_core::plan::{Plan, PlannedDisk, Source};
use disklet_core::text::Reveal;
use disklet_core::units::ByteSize;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::differences::differences;
use crate::executor::is_cloned;
use crate::failure::{Failure, Result, on};
use crate::verbs::Node;

impl Node<'_> {
    /// For whoever describes the VM later; secrets are not in it.
    pub(crate) fn keep_plan(&self, plan: &Plan) -> Result<()> {
        self.keep_view(plan.uuid, &plan.view(Reveal::Redact))
    }

    /// The same for one that was kept before.
    pub(crate) fn keep_view(&self, uuid: Uuid, view: &impl Serialize) -> Result<()> {
        let path = self.records.plan_file(uuid);
        let text = serde_json::to_vec(view).map_err(unwritten)?;
        replace_file(&path, &text, 0o600).map_err(|error| on(&path, "written", error))
    }

    /// Tells what a VM that runs has otherwise than its manifest says now. The
    /// plan that it runs by stays the one that is kept.
    pub(crate) fn tell_differences(&self, plan: &Plan) -> Result<()> {
        let Some(kept) = self.kept_plan(plan.uuid) else {
            return Ok(());
        };
        let now = serde_json::to_value(plan.view(Reveal::Redact)).map_err(unwritten)?;
        for name in attached_beside(&kept, |name| plan.disks.iter().any(|it| it.name == name)) {
            let _ = writeln!(
                io::stderr(),
                "notice: {}/{} has disk {name}, which was attached while it ran and is not in the \
                 manifests\n  help: write it there to have it at the next start; disklet disk \
                 detach takes it away",
                plan.namespace,
                plan.name
            );
        }
        let differing = differences(&kept, &now);
        if !differing.is_empty() {
            let _ = writeln!(
                io::stderr(),
                "notice: {}/{} runs as it was started; what differs now takes effect only after \
                 disklet down and up: {}\n  help: down removes its root disk and the volumes that \
                 were made for it; --keep-volumes keeps them",
                plan.namespace,
                plan.name,
                differing.join(", ")
            );
        }
        Ok(())
    }

    /// Tells of disks that were attached while the VM ran, and that it is started
    /// without.
    pub(crate) fn tell_left_out(&self, plan: &Plan) {
        let kept = self.kept_plan(plan.uuid).unwrap_or_default();
        for name in attached_beside(&kept, |name| plan.disks.iter().any(|it| it.name == name)) {
            let _ = writeln!(
                io::stderr(),
                "notice: {}/{}: disk {name} was attached while it ran, and is not in the \
                 manifests: it is started without it\n  help: disklet disk attach attaches it \
                 again; what the guest wrote to a volume of its own is kept for that until disklet \
                 down",
                plan.namespace,
                plan.name
            );
        }
    }

    /// A device that has lost what is behind it looks like an empty one. A VM
    /// that had more there would find its data gone.
    pub(crate) fn refuse_emptied(&self, plan: &Plan) -> Result<()> {
        let Some(kept) = self.kept_plan(plan.uuid) else {
            return Ok(());
        };
        for disk in &plan.disks {
            let is_empty = disk.size.known().is_some_and(|size| size.as_bytes() == 0);
            let is_needed = is_empty && !is_cloned(disk);
            let Some(path) = path_of(disk).filter(|_| is_needed) else {
                continue;
            };
            if let Some(before) = size_before(&kept, &disk.name, &path) {
                return Err(Failure::new(format!(
                    "disk {}: {path} is empty now, and had {before} when the VM was last started",
                    disk.name
                ))
                .help("bring back what is behind it, for a loop device with losetup; if the data is not needed, take the volume out of the manifest, or say disklet down first"));
            }
        }
        Ok(())
    }

    /// The plan that a VM was last prepared by.
    pub(crate) fn kept_plan(&self, uuid: Uuid) -> Option<Value> {
        let text = fs::read(self.records.plan_file(uuid)).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Disks that came while a VM ran, and that others do not know.
fn attached_beside(kept: &Value, is_known: impl Fn(&str) -> bool) -> Vec<String> {
    let disks = kept["disks"].as_array().into_iter().flatten();
    let attached = disks.filter(|disk| disk["attached"] == true);
    let names = attached.filter_map(|disk| disk["name"].as_str());
    let names = names.filter(|name| !is_known(name));
    names.map(str::to_owned).collect()
}

fn unwritten(error: serde_json::Error) -> Failure {
    Failure::new("the plan cannot be written").because(error)
}

/// Where on the machine a disk is that is there without the VM.
fn path_of(disk: &PlannedDisk) -> Option<String> {
    match &disk.source {
        Source::RawDevice(at) | Source::BlockClaim(at) | Source::DiskImage { file: at, .. } => {
            Some(at.from.to_string())
        }
        Source::PersistentRoot { device, .. } => Some(device.from.to_string()),
        Source::Image { .. }
        | Source::NewVolume(_)
        | Source::Network { .. }
        | Source::Later(_)
        | Source::CloudInit { .. } => None,
    }
}

/// How large a disk was, unless it was empty or somewhere else.
fn size_before(kept: &Value, name: &str, path: &str) -> Option<ByteSize> {
    let disks = kept["disks"].as_array()?;
    let disk = disks.iter().find(|disk| disk["name"] == name)?;
    let size = disk["size"].as_u64().filter(|size| *size > 0)?;
    (disk["source"]["path"] == path).then(|| ByteSize::from_bytes(size))
}
