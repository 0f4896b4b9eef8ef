//! What a VM has the right to use, as its record says it.

use std::time::{SystemTime, UNIX_EPOCH};

use disklet_core::lease;
use disklet_core::plan::Access;
use uuid::Uuid;

use super::{Made, Record};
use crate::taken::known_as;

/// What somebody has the right to use.
pub(crate) struct Leased<'m> {
    pub(crate) storage: String,
    pub(crate) access: &'m str,
    pub(crate) object: Option<&'m str>,
}

impl Made {
    pub(crate) fn leased(&self) -> Option<Leased<'_>> {
        let alone = Access::WriteExclusive.name();
        let leased = |storage, access, object| {
            Some(Leased {
                storage,
                access,
                object,
            })
        };
        match self {
            Self::Lease {
                storage,
                hosts,
                access,
                object,
            } => {
                let at = match hosts.is_empty() {
                    true => String::new(),
                    false => format!(" at {}", hosts.join(", ")),
                };
                leased(format!("{storage}{at}"), access, object.as_deref())
            }
            Self::Device { number, access, .. } => {
                let access = access.as_deref().unwrap_or(alone);
                leased(format!("device {}", known_as(number)), access, None)
            }
            // A socket of a launcher has no access: it is nobody else's.
            Self::Mount {
                from,
                access: Some(access),
                ..
            } => leased(from.display().to_string(), access, None),
            _ => None,
        }
    }

    /// What it is, whatever it is called today.
    fn identity(&self) -> Option<String> {
        match self {
            Self::Device { number, .. } => Some(format!("device {number}")),
            other => other.leased().map(|leased| leased.storage),
        }
    }

    /// What the lease of a VM is called: the same as long as the VM has it.
    pub(crate) fn lease_id(&self, of: Uuid) -> Option<String> {
        let hash = lease::hash(&format!("{of} {}", self.identity()?));
        Some(hash.chars().take(12).collect())
    }
}

impl Record {
    /// Whether somebody has released it by force.
    pub(crate) fn has_released(&self, made: &Made) -> bool {
        let id = made.lease_id(self.uuid);
        id.is_some_and(|id| self.released.contains(&id))
    }

    /// When it was taken, in seconds since 1970. Records of old do not say it.
    pub(crate) fn taken(&self, made: &Made) -> Option<u64> {
        self.taken.get(&made.lease_id(self.uuid)?).copied()
    }

    /// It gets these, which it has by now. Whoever was let in before has no right to them,
    /// and unless another disk of the VM had the same before, they are taken now.
    pub(crate) fn take(&mut self, new: &[Made]) {
        let ids = |made: &[Made]| -> Vec<String> {
            let ids = made.iter().filter_map(|made| made.lease_id(self.uuid));
            ids.collect()
        };
        let (all, new) = (ids(&self.made), ids(new));
        self.released.retain(|id| !new.contains(id));
        self.taken.retain(|id, _| all.contains(id));
        let times = |among: &[String], id: &String| among.iter().filter(|it| *it == id).count();
        for id in &new {
            if times(&all, id) == times(&new, id) {
                self.taken.insert(id.clone(), now());
            }
        }
    }

    /// It has never given this up since it was the record of before.
    pub(crate) fn has_since(&mut self, before: &Self, made: &Made) {
        if let (Some(id), Some(since)) = (made.lease_id(self.uuid), before.taken(made)) {
            self.taken.entry(id).and_modify(|it| *it = since);
        }
    }
}

/// In seconds since 1970.
pub(super) fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(storage: &str, access: &str) -> Made {
        Made::Lease {
            storage: storage.to_owned(),
            hosts: Vec::new(),
            access: access.to_owned(),
            object: None,
        }
    }

    #[test]
    fn an_id_is_of_the_vm_and_the_storage() {
        let id = |vm, made: &Made| made.lease_id(Uuid::from_u128(vm)).unwrap();
        let one = id(1, &lease("unit", "read-shared"));
        assert_eq!(one.len(), 12);
        assert_eq!(one, id(1, &lease("unit", "write-shared")));
        assert_ne!(one, id(2, &lease("unit", "read-shared")));
        assert_ne!(one, id(1, &lease("other", "read-shared")));
    }

    #[test]
    fn sockets_are_nobody_elses() {
        let mount = |access: Option<&str>| Made::Mount {
            path: "/run/x".into(),
            from: "/srv/disk.img".into(),
            access: access.map(str::to_owned),
        };
        assert!(mount(None).leased().is_none());
        assert_eq!(
            mount(Some("read-shared")).leased().unwrap().storage,
            "/srv/disk.img"
        );
    }

    #[test]
    fn a_lease_is_as_old_as_the_right_to_it() {
        let text = json!({
            "version": super::super::entry::VERSION, "namespace": "default", "name": "vm",
            "uuid": Uuid::nil(), "created": 0, "libvirt": "qemu:///system", "phase": "ready",
            "disks": 1, "made": [],
        });
        let mut record: Record = serde_json::from_value(text).unwrap();
        let [one, two] = ["one", "two"].map(|storage| lease(storage, "read-shared"));
        // One that an older version has written does not know.
        record.made = vec![one.clone()];
        assert_eq!(record.taken(&one), None);
        record.take(std::slice::from_ref(&one));
        assert!(record.taken(&one).unwrap() > 0);
        record.taken.values_mut().for_each(|since| *since = 7);

        // Another disk over the same storage, and one over another.
        record.made.extend([one.clone(), two.clone()]);
        record.take(&[one.clone(), two.clone()]);
        assert_eq!(record.taken(&one), Some(7));
        assert!(record.taken(&two).unwrap() > 7);

        // What was given up and is had again is new.
        record.made.retain(|made| *made == two);
        record.made.push(one.clone());
        record.take(std::slice::from_ref(&one));
        assert!(record.taken(&one).unwrap() > 7);

        // A VM that is started again has given up all but what its overlays stand on.
        let mut before = record.clone();
        before.taken.values_mut().for_each(|since| *since = 9);
        record.has_since(&before, &two);
        assert_eq!(record.taken(&two), Some(9));
        assert!(record.taken(&one).unwrap() > 9);
        record.made.clear();
        record.take(&[]);
        record.has_since(&before, &two);
        assert_eq!(record.taken(&two), None);
    }
}
