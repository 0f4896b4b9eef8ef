//! Storage that several disks of the input would use, one of them for writing.

use std::collections::HashMap;

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::{Meta, VmPod, Volume};
use crate::plan::{Access, Later, PlannedDisk, Source, Storage};

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
/// agree to share. What two VMs only read, they may share, unless a claim of one
/// pod leads to it.
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
    users: HashMap<(String, Manner), Vec<User<'p>>>,
    /// The first of those whose storage has a name.
    named: HashMap<(String, Manner), User<'p>>,
}

/// How a storage is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Manner {
    access: Access,
    /// Its claim is for one pod.
    alone: bool,
}

impl Manner {
    fn agrees_with(self, other: Self) -> bool {
        self.access.agrees_with(other.access) && !self.alone && !other.alone
    }

    fn all() -> impl Iterator<Item = Self> {
        let both = |access| [true, false].map(|alone| Self { access, alone });
        Access::ALL.into_iter().flat_map(both)
    }
}

impl<'p> Known<'p> {
    fn disturbed_by(&self, user: &User<'p>) -> Option<User<'p>> {
        let keys = user.keys().into_iter();
        let mut found = keys.flat_map(|key| {
            let ways = user.disagreeing().map(move |manner| (key.clone(), manner));
            ways.filter_map(|way| self.users.get(&way)).flatten()
        });
        found.find(|other| user.disturbs(other)).copied()
    }

    fn perhaps_disturbed_by(&self, user: &User<'p>) -> Option<User<'p>> {
        let name = user.disk.storage.as_ref()?.name();
        let mut ways = user.disagreeing().map(|manner| (name.clone(), manner));
        ways.find_map(|way| self.named.get(&way).filter(|other| user.may_disturb(other)))
            .copied()
    }

    fn add(&mut self, user: User<'p>) {
        let manner = user.manner();
        for key in user.keys() {
            self.users.entry((key, manner)).or_default().push(user);
        }
        if let Some(storage) = &user.disk.storage {
            self.named.entry((storage.name(), manner)).or_insert(user);
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

    fn manner(&self) -> Manner {
        let claim = self.disk.claim.as_ref();
        Manner {
            access: self.disk.access,
            alone: claim.is_some_and(|claim| claim.for_one_pod),
        }
    }

    fn has_claim_of(&self, other: &Self) -> bool {
        self.claim().is_some() && self.claim() == other.claim()
    }

    /// Disks of one VM are those of one pod.
    fn agrees_with(&self, other: &Self) -> bool {
        match self.owner.key() == other.owner.key() {
            true => self.disk.access.agrees_with(other.disk.access),
            false => self.manner().agrees_with(other.manner()),
        }
    }

    fn disturbs(&self, other: &Self) -> bool {
        if self.agrees_with(other) {
            return false;
        }
        let storages = self.disk.storage.as_ref().zip(other.disk.storage.as_ref());
        self.has_claim_of(other) || storages.is_some_and(|(ours, theirs)| ours.is(theirs))
    }

    /// The ways of use that do not go with this one.
    fn disagreeing(&self) -> impl Iterator<Item = Manner> + use<> {
        let manner = self.manner();
        Manner::all().filter(move |other| !manner.agrees_with(*other))
    }

    fn may_disturb(&self, other: &Self) -> bool {
        let storages = self.disk.storage.as_ref().zip(other.disk.storage.as_ref());
        !self.agrees_with(other) && storages.is_some_and(|(ours, theirs)| ours.may_be(theirs))
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
        let named = |owner: &Meta| match self.owner.namespace == other.owner.namespace {
            true => owner.name.to_string(),
            false => format!("{}/{}", owner.namespace, owner.name),
        };
        let (ours, theirs) = (named(self.owner), named(other.owner));
        let who = match self.kind == other.kind {
            true => format!("{}s {theirs} and {ours}", self.kind),
            false => format!("{} {theirs} and {} {ours}", other.kind, self.kind),
        };
        let first = other.place;
        if self.disk.access.agrees_with(other.disk.access) {
            return Diagnostic::error(
                place,
                format!("two VMs would use {storage}, and a claim says that it is for one pod"),
            )
            .found(format!("{who}; {}", self.claims_for_one_pod(other)))
            .help(format!("give each its own storage, or have the claim say ReadWriteMany or ReadOnlyMany instead; the first is at {first}"));
        }
        let nodes = match self.may_be_on_another_node_than(other) {
            true => "; volumes of two nodes name them in nodeAffinity",
            false => "",
        };
        let help = match (&self.disk.source, self.kind) {
            (Source::Later(Later::Identity { .. }), _) => "give each its own identity",
            (_, "VM") => {
                "give each its own storage, or have all say access-mode: read-shared, or write-shared"
            }
            _ => "give each its own storage, or make the volumes read-only",
        };
        Diagnostic::error(
            place,
            format!("two VMs would use {storage}, and one of them writes"),
        )
        .found(who)
        .help(format!("{help}{nodes}; the first is at {first}"))
    }

    /// Whether volumes of two claims lead to one path, and could say of which node.
    fn may_be_on_another_node_than(&self, other: &Self) -> bool {
        let is_of_node = |user: &Self| matches!(user.disk.storage, Some(Storage::OfNode { .. }));
        let claimed = [self, other].iter().all(|user| user.claim().is_some());
        claimed && !self.has_claim_of(other) && is_of_node(self) && is_of_node(other)
    }

    /// The claims of both that are for one pod.
    fn claims_for_one_pod(&self, other: &Self) -> String {
        let alone = [other, self].into_iter().filter(|user| user.manner().alone);
        let mut claims: Vec<_> = alone.filter_map(Self::claim).collect();
        claims.dedup();
        format!("claim {} is ReadWriteOncePod", claims.join(" and claim "))
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
