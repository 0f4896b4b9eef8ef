//! What a record says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use disklet_core::plan::Plan;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Change;
use super::leased::now;

/// A VM of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The daemon that has its domain.
    pub(crate) libvirt: String,
    /// How far it is.
    pub(crate) phase: Phase,
    /// The UID of the pod that it runs for, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<String>,
    /// How many disks it has.
    pub(crate) disks: usize,
    /// The digests of the images that it uses: they stay in the store.
    #[serde(default)]
    pub(crate) images: Vec<String>,
    /// Which of them each name of an image stood for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) image_names: BTreeMap<String, String>,
    /// What its files may grow to, by the directories of their pools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) promised: BTreeMap<String, u64>,
    /// Leases that somebody has released by force, by their IDs. The VM may still
    /// use what they were for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) released: Vec<String>,
    /// When each lease was taken, by its ID, in seconds since 1970.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) taken: BTreeMap<String, u64>,
    /// What may be there because of it, in the order of making.
    pub(crate) made: Vec<Made>,
    /// Volumes among it that were there as a whole: a guest may have written to them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) whole: BTreeSet<PathBuf>,
    /// What was begun about its disks while it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<Change>,
}

/// How far a VM is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// Its things are being made; no guest has run yet, or what it has written
    /// was given up.
    Preparing,
    /// All is there.
    Ready,
    /// Its guest was let run for a launcher.
    Running,
    /// Only its volumes are there, by the user's wish.
    Kept,
    /// It is being removed.
    Releasing,
}

/// Something that was made for a VM, or was about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum Made {
    /// A file that can be made again at any time.
    File { path: PathBuf },
    /// A file that the guest writes to.
    Volume { path: PathBuf },
    /// A device node of ours for a device of the machine.
    Device {
        path: PathBuf,
        number: String,
        /// Absent in records of old: alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access: Option<String>,
    },
    /// A file of the machine, shown at a path of ours.
    Mount {
        path: PathBuf,
        from: PathBuf,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access: Option<String>,
    },
    /// The right to use storage at a server, for as long as the VM runs.
    Lease {
        storage: String,
        /// Servers that have it; none where its name says that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hosts: Vec<String>,
        access: String,
        /// The Lease object by which all nodes of a cluster know; none where
        /// this record says it all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<String>,
    },
    /// A secret in libvirt's memory.
    Secret { uuid: Uuid },
    /// A pool that libvirt lists; other VMs may use it as well.
    Pool { uuid: Uuid },
    /// A domain.
    Domain { uuid: Uuid },
}

pub(super) const VERSION: u32 = 1;

impl Made {
    /// What another VM could have as well, in words.
    pub(crate) fn shared_thing(&self) -> Option<String> {
        match self {
            Self::Device { number, .. } => Some(format!("device {number}")),
            Self::Mount { from, .. } => Some(from.display().to_string()),
            Self::Lease { storage, .. } => Some(storage.clone()),
            Self::File { .. }
            | Self::Volume { .. }
            | Self::Secret { .. }
            | Self::Pool { .. }
            | Self::Domain { .. } => None,
        }
    }

    /// Where it is, if it is a file, a device or shown as one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path }
            | Self::Volume { path }
            | Self::Device { path, .. }
            | Self::Mount { path, .. } => Some(path),
            Self::Lease { .. } | Self::Secret { .. } | Self::Pool { .. } | Self::Domain { .. } => {
                None
            }
        }
    }

    /// Whether it is a key, which is needed only while QEMU opens a disk.
    pub(crate) fn is_key(&self) -> bool {
        matches!(self, Self::Secret { .. })
    }

    /// Where it is, if it is a volume.
    fn volume(&self) -> Option<PathBuf> {
        match self {
            Self::Volume { path } => Some(path.clone()),
            _ => None,
        }
    }

    /// Whether it is a file that may have what a guest wrote.
    pub(crate) fn is_volume(&self) -> bool {
        matches!(self, Self::Volume { .. })
    }

    /// Whether it is a right to use storage.
    pub(crate) fn is_lease(&self) -> bool {
        matches!(self, Self::Lease { .. })
    }

    /// Where no cluster is, nobody else has to know.
    pub(crate) fn be_known_here_only(&mut self) {
        if let Self::Lease { object, .. } = self {
            *object = None;
        }
    }

    /// The Lease object that a lease is known by in a cluster.
    pub(crate) fn object(&self) -> Option<&str> {
        match self {
            Self::Lease { object, .. } => object.as_deref(),
            _ => None,
        }
    }

    /// The storage that a lease is of.
    pub(crate) fn storage(&self) -> Option<(&str, &[String])> {
        match self {
            Self::Lease { storage, hosts, .. } => Some((storage, hosts)),
            _ => None,
        }
    }

    /// Whether both stand for the same thing of ours, whatever is behind it.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device { path: one, .. }, Self::Device { path: two, .. })
            | (Self::Mount { path: one, .. }, Self::Mount { path: two, .. }) => one == two,
            (
                Self::Lease {
                    storage: one,
                    hosts: one_hosts,
                    access: one_access,
                    ..
                },
                Self::Lease {
                    storage: two,
                    hosts: two_hosts,
                    access: two_access,
                    ..
                },
            ) => (one, one_hosts, one_access) == (two, two_hosts, two_access),
            _ => self == other,
        }
    }
}

impl Record {
    /// The record of a VM that is about to be made.
    pub(crate) fn of(plan: &Plan, libvirt: String, made: &[Made]) -> Self {
        let mut record = Self {
            version: VERSION,
            namespace: plan.namespace.to_string(),
            name: plan.name.to_string(),
            uuid: plan.uuid,
            created: now(),
            libvirt,
            phase: Phase::Preparing,
            pod: plan.launcher.as_ref().map(|it| it.pod.to_string()),
            disks: plan.disks.len(),
            images: plan.images().map(|digest| digest.to_string()).collect(),
            image_names: plan
                .named_images()
                .map(|(image, digest)| (image.as_written().to_owned(), digest.to_string()))
                .collect(),
            promised: plan
                .pools
                .iter()
                .map(|share| (share.path.clone(), share.promised_bytes.as_bytes()))
                .collect(),
            released: Vec::new(),
            taken: BTreeMap::new(),
            made: made.to_vec(),
            whole: BTreeSet::new(),
            changes: Vec::new(),
        };
        record.take(made);
        record
    }

    /// These are yet to be made, whatever was there before.
    pub(crate) fn begin(&mut self, made: &[Made]) {
        let new: Vec<PathBuf> = made.iter().filter_map(Made::volume).collect();
        self.whole.retain(|path| !new.contains(path));
    }

    /// All of these that are volumes are there now.
    pub(crate) fn complete<'m>(&mut self, made: impl IntoIterator<Item = &'m Made>) {
        self.whole.extend(made.into_iter().filter_map(Made::volume));
    }

    /// A volume that was there as a whole, is needed, and is gone: whoever makes it anew
    /// hides from the guest that its data are gone. Of a VM that was half done, or half
    /// removed, none is missed.
    pub(crate) fn lost(&self, needed: &[Made]) -> Option<PathBuf> {
        if matches!(self.phase, Phase::Preparing | Phase::Releasing) {
            return None;
        }
        let mut needed = needed.iter().filter_map(Made::volume);
        needed.find(|path| {
            let is_there = path.try_exists().unwrap_or(true);
            self.whole.contains(path) && !is_there
        })
    }

    /// What is being attached was made for the new disk alone; of a lease, each disk that
    /// has it has one.
    fn made_for_new(&self) -> impl Iterator<Item = &Made> {
        let new = self.changes.iter().filter_map(|change| match change {
            Change::Attach { made, .. } => Some(made),
            Change::Detach { .. } | Change::Resize { .. } => None,
        });
        new.flatten()
    }

    /// Whether nothing but a disk that is being attached needs it.
    pub(crate) fn is_new(&self, made: &Made) -> bool {
        self.made_for_new().any(|new| new.is_at(made)) && !self.needs_besides_new(made)
    }

    /// Whether a disk that the VM had before one is attached has the same lease.
    pub(crate) fn needs_besides_new(&self, lease: &Made) -> bool {
        let same = |made: &&Made| made.storage().is_some() && made.storage() == lease.storage();
        let new = self.made_for_new().filter(same).count();
        new > 0 && self.made.iter().filter(same).count() > new
    }

    /// Forgets what is not there any more: all that stands for it, but of a lease of a disk
    /// that is being attached only this one.
    pub(crate) fn forget(&mut self, gone: &[Made]) {
        for gone in gone {
            let is_new = self.made_for_new().any(|made| made.is_at(gone));
            let nth = self.made.iter().rposition(|made| made.is_at(gone));
            match (is_new && gone.storage().is_some(), nth) {
                (true, Some(nth)) => drop(self.made.remove(nth)),
                _ => self.made.retain(|made| !made.is_at(gone)),
            }
            for change in &mut self.changes {
                if let Change::Attach { made, .. } = change {
                    made.retain(|made| !made.is_at(gone));
                }
            }
        }
    }

    /// As users write it.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(storage: &str) -> Made {
        Made::Lease {
            storage: storage.to_owned(),
            hosts: Vec::new(),
            access: "read-shared".to_owned(),
            object: Some("storage-1".to_owned()),
        }
    }

    fn record(made: Vec<Made>, new: Option<Vec<Made>>) -> Record {
        let change = |made| Change::Attach {
            disk: json!({"name": "b", "target": "sdb"}),
            xml: String::new(),
            made,
        };
        let text = json!({
            "version": VERSION, "namespace": "default", "name": "vm", "uuid": Uuid::nil(),
            "created": 0, "libvirt": "qemu:///system", "phase": "ready", "disks": 1, "made": [],
        });
        Record {
            made,
            changes: new.map(change).into_iter().collect(),
            ..serde_json::from_value(text).unwrap()
        }
    }

    /// A clone that is attached needs its master for a while only; an overlay over the
    /// same master needs it for ever.
    #[test]
    fn a_new_disk_takes_no_lease_of_another_along() {
        let mut both = record(vec![lease("x"), lease("x")], Some(vec![lease("x")]));
        assert!(both.needs_besides_new(&lease("x")));
        both.forget(&[lease("x")]);
        assert_eq!(both.made, [lease("x")]);
        // Whatever comes next, there is nothing left of the new one to give up.
        assert!(matches!(&both.changes[0], Change::Attach { made, .. } if made.is_empty()));
        let mut alone = record(vec![lease("y"), lease("x")], Some(vec![lease("x")]));
        assert!(!alone.needs_besides_new(&lease("x")));
        alone.forget(&[lease("x")]);
        assert_eq!(alone.made, [lease("y")]);
    }

    /// Those that a VM is started with are all in its plan, which knows who needs what.
    #[test]
    fn at_the_start_all_of_a_lease_goes() {
        let mut both = record(vec![lease("x"), lease("x")], None);
        assert!(!both.needs_besides_new(&lease("x")));
        both.forget(&[lease("x")]);
        assert_eq!(both.made, []);
    }
}
