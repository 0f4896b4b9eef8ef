//! A VM object that has changed while its guest runs.

use std::time::{Duration, Instant};

use disklet_core::live::{self, Changes, changes};
use disklet_core::plan::{Plan, PlannedDisk};
use disklet_core::text::Reveal;
use disklet_core::units::ByteSize;
use serde_json::Value;

use super::times::Times;
use super::{Guest, Machine};
use crate::agent::link::Link;
use crate::agent::planning::{NoPlan, Wish, wish};
use crate::agent::progress::{Missing, Told as Progress};
use crate::differences::beside_disks;
use crate::failure::{Failure, Result};
use crate::live::view_of;
use crate::record::{Change, Record, Records};
use crate::verbs::Node;

/// An object that is written again and again is not followed more often.
const AT_MOST_EVERY: Duration = Duration::from_secs(2);
/// How long until something is tried again that others have to mend.
const LATER: Duration = Duration::from_secs(10);

/// How far a guest has followed its object.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// The generation that it has.
    generation: Option<i64>,
    last: Option<Instant>,
    /// What the next start does, in words.
    pub(super) left: Vec<String>,
    /// What was last told.
    told: String,
}

/// Whether all that can be done is done.
enum Outcome {
    Final,
    /// Something did not work, and may work later.
    TriedAgain,
}

/// What has become of a disk that a guest shall not have any more.
enum Detached {
    Gone,
    /// The guest has some time to let go of it.
    Asked,
}

impl Followed {
    /// One that was started with this generation.
    pub(super) fn of(generation: Option<i64>) -> Self {
        Self {
            generation,
            ..Self::default()
        }
    }

    /// When the guest is to follow its object, if it does not have its generation.
    pub(super) fn next(&self, wanted: Option<i64>) -> Option<Instant> {
        let is_new = wanted.is_some() && wanted != self.generation;
        let now = Instant::now();
        is_new.then(|| self.last.map_or(now, |last| now.max(last + AT_MOST_EVERY)))
    }
}

impl Machine {
    /// When the guest is to follow its object, if that has changed. VM pods stay as they were
    /// created.
    pub(super) fn when_to_follow(&self, guest: &Guest) -> Option<Instant> {
        match self.pod.is_vm_pod() {
            true => None,
            false => guest.followed.next(self.pod.wanted),
        }
    }

    /// Has the guest have the disks of its object as it is now, as far as that can be done
    /// while it runs. What cannot is told.
    pub(super) fn follow(&self, link: &Link, guest: &mut Guest, times: &mut Times) {
        guest.followed.last = Some(Instant::now());
        times.follow = None;
        match self.try_follow(link, guest) {
            Ok(Outcome::Final) => {}
            Ok(Outcome::TriedAgain) => times.follow = Some(Instant::now() + LATER),
            Err(NoPlan::Failed(failure)) if failure.is_outage() => {
                times.follow = Some(Instant::now() + super::AGAIN);
                return;
            }
            Err(no_plan) => {
                let (why, may_work) = match no_plan {
                    NoPlan::Refused(why) | NoPlan::NoImage(Missing::Refused(why)) => (why, false),
                    NoPlan::NoImage(Missing::Failed(why)) => (why, true),
                    NoPlan::Failed(failure) => (failure.to_string(), true),
                };
                times.follow = may_work.then(|| Instant::now() + LATER);
                // Nothing is gained by asking again.
                guest.followed.generation = self.pod.wanted;
                guest.followed.left = vec![why];
            }
        }
        if !guest.followed.left.is_empty() {
            let why = guest.followed.left.join("; ");
            if why != guest.followed.told {
                self.cluster().warn(&self.pod, "RestartRequired", &why);
                guest.followed.told = why;
            }
        }
        self.tell(guest, times);
    }

    fn try_follow(&self, link: &Link, guest: &mut Guest) -> std::result::Result<Outcome, NoPlan> {
        let (libvirt, records) = (self.libvirt()?, Records::of(&self.shared.config));
        let Some(record) = self.record(&records)? else {
            return Ok(Outcome::Final);
        };
        let leases = self.leases();
        let node = Node {
            libvirt: &libvirt,
            config: &self.shared.config,
            records: &records,
            launcher: Some(link.process),
            leases: leases.as_ref(),
        };
        let cluster = self.cluster();
        let progress = Progress::new(link, &self.unwanted, &cluster, &self.pod);
        let wish = wish(
            &cluster,
            &self.shared,
            &self.pod,
            &record.image_names,
            &progress,
        )?;
        let now = plan_view(&wish.plan)?;
        let (held, settled) = node.hold_running(&record)?;
        let (_, kept) = node.running_vm(&settled)?;
        self.tell_of_detached(let_go(&record, &settled));
        let is_wanted = |name: &str| disks_of(&now).iter().any(|disk| disk["name"] == name);
        let record = node.keep_volumes_of(&held, settled, is_wanted)?;
        drop(held);
        let left_out: Vec<_> = wish.left_out.iter().map(|it| it.name.as_deref()).collect();
        let changes = changes(disks_of(&kept), disks_of(&now)).beside(&left_out, disks_of(&kept));
        let mut left = beside_disks(&kept, &now);
        left.extend(changes.later.iter().cloned());
        let claims = wish.left_out.iter();
        left.extend(claims.map(|it| {
            format!(
                "claim {}, which only a new launcher pod can carry",
                it.claim
            )
        }));
        let following = Following {
            machine: self,
            node: &node,
            record: &record,
            wish: &wish,
        };
        let (new, outcome) = following.carry_out(&changes, &mut left)?;
        guest.followed.generation = wish.generation;
        guest.followed.left = left;
        guest.generation = wish.generation;
        // What the guest has, by whichever plan it came.
        let before = guest.plan.take().map(|plan| plan.disks);
        let known = new.into_iter().chain(before.into_iter().flatten());
        let known: Vec<_> = known.chain(wish.plan.disks.iter().cloned()).collect();
        let disks = following.disks_among(&known)?;
        guest.plan = Some(Plan { disks, ..wish.plan });
        guest.found = false;
        Ok(outcome)
    }

    /// A guest may have let go of a disk.
    pub(super) fn settle_disks(&self, guest: &mut Guest, times: &mut Times) {
        let settled = self.try_settle();
        let (there, mut gone) = match settled {
            Ok(settled) => settled,
            Err(failure) => {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
                self.follow_at(Instant::now() + LATER, times);
                return;
            }
        };
        // An agent that has found the guest running has a plan of what it shall have.
        if let Some(plan) = &mut guest.plan {
            let is_new =
                |disk: &&PlannedDisk| !there.contains(&disk.name) && !gone.contains(&disk.name);
            let more: Vec<_> = plan.disks.iter().filter(is_new).collect();
            let more: Vec<_> = more.into_iter().map(|it| it.name.clone()).collect();
            gone.extend(more);
            plan.disks.retain(|disk| there.contains(&disk.name));
        }
        if !gone.is_empty() {
            self.tell_of_detached(gone);
            self.tell(guest, times);
            // What was said of it is true no more, or its object has it again.
            self.follow_at(Instant::now(), times);
        }
    }

    /// Whatever a guest has let go of while nobody listened, is settled.
    pub(super) fn follow_if_begun(&self, times: &mut Times) {
        let records = Records::of(&self.shared.config);
        let record = self.record(&records).ok().flatten();
        if record.is_some_and(|record| !record.changes.is_empty()) {
            self.follow_at(Instant::now(), times);
        }
    }

    /// VM pods stay as they were created.
    fn follow_at(&self, time: Instant, times: &mut Times) {
        if !self.pod.is_vm_pod() {
            times.follow = Some(time);
        }
    }

    fn tell_of_detached(&self, disks: Vec<String>) {
        for disk in disks {
            let note = format!("the guest has let go of disk {disk}");
            self.cluster().tell(&self.pod, "DiskDetached", &note);
        }
    }

    /// The disks that there are, once all that was begun is finished as far as it can be, and
    /// those that are not there any more because of that.
    fn try_settle(&self) -> Result<(Vec<String>, Vec<String>)> {
        let (libvirt, records) = (self.libvirt()?, Records::of(&self.shared.config));
        let gone = || Failure::new("the VM is gone");
        let record = self.record(&records)?.ok_or_else(gone)?;
        let leases = self.leases();
        let node = Node {
            libvirt: &libvirt,
            config: &self.shared.config,
            records: &records,
            launcher: None,
            leases: leases.as_ref(),
        };
        let (_held, settled) = node.hold_running(&record)?;
        let (vm, _) = node.running_vm(&settled)?;
        let there = vm.disks.into_iter().map(|disk| disk.name).collect();
        Ok((there, let_go(&record, &settled)))
    }
}

/// The way from what a guest has to what its object wants.
struct Following<'f> {
    machine: &'f Machine,
    node: &'f Node<'f>,
    record: &'f Record,
    wish: &'f Wish<'f>,
}

impl Following<'_> {
    /// What cannot be done is added to what is left, and keeps nothing else from being
    /// done. Returns the disks that are new.
    fn carry_out(
        &self,
        changes: &Changes,
        left: &mut Vec<String>,
    ) -> Result<(Vec<PlannedDisk>, Outcome)> {
        let cluster = self.machine.cluster();
        let (mut new, mut outcome) = (Vec::new(), Outcome::Final);
        let waits = self.detach_all(&changes.detach, left)?;
        if waits {
            outcome = Outcome::TriedAgain;
        }
        let mut not_done = |left: &mut Vec<String>, disk: &str, failure: Failure| -> Result<()> {
            outcome = Outcome::TriedAgain;
            not_done(left, disk, failure)
        };
        for (disk, size) in &changes.grow {
            match self.grow(disk, *size) {
                Ok(size) => {
                    let note = format!("disk {disk} has {size}");
                    cluster.tell(&self.machine.pod, "DiskResized", &note);
                }
                Err(failure) => not_done(left, disk, failure)?,
            }
        }
        for disk in &changes.attach {
            match self.attach(disk) {
                Ok(planned) => {
                    let note = format!("disk {disk} is attached at {}", planned.target.name());
                    cluster.tell(&self.machine.pod, "DiskAttached", &note);
                    new.push(planned);
                }
                Err(NoPlan::Failed(failure)) => not_done(left, disk, failure)?,
                Err(NoPlan::Refused(why)) => left.push(format!("disk {disk}: {why}")),
                Err(NoPlan::NoImage(missing)) => {
                    left.push(format!("disk {disk}: {}", missing.in_words()));
                }
            }
        }
        Ok((new, outcome))
    }

    /// Whether something of it has to be looked at again.
    fn detach_all(&self, disks: &[String], left: &mut Vec<String>) -> Result<bool> {
        let mut waits = false;
        for disk in disks {
            match self.detach(disk) {
                Ok(Detached::Gone) => self.machine.tell_of_detached(vec![disk.clone()]),
                Ok(Detached::Asked) => waits = true,
                Err(failure) => {
                    not_done(left, disk, failure)?;
                    waits = true;
                }
            }
        }
        Ok(waits)
    }

    /// Fails if the guest was asked before, and still has it.
    fn detach(&self, name: &str) -> Result<Detached> {
        let (held, record) = self.node.hold_running(self.record)?;
        let (vm, _) = self.node.running_vm(&record)?;
        // The guest may have let go of it just now.
        let Ok(disk) = vm.disk(name) else {
            return Ok(Detached::Gone);
        };
        live::demand_detachable(&vm, disk).map_err(|refusal| Failure::new(refusal.to_string()))?;
        let was_asked = record.changes.iter().any(|begun| begun.detaches(name));
        let asked = self.node.ask_to_detach(&held, &vm, disk);
        // QEMU may not want to be asked twice.
        let asked = match asked {
            Err(failure) if was_asked && !failure.is_outage() => Ok(()),
            asked => asked,
        };
        asked?;
        self.node.settle(&held)?;
        let is_there = self.node.libvirt.disk_at(vm.uuid, &disk.target)?.is_some();
        match (is_there, was_asked) {
            (false, _) => Ok(Detached::Gone),
            (true, false) => Ok(Detached::Asked),
            (true, true) => Err(Failure::new(
                "the guest was asked to let go of it, and still has it",
            )),
        }
    }

    fn grow(&self, name: &str, size: ByteSize) -> Result<ByteSize> {
        let (held, record) = self.node.hold_running(self.record)?;
        let (vm, _) = self.node.running_vm(&record)?;
        let disk = vm.disk(name);
        let disk = disk.map_err(|refusal| Failure::new(refusal.to_string()))?;
        let unwanted = &self.machine.unwanted;
        self.node.grow_to(&held, record, disk, size, unwanted)
    }

    fn attach(&self, name: &str) -> std::result::Result<PlannedDisk, NoPlan> {
        let (held, record) = self.node.hold_running(self.record)?;
        let (vm, _) = self.node.running_vm(&record)?;
        let plan = self.wish.addition(name, vm)?;
        let view = view_of(&plan)?;
        self.node
            .attach(&plan, &held, view, &self.machine.unwanted)?;
        let mut disks = plan.disks.into_iter();
        let gone = || Failure::new("what is behind it is not known");
        Ok(disks.next().ok_or_else(gone)?)
    }

    /// Of the disks that are known, those that the guest has, in its order.
    fn disks_among(&self, known: &[PlannedDisk]) -> Result<Vec<PlannedDisk>> {
        let (_held, record) = self.node.hold_running(self.record)?;
        let (vm, _) = self.node.running_vm(&record)?;
        let names = vm.disks.iter();
        let found = names.filter_map(|disk| known.iter().find(|it| it.name == disk.name));
        Ok(found.cloned().collect())
    }
}

/// The disks that a guest was asked to let go of, and has let go of meanwhile.
fn let_go(before: &Record, now: &Record) -> Vec<String> {
    let asked = before.changes.iter().filter_map(|begun| match begun {
        Change::Detach { name, .. } => Some(name),
        Change::Attach { .. } | Change::Resize { .. } => None,
    });
    let is_done = |name: &&String| !now.changes.iter().any(|begun| begun.detaches(name));
    asked.filter(is_done).cloned().collect()
}

/// Notes what could not be done with a disk. An outage fails all.
fn not_done(left: &mut Vec<String>, disk: &str, failure: Failure) -> Result<()> {
    if failure.is_outage() {
        return Err(failure);
    }
    left.push(format!("disk {disk}: {failure}"));
    Ok(())
}

fn disks_of(plan: &Value) -> &[Value] {
    plan["disks"].as_array().map_or(&[], Vec::as_slice)
}

fn plan_view(plan: &Plan) -> Result<Value> {
    let view = serde_json::to_value(plan.view(Reveal::Redact));
    view.map_err(|error| Failure::new("the plan cannot be written down").because(error))
}
