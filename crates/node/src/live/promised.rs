//! What pools promise while VMs are there.

use std::collections::BTreeMap;

use disklet_core::config::Config;
use disklet_core::plan::Plan;
use disklet_core::text::Reveal;
use disklet_core::units::ByteSize;
use serde_json::{Value, json};

use super::kept;
use crate::failure::{Failure, Result};
use crate::pools::Promise;
use crate::record::{Change, Held, Record};
use crate::verbs::Node;

impl Node<'_> {
    /// What pools have promised a VM beside what a new plan of it asks for: volumes that it
    /// had under other names are still there, and of some the size was learned before.
    pub(crate) fn promised_beside(
        &self,
        before: &Record,
        plan: &Plan,
    ) -> Result<BTreeMap<String, u64>> {
        let kept = self.kept_plan(before.uuid).unwrap_or_default();
        let view = serde_json::to_value(plan.view(Reveal::Redact));
        let view = view.map_err(|error| {
            Failure::new("the plan cannot be compared with the last one").because(error)
        })?;
        Ok(beside(&before.promised, &kept, &view, self.config))
    }

    /// What the files of a plan may grow to, beyond what was promised before, is promised
    /// by their pools, or refused. The caller holds the lock of all VMs.
    pub(super) fn promise(
        &self,
        record: &mut Record,
        before: &BTreeMap<String, u64>,
        plan: &Value,
    ) -> Result<()> {
        for (path, promised) in kept::promised(plan, self.config) {
            let more = promised.saturating_sub(before.get(&path).copied().unwrap_or_default());
            let mut pools = self.config.pools.iter();
            let pool = pools.find(|(_, pool)| pool.path == path);
            if let (true, Some((name, _))) = (more > 0, pool) {
                let wanted = Promise {
                    pool: name.as_str(),
                    path: &path,
                    more: ByteSize::from_bytes(more),
                };
                self.refuse_beyond_pool(record.uuid, &wanted, &record.promised)?;
                *record.promised.entry(path).or_default() += more;
            }
        }
        Ok(())
    }

    /// The same for a disk of which nobody knew the size before its server was asked. Said
    /// twice, it is promised once.
    pub(crate) fn promise_learned(&self, held: &Held, disk: &str, size: u64) -> Result<()> {
        let _shared = self.records.hold_shared_things()?;
        let Some(mut record) = held.read()? else {
            return Ok(());
        };
        let mut plan = self.kept_plan(record.uuid).unwrap_or_default();
        kept::learn(&mut plan["disks"], disk, size);
        self.keep_view(record.uuid, &plan)?;
        // One that is being attached is in no plan yet.
        for change in &mut record.changes {
            if let Change::Attach { disk: new, .. } = change {
                let mut alone = Value::Array(vec![new.take()]);
                kept::learn(&mut alone, disk, size);
                *new = alone[0].take();
                if let Value::Array(disks) = &mut plan["disks"] {
                    disks.push(new.clone());
                }
            }
        }
        let before = record.promised.clone();
        self.promise(&mut record, &before, &plan)?;
        held.write(&record)
    }
}

/// What was promised, without what disks were promised that the new plan counts itself.
fn beside(
    promised: &BTreeMap<String, u64>,
    kept: &Value,
    plan: &Value,
    config: &Config,
) -> BTreeMap<String, u64> {
    let disks = |plan: &Value| plan["disks"].as_array().cloned().unwrap_or_default();
    let new = disks(plan);
    let counts_itself = |old: &Value| {
        let file = file_of(old);
        let same = |new: &&Value| file.is_some() && file_of(new) == file;
        new.iter()
            .find(same)
            .is_some_and(|new| new["size"].is_u64())
    };
    let counted: Vec<_> = disks(kept).into_iter().filter(counts_itself).collect();
    let mut rest = promised.clone();
    for (path, bytes) in kept::promised(&json!({"disks": counted}), config) {
        let left = rest.entry(path).or_default();
        *left = left.saturating_sub(bytes);
    }
    rest.retain(|_, bytes| *bytes > 0);
    rest
}

/// The file of ours that a disk is in.
fn file_of(disk: &Value) -> Option<&str> {
    let copy = disk["copiedTo"]["file"].as_str();
    copy.or_else(|| disk["source"]["file"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_under_other_names_are_still_promised() {
        let config = Config::default();
        let pool = config.volumes_dir().to_owned();
        let disk = |file: &str, size: Value| json!({"copiedTo": {"file": file}, "pool": "volumes", "size": size, "source": {}});
        let left = |promised: u64, kept: &Value, new: &Value| {
            let promised = BTreeMap::from([(pool.clone(), promised)]);
            let of = |disk: &Value| json!({"disks": [disk]});
            let rest = beside(&promised, &of(kept), &of(new), &config);
            rest.get(&pool).copied().unwrap_or_default()
        };
        let [one, two, three] = ["one", "two", "three"].map(|file| disk(file, 20.into()));
        // The same again counts once.
        assert_eq!(left(20, &one, &one), 0);
        // Another name is another file, and so on.
        assert_eq!(left(20, &one, &two), 20);
        assert_eq!(left(40, &two, &three), 40);
        assert_eq!(left(60, &two, &two), 40);
        // What a server has said before is not forgotten.
        assert_eq!(left(20, &one, &disk("one", Value::Null)), 20);
    }
}
