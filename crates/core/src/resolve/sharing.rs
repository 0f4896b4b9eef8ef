//! Storage that several disks of the input would use, one of them for writing.

use std::collections::HashMap;

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::{Meta, VmPod, Volume};
use crate::plan::{PlannedDisk, Source, Storage};

/// A disk and whose it is.
#[derive(Clone, Copy)]
pub(super) struct User<'p> {
    pub(super) owner: &'p Meta,
    /// What the owner is: a pod or a VM.
    pub(super) kind: &'static str,
    /// Where the disk is written.
    pub(super) place: &'p Place,
    /// Where its serial number comes from.
    pub(super) serial: &'p Place,
    pub(super) disk: &'p PlannedDisk,
}

/// Whoever writes to a storage must be alone with it, unless all who use it
/// agree to share. What two VMs only read, they may share.
pub(super) fn refuse_two_users<'p>(all: impl Iterator<Item = User<'p>>, diags: &mut Diagnostics) {
    let mut users: HashMap<String, Vec<User<'p>>> = HashMap::new();
    for user in all {
        let keys = user.keys();
        let others = || keys.iter().filter_map(|key| users.get(key)).flatten();
        if let Some(other) = others().find(|other| user.disturbs(other)) {
            diags.push(user.refusal(other));
        } else if let Some(other) = others().find(|other| user.may_disturb(other)) {
            diags.push(user.doubt(other));
        }
        for key in keys {
            users.entry(key).or_default().push(user);
        }
    }
}

impl<'p> User<'p> {
    /// A disk of a VM pod.
    pub(super) fn of_pod(pod: &'p VmPod, disk: &'p PlannedDisk) -> Self {
        let place = place_in(pod, disk);
        Self {
            owner: &pod.meta,
            kind: "pod",
            place,
            serial: place,
            disk,
        }
    }

    /// Words of which two users of one storage have at least one in common.
    fn keys(&self) -> Vec<String> {
        let storage = self.disk.storage.as_ref();
        let mut keys = storage.map_or(Vec::new(), Storage::keys);
        keys.extend(self.claim().map(|claim| format!("claim {claim}")));
        keys
    }

    fn claim(&self) -> Option<String> {
        let claim = &self.disk.claim.as_ref()?.claim;
        Some(format!("{claim} of namespace {}", self.owner.namespace))
    }

    fn has_claim_of(&self, other: &Self) -> bool {
        self.claim().is_some() && self.claim() == other.claim()
    }

    fn disturbs(&self, other: &Self) -> bool {
        if self.disk.access.agrees_with(other.disk.access) {
            return false;
        }
        let storages = self.disk.storage.as_ref().zip(other.disk.storage.as_ref());
        self.has_claim_of(other) || storages.is_some_and(|(ours, theirs)| ours.is(theirs))
    }

    fn may_disturb(&self, other: &Self) -> bool {
        let storages = self.disk.storage.as_ref().zip(other.disk.storage.as_ref());
        let agree = self.disk.access.agrees_with(other.disk.access);
        !agree && storages.is_some_and(|(ours, theirs)| ours.may_be(theirs))
    }

    /// A cluster tells who it is only when it is asked.
    fn doubt(&self, other: &Self) -> Diagnostic {
        let storage = self.disk.storage.as_ref();
        let name = storage.map(Storage::name).unwrap_or_default();
        Diagnostic::notice(
            self.place,
            format!("{name} is used by two disks, of clusters that name no server in common"),
        )
        .found(format!(
            "{} {}, disk {}, and {} {}, disk {}",
            other.kind,
            other.owner.name,
            other.disk.name,
            self.kind,
            self.owner.name,
            self.disk.name
        ))
        .help(format!(
            "if it is one cluster, name its servers alike: what two VMs write is refused then; the first is at {}",
            other.place
        ))
    }

    fn refusal(&self, other: &Self) -> Diagnostic {
        let storage = match (self.claim(), &self.disk.storage) {
            (Some(claim), _) if self.has_claim_of(other) => format!("claim {claim}"),
            (_, Some(storage)) => storage.to_string(),
            (_, None) => String::new(),
        };
        let place = self.place;
        if self.owner.key() == other.owner.key() {
            return Diagnostic::error(place, format!("two disks lead to one storage, {storage}"))
                .found(format!("disks {} and {}", other.disk.name, self.disk.name))
                .help(format!(
                    "remove one of the two; the first is at {}",
                    other.place
                ));
        }
        let who = match self.kind == other.kind {
            true => format!(
                "{}s {} and {}",
                self.kind, other.owner.name, self.owner.name
            ),
            false => format!(
                "{} {} and {} {}",
                other.kind, other.owner.name, self.kind, self.owner.name
            ),
        };
        Diagnostic::error(
            place,
            format!("two VMs would use {storage}, and one of them writes"),
        )
        .found(who)
        .help(format!(
            "give each its own storage, or {}; the first is at {}",
            match self.kind {
                "VM" => "have all say access-mode: read-shared, or write-shared",
                _ => "make the volumes read-only",
            },
            other.place
        ))
    }
}

/// Where a disk's volume stands in its pod.
fn place_in<'p>(pod: &'p VmPod, disk: &PlannedDisk) -> &'p Place {
    let root = match disk.source {
        Source::PersistentRoot { .. } => pod.container.root_device(),
        _ => None,
    };
    let named = |volume: &&Volume| match root {
        Some(device) => volume.name.value == device.volume.value,
        None => PlannedDisk::name_of_volume(&volume.name.value) == disk.name,
    };
    let volume = pod.volumes.iter().find(named);
    volume.map_or(&pod.meta.place, |volume| &volume.source.place)
}
