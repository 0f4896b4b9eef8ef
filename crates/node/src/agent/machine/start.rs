//! Having a guest run.

use disklet::cluster::leases::Version;
use disklet_core::launch::protocol::{Ended, FromAgent, How};
use uuid::Uuid;

use super::disks::Followed;
use super::{AGAIN, Guest, Machine};
use crate::agent::Whose;
use crate::agent::link::Link;
use crate::agent::planning::{NoPlan, Planned, plan};
use crate::agent::pod::LauncherPod;
use crate::agent::progress::{Missing, Told as Progress};
use crate::agent::status::Standing;
use crate::failure::Result;
use crate::libvirt::{End, Libvirt, State};
use crate::record::{Held, Phase, Record, Records};
use crate::verbs::Node;

/// Why a VM waits, in a word.
const STORAGE_IN_USE: &str = "StorageInUse";

/// How it came that there is no guest.
pub(super) struct NotStarted {
    pub(super) ended: Ended,
    /// The word for it, if it is another than of other ends of that kind.
    pub(super) reason: Option<&'static str>,
}

impl NotStarted {
    fn without(image: Missing) -> Self {
        let reason = Some(image.reason());
        let (how, why) = match image {
            Missing::Refused(why) => (How::Refused, why),
            Missing::Failed(why) => (How::Failed, why),
        };
        let ended = Ended { how, why };
        Self { ended, reason }
    }
}

impl Machine {
    /// Has the guest run, or finds it running.
    pub(super) fn start(&self, link: &Link) -> std::result::Result<Guest, NotStarted> {
        let ended = |how: How, why: String| NotStarted {
            ended: Ended { how, why },
            reason: None,
        };
        let mut told = String::new();
        loop {
            let no_plan = match self.try_start(link) {
                Ok(guest) => return Ok(guest),
                Err(no_plan) => no_plan,
            };
            let failure = match no_plan {
                NoPlan::Refused(why) => return Err(ended(How::Refused, why)),
                _ if self.unwanted.is_set() => {
                    return Err(ended(How::Off, "it was ended before it ran".to_owned()));
                }
                NoPlan::NoImage(missing) => return Err(NotStarted::without(missing)),
                NoPlan::Failed(failure) => failure,
            };
            if let Some(seen) = failure.lasts_until() {
                self.wait_for_storage(link, &failure.to_string(), seen, &mut told);
                continue;
            }
            // Without libvirt or the API server nobody can say whether the VM is
            // wrong.
            if !failure.is_outage() {
                return Err(ended(How::Failed, failure.to_string()));
            }
            let what = failure.to_string();
            let _ = link.say(&FromAgent::Working { what });
            std::thread::sleep(AGAIN);
        }
    }

    /// Others have storage that this VM needs. It is told once, and waited until
    /// that is different.
    fn wait_for_storage(&self, link: &Link, why: &str, seen: &Version, told: &mut String) {
        let Some(leases) = &self.shared.leases else {
            return;
        };
        if told != why {
            why.clone_into(told);
            let what = why.to_owned();
            let _ = link.say(&FromAgent::Working { what });
            let cluster = self.cluster();
            cluster.warn(&self.pod, STORAGE_IN_USE, why);
            let standing = Standing::Waiting(STORAGE_IN_USE, why.to_owned());
            let nobody = Guest::new(Uuid::nil(), None, None);
            if let Err(failure) = self.write(&cluster, &nobody, &standing) {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
            }
        }
        tracing::info!(
            vm = self.pod.full_name(),
            object = seen.object,
            "waiting: {why}"
        );
        let _counted = self.shared.metrics.waits();
        leases.wait_for_change(seen, &self.unwanted);
    }

    /// An agent before this one had the guest run. If an administrator has given
    /// its storage to another VM meanwhile, that one writes to it now: the guest
    /// ends, and waits like any other.
    fn keep_leases(&self, node: &Node<'_>, record: &Record) -> Result<()> {
        let Some(leases) = node.leases else {
            return Ok(());
        };
        let held = node.records.hold(record.uuid)?;
        // What that agent had begun may be for nothing, and no guest needs it then.
        if let Err(failure) = node.settle(&held) {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
        }
        let settled = held.read()?;
        drop(held);
        let record = settled.as_ref().unwrap_or(record);
        let whose = Whose::of(record);
        let needed = record.made.iter().filter(|made| !record.is_new(made));
        let mut kept = needed.map(|made| leases.take(whose, made));
        match kept.find_map(Result::err) {
            Some(lost) if lost.lasts_until().is_some() => {
                tracing::error!(vm = self.pod.full_name(), "its guest is ended: {lost}");
                node.release_but_volumes(&node.records.hold(record.uuid)?)?;
                Err(lost)
            }
            // That nobody answers takes nothing from anybody.
            Some(failure) => {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn try_start(&self, link: &Link) -> std::result::Result<Guest, NoPlan> {
        let shared = &*self.shared;
        let libvirt = self.libvirt()?;
        let records = Records::of(&shared.config);
        let before = self.record_of_launcher(&records, &libvirt)?;
        let cluster = self.cluster();
        let progress = Progress::new(link, &self.unwanted, &cluster, &self.pod);
        // A pod that is started again has its volumes, and the images below them.
        let earlier = before.as_ref().map(|record| record.image_names.clone());
        let earlier = earlier.unwrap_or_default();
        let planned = plan(&cluster, shared, &self.pod, &earlier, &progress);
        let leases = self.leases();
        let node = Node {
            libvirt: &libvirt,
            config: &shared.config,
            records: &records,
            launcher: Some(link.process),
            leases: leases.as_ref(),
        };
        if let Some(record) = before.filter(|record| record.phase == Phase::Running)
            && let Some(state) = libvirt.state(record.uuid)?
            && !matches!(state, State::Off(End::Unknown))
        {
            self.keep_leases(&node, &record)?;
            // It runs, or has run: what it is now is not a question of plans.
            let (plan, generation) = match planned {
                Ok(planned) => (Some(planned.plan), planned.generation),
                Err(_) => (None, None),
            };
            return Ok(Guest {
                found: true,
                // Nobody knows how far the agent before has come.
                followed: Followed::default(),
                ..Guest::new(record.uuid, generation, plan)
            });
        }
        let planned = planned?;
        let done = self.hold(&node, planned.plan.uuid).and_then(|held| {
            self.carry_out(&node, &planned, held)
                .map_err(NoPlan::Failed)
        });
        done.map_err(|no_plan| match no_plan {
            NoPlan::Failed(failure) if !libvirt.is_alive() => failure.into_outage().into(),
            other => other,
        })?;
        let name = &shared.node;
        let note = format!("the guest runs on node {name}");
        self.cluster().tell(&self.pod, "Started", &note);
        let Planned {
            plan, generation, ..
        } = planned;
        Ok(Guest::new(plan.uuid, generation, Some(plan)))
    }

    /// What is there for this launcher. What an earlier one has left, unseen by
    /// any agent, goes: its console and network went with it. Volumes stay.
    fn record_of_launcher(&self, records: &Records, libvirt: &Libvirt) -> Result<Option<Record>> {
        let Some(record) = self.record(records)? else {
            return Ok(None);
        };
        if record.phase == Phase::Kept || self.is_of_launcher(&record) {
            return Ok(Some(record));
        }
        let leases = self.leases();
        let node = Node {
            libvirt,
            config: &self.shared.config,
            records,
            launcher: None,
            leases: leases.as_ref(),
        };
        node.release_but_volumes(&records.hold(record.uuid)?)?;
        self.record(records)
    }

    /// The place of a VM's record, where no other VM's is.
    fn hold(&self, node: &Node<'_>, uuid: Uuid) -> std::result::Result<Held, NoPlan> {
        let held = node.records.hold(uuid)?;
        let record = held.read()?;
        let Some(earlier) = record.filter(|it| it.pod.as_deref() != Some(self.pod.uid.as_str()))
        else {
            return Ok(held);
        };
        if let Some(why) = why_not_ours(&earlier, &self.pod) {
            return Err(NoPlan::Refused(why));
        }
        node.release(held)?;
        Ok(node.records.hold(uuid)?)
    }

    fn carry_out(&self, node: &Node<'_>, planned: &Planned, held: Held) -> Result<()> {
        let plan = &planned.plan;
        let held = node.prepare(plan, held, &self.unwanted)?;
        node.start(plan, &held, &self.unwanted)?;
        node.set_phase(&held, Phase::Running)
    }
}

/// Why a record under this VM's UUID is not of a pod before this one, of which
/// nobody has seen the end. Who chooses a UUID may choose that of another VM.
/// There is one pod of a name: what has ours and is not it, is gone.
fn why_not_ours(record: &Record, pod: &LauncherPod) -> Option<String> {
    let is_of_namespace = record.namespace == pod.namespace.as_str();
    if record.pod.is_some() && is_of_namespace && record.name == pod.name.as_str() {
        return None;
    }
    // Tenants do not learn the names of others.
    let other = match is_of_namespace {
        true => format!("VM {}", record.name),
        false => "another VM".to_owned(),
    };
    let uuid = record.uuid;
    Some(format!(
        "{other} on this node has the UUID {uuid}\n  help: choose another UUID, or delete the other VM"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use disklet_core::names::PodUid;

    use super::*;

    fn record(namespace: &str, name: &str, pod: Option<&str>) -> Record {
        Record {
            version: 1,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uuid: Uuid::from_u128(7),
            created: 0,
            libvirt: "qemu:///system".to_owned(),
            phase: Phase::Running,
            pod: pod.map(str::to_owned),
            disks: 1,
            images: Vec::new(),
            image_names: BTreeMap::new(),
            promised: BTreeMap::new(),
            released: Vec::new(),
            taken: BTreeMap::new(),
            made: Vec::new(),
            whole: BTreeSet::new(),
            changes: Vec::new(),
        }
    }

    #[test]
    fn only_what_an_earlier_pod_of_the_name_has_left_is_taken_over() {
        let uid = PodUid::parse("0b6f8c1e-3c3e-4d3e-9a86-3f6b2f5f9c11").unwrap();
        let pod = LauncherPod::vanished(uid, "mine", "db").unwrap();
        let why = |namespace, name, pod_uid| why_not_ours(&record(namespace, name, pod_uid), &pod);
        let earlier = Some("11111111-3c3e-4d3e-9a86-3f6b2f5f9c11");
        assert_eq!(why("mine", "db", earlier), None);
        let of_neighbour = why("mine", "web", earlier).unwrap();
        assert!(of_neighbour.contains("VM web on this node has the UUID"));
        let of_stranger = why("theirs", "crown-jewels", earlier).unwrap();
        assert!(of_stranger.starts_with("another VM on this node has the UUID"));
        assert!(!of_stranger.contains("theirs") && !of_stranger.contains("crown-jewels"));
        // Nobody's but who said `disklet up` on the node.
        assert!(why("mine", "db", None).is_some());
    }
}
