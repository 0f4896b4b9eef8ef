//! Having a guest run.

use disklet_core::launch::protocol::{Ended, FromAgent, How};

use super::{AGAIN, Guest, Machine};
use crate::agent::link::Link;
use crate::agent::planning::{NoPlan, Planned, plan};
use crate::agent::progress::Told as Progress;
use crate::failure::Result;
use crate::libvirt::{End, Libvirt, State};
use crate::record::{Phase, Record, Records};
use crate::verbs::Node;

impl Machine {
    /// Has the guest run, or finds it running.
    pub(super) fn start(&self, link: &Link) -> std::result::Result<Guest, Ended> {
        let refused = |how: How, why: String| Ended { how, why };
        loop {
            let failure = match self.try_start(link) {
                Ok(guest) => return Ok(guest),
                Err(NoPlan::Refused(why)) => return Err(refused(How::Refused, why)),
                Err(NoPlan::Failed(failure)) => failure,
            };
            if self.unwanted.is_set() {
                return Err(refused(How::Off, "it was ended before it ran".to_owned()));
            }
            // Without libvirt or the API server nobody can say whether the VM is
            // wrong.
            if !failure.is_outage() {
                return Err(refused(How::Failed, failure.to_string()));
            }
            let what = failure.to_string();
            let _ = link.say(&FromAgent::Working { what });
            std::thread::sleep(AGAIN);
        }
    }

    fn try_start(&self, link: &Link) -> std::result::Result<Guest, NoPlan> {
        let shared = &*self.shared;
        let libvirt = self.libvirt()?;
        let records = Records::of(&shared.config);
        let before = self.record_of_launcher(&records, &libvirt)?;
        let progress = Progress::new(link, &self.unwanted);
        let planned = plan(&shared.cluster, &shared.config, &self.pod, &progress);
        if let Some(record) = before.filter(|record| record.phase == Phase::Running)
            && let Some(state) = libvirt.state(record.uuid)?
            && !matches!(state, State::Off(End::Unknown))
        {
            // It runs, or has run: what it is now is not a question of plans.
            let (plan, generation) = match planned {
                Ok(planned) => (Some(planned.plan), planned.generation),
                Err(_) => (None, None),
            };
            return Ok(Guest {
                found: true,
                ..Guest::new(record.uuid, generation, plan)
            });
        }
        let planned = planned?;
        let node = Node {
            libvirt: &libvirt,
            config: &shared.config,
            records: &records,
            launcher: Some(link.process),
        };
        let done = self.carry_out(&node, &planned);
        done.map_err(|failure| match libvirt.is_alive() {
            true => failure,
            false => failure.into_outage(),
        })?;
        let name = &shared.node;
        let note = format!("the guest runs on node {name}");
        shared.cluster.tell(&self.pod, "Started", &note);
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
        let node = Node {
            libvirt,
            config: &self.shared.config,
            records,
            launcher: None,
        };
        node.release_but_volumes(&records.hold(record.uuid)?)?;
        self.record(records)
    }

    fn carry_out(&self, node: &Node<'_>, planned: &Planned) -> Result<()> {
        let plan = &planned.plan;
        let mut held = node.records.hold(plan.uuid)?;
        // Of a pod before this one, of which nobody has seen the end.
        if held
            .read()?
            .is_some_and(|record| record.pod.as_deref() != Some(self.pod.uid.as_str()))
        {
            node.release(held)?;
            held = node.records.hold(plan.uuid)?;
        }
        let held = node.prepare(plan, held, &self.unwanted)?;
        node.start(plan, &held, &self.unwanted)?;
        node.set_phase(&held, Phase::Running)
    }
}
