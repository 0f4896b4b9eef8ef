//! Storage that several disks of the input would use, one of them for writing.

use std::collections::HashMap;

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::{Meta, VmPod, Volume};
use crate::plan::{Access, PlannedDisk, Source, Storage};

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
    let mut known = Known::default();
    for user in all {
        if let Some(other) = known.disturbed_by(&user) {
            diags.push(user.refusal(&other));
        } else if let Some(other) = known.perhaps_disturbed_by(&user) {
            diags.push(user.doubt(&other));
        }
        known.add(user);
    }
}

/// Users by what they may have in common and by how they use it: of thousands
/// that read one storage, none is compared with the others.
#[derive(Default)]
struct Known<'p> {
    users: HashMap<(String, Access), Vec<User<'p>>>,
    /// The first of those whose storage has a name.
    named: HashMap<(String, Access), User<'p>>,
}

impl<'p> Known<'p> {
    fn disturbed_by(&self, user: &User<'p>) -> Option<User<'p>> {
        let keys = user.keys().into_iter();
        let mut found = keys.flat_map(|key| {
            let ways = user.disagreeing().map(move |access| (key.clone(), access));
            ways.filter_map(|way| self.users.get(&way)).flatten()
        });
        found.find(|other| user.disturbs(other)).copied()
    }

    fn perhaps_disturbed_by(&self, user: &User<'p>) -> Option<User<'p>> {
        let name = user.disk.storage.as_ref()?.name();
        let mut ways = user.disagreeing().map(|access| (name.clone(), access));
        ways.find_map(|way| self.named.get(&way).filter(|other| user.may_disturb(other)))
            .copied()
    }

    fn add(&mut self, user: User<'p>) {
        let access = user.disk.access;
        for key in user.keys() {
            self.users.entry((key, access)).or_default().push(user);
        }
        if let Some(storage) = &user.disk.storage {
            self.named.entry((storage.name(), access)).or_insert(user);
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

    /// The ways of use that do not go with this one.
    fn disagreeing(&self) -> impl Iterator<Item = Access> + use<> {
        let access = self.disk.access;
        Access::ALL
            .into_iter()
            .filter(move |other| !access.agrees_with(*other))
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
