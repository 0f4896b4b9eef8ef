//! What was begun about a disk is finished or undone.

use std::collections::BTreeMap;

use disklet_core::config::Config;
use disklet_core::plan::Storage;
use serde_json::Value;

use super::kept;
use crate::cut::{self, Cut};
use crate::executor::unmake;
use crate::failure::Result;
use crate::record::{Change, Held, Made, Record};
use crate::verbs::Node;

impl Node<'_> {
    /// Finishes or undoes what was begun about the disks of a VM, by what its
    /// domain has. What a guest was asked to let go of and still has stays
    /// begun. Keys that were left behind go.
    pub(crate) fn settle(&self, held: &Held) -> Result<()> {
        let Some(record) = held.read()? else {
            return Ok(());
        };
        // Nobody is starting the VM, which this holds: whoever was has left them.
        let mut keys = record.made.iter().filter(|it| it.is_key());
        keys.try_for_each(|key| unmake(self.libvirt, key))?;
        if record.changes.is_empty() {
            return Ok(());
        }
        // Who began may have been killed while libvirt goes on with it.
        if self.libvirt.is_running(record.uuid)? == Some(true) {
            self.libvirt.wait_until_idle(record.uuid)?;
        }
        for change in &record.changes {
            // The one before may have changed it.
            if let Some(record) = held.read()? {
                self.settle_one(held, &record, change)?;
            }
        }
        Ok(())
    }

    /// The same for a VM that nobody works on.
    pub(crate) fn reconcile_disks(&self, record: &Record) -> Result<()> {
        let is_settled = record.changes.is_empty() && !record.made.iter().any(Made::is_key);
        if is_settled || self.libvirt.demand_daemon_of(record).is_err() {
            return Ok(());
        }
        let settled = self
            .records
            .hold(record.uuid)
            .and_then(|held| self.settle(&held));
        settled.map_err(|failure| failure.of(&record.full_name()))
    }

    fn settle_one(&self, held: &Held, record: &Record, change: &Change) -> Result<()> {
        let uuid = record.uuid;
        let runs = self.libvirt.is_running(uuid)? == Some(true);
        // Of one that is off, the definition tells, which has a disk as soon as the guest.
        let is_there = self.libvirt.disk_at(uuid, change.target())?.is_some();
        match change {
            Change::Attach { disk, xml, made } if is_there => {
                // Nobody needs the key of a disk that is open.
                let mut keys = made.iter().filter(|it| it.is_key());
                keys.try_for_each(|key| unmake(self.libvirt, key))?;
                self.note(held, change, |plan| kept::add(plan, disk, xml), &[])
            }
            Change::Attach { made, .. } => {
                self.libvirt.forget_disk(uuid, change.target())?;
                self.unmake_these(record, made)?;
                self.note(held, change, |_| {}, made)
            }
            // The guest has it still.
            Change::Detach { .. } if runs && is_there => Ok(()),
            // A guest that has ended did not let go: what it wrote is there for a next start
            // with that disk, until the VM goes, and so are what is promised for it and the
            // right to what it stands on.
            Change::Detach { target, made, .. } if !runs && made.iter().any(Made::is_volume) => {
                let goes = |made: &&Made| !made.is_volume() && !made.is_lease();
                let gone: Vec<Made> = made.iter().filter(goes).cloned().collect();
                self.libvirt.forget_disk(uuid, target)?;
                self.unmake_these(record, &gone)?;
                self.note(held, change, |_| {}, &gone)
            }
            Change::Detach {
                name, target, made, ..
            } => {
                self.libvirt.forget_disk(uuid, target)?;
                self.unmake_these(record, made)?;
                self.note(held, change, |plan| kept::remove(plan, name, target), made)
            }
            Change::Resize { name, target, size } => {
                let is_done = runs && is_there && self.libvirt.capacity(uuid, target)? >= *size;
                let grown = |plan: &mut Value| {
                    if is_done {
                        kept::grow(plan, name, *size);
                    }
                };
                self.note(held, change, grown, &[])
            }
        }
    }

    fn unmake_these(&self, record: &Record, made: &[Made]) -> Result<()> {
        for made in made.iter().rev() {
            cut::boundary(Cut::Removing);
            match made {
                Made::Pool { .. } => self.unmake_pool(record, made)?,
                _ => unmake(self.libvirt, made)?,
            }
        }
        // Another disk of the VM may need the same storage.
        let users = |among: &[Made], of: &Made| {
            let same = among.iter().filter(|it| it.storage() == of.storage());
            same.count()
        };
        let is_last = |lease: &&Made| users(&record.made, lease) <= users(made, lease);
        self.give_up(record, made.iter().filter(is_last))
    }

    /// Writes down what has become of it: in the plan that is kept, then in the
    /// record, where it is begun no more.
    fn note(
        &self,
        held: &Held,
        change: &Change,
        edit: impl FnOnce(&mut Value),
        gone: &[Made],
    ) -> Result<()> {
        let Some(mut record) = held.read()? else {
            return Ok(());
        };
        if let Some(mut plan) = self.kept_plan(record.uuid) {
            let begun = promised_for(&plan, change, self.config);
            edit(&mut plan);
            self.keep_view(record.uuid, &plan)?;
            record.disks = plan["disks"].as_array().map_or(record.disks, Vec::len);
            let images = kept::images(&plan);
            record.images = images.iter().map(|(_, digest)| digest.clone()).collect();
            record.image_names = images.into_iter().collect();
            let now = kept::promised(&plan, self.config);
            take_back(&mut record.promised, &begun, &now);
        }
        cut::boundary(Cut::Noted);
        if let Change::Attach { made, .. } = change {
            record.complete(made.iter().filter(|made| !gone.contains(made)));
        }
        for gone in gone {
            // Another disk may have the same lease.
            if let Some(nth) = record.made.iter().position(|made| made.is_at(gone)) {
                record.made.remove(nth);
            }
        }
        record.changes.retain(|begun| begun != change);
        held.write(&record)
    }

    /// What is there because of a disk alone.
    pub(crate) fn things_of(disk: &Value, record: &Record) -> Vec<Made> {
        let is_ours = |made: &&Made| match made {
            Made::Lease { storage, hosts, .. } => is_leased_as(disk, storage, hosts),
            Made::Secret { uuid } => disk["source"]["secret"] == uuid.to_string(),
            Made::Volume { path } | Made::Device { path, .. } | Made::Mount { path, .. } => {
                let path = path.display().to_string();
                let mut paths = [
                    &disk["copiedTo"]["file"],
                    &disk["source"]["exposedAt"],
                    &disk["source"]["file"],
                ]
                .into_iter();
                paths.any(|it| *it == path)
            }
            Made::File { .. } | Made::Pool { .. } | Made::Domain { .. } => false,
        };
        let mut things: Vec<Made> = record.made.iter().filter(is_ours).cloned().collect();
        // One lease for each disk that has it.
        if let Some(nth) = things.iter().position(Made::is_lease) {
            let lease = things[nth].clone();
            things.retain(|it| !it.is_lease());
            things.push(lease);
        }
        things
    }
}

/// What was promised when this was begun. A plan that was kept before a crash may lack the
/// disk that is let go of.
fn promised_for(plan: &Value, change: &Change, config: &Config) -> BTreeMap<String, u64> {
    let mut plan = plan.clone();
    let mut beside = &BTreeMap::new();
    match change {
        Change::Attach { disk, xml, .. } => kept::add(&mut plan, disk, xml),
        Change::Resize { name, size, .. } => kept::grow(&mut plan, name, *size),
        Change::Detach {
            name,
            target,
            promised,
            ..
        } => {
            kept::remove(&mut plan, name, target);
            beside = promised;
        }
    }
    let mut all = kept::promised(&plan, config);
    for (path, bytes) in beside {
        *all.entry(path.clone()).or_default() += bytes;
    }
    all
}

/// What has gone is promised no more; what pools have promised beside the plan stays.
fn take_back(
    promised: &mut BTreeMap<String, u64>,
    begun: &BTreeMap<String, u64>,
    now: &BTreeMap<String, u64>,
) {
    for (path, begun) in begun {
        let gone = begun.saturating_sub(now.get(path).copied().unwrap_or_default());
        if let Some(bytes) = promised.get_mut(path) {
            *bytes = bytes.saturating_sub(gone);
        }
    }
    promised.retain(|_, bytes| *bytes > 0);
}

/// Whether a disk, as plans show it, has this lease. A clone has none: it was over when all
/// bytes were there.
fn is_leased_as(disk: &Value, storage: &str, hosts: &[String]) -> bool {
    let lease = disk["lease"].as_str().filter(|_| disk["copy"] != "clone");
    lease.is_some_and(|lease| Storage::is_shown_as(lease, storage, hosts))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pools(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter()
            .map(|(path, bytes)| ((*path).to_owned(), *bytes))
            .collect()
    }

    #[test]
    fn what_goes_is_taken_back_and_nothing_else() {
        // 30 of them are of volumes that no plan names any more.
        let mut promised = pools(&[("/a", 50), ("/b", 7)]);
        take_back(
            &mut promised,
            &pools(&[("/a", 20), ("/b", 7)]),
            &pools(&[("/a", 5)]),
        );
        assert_eq!(promised, pools(&[("/a", 35)]));
        take_back(&mut promised, &pools(&[("/a", 5)]), &pools(&[("/a", 5)]));
        assert_eq!(promised, pools(&[("/a", 35)]));
    }

    #[test]
    fn what_was_let_go_of_is_taken_back_once() {
        let config = Config::default();
        let disk = |name: &str| json!({"name": name, "copiedTo": {"file": name}, "pool": "volumes", "size": 20, "source": {}});
        let of = |disks: &[Value]| kept::promised(&json!({"disks": disks}), &config);
        let change = Change::Detach {
            name: "x".to_owned(),
            target: "sdb".to_owned(),
            made: Vec::new(),
            promised: of(&[disk("x")]),
        };
        // Before a crash, and after one that came when the plan was kept already.
        for disks in [vec![disk("y"), disk("x")], vec![disk("y")]] {
            let mut plan = json!({"disks": disks});
            let begun = promised_for(&plan, &change, &config);
            let mut promised = of(&[disk("x"), disk("y")]);
            // The VM is off, and its file stays.
            let mut of_file = promised.clone();
            take_back(&mut of_file, &begun, &kept::promised(&plan, &config));
            kept::remove(&mut plan, "x", "sdb");
            take_back(&mut promised, &begun, &kept::promised(&plan, &config));
            assert_eq!(promised, of(&[disk("y")]));
            if disks.len() == 2 {
                assert_eq!(of_file, of(&[disk("x"), disk("y")]));
            }
        }
    }
}
