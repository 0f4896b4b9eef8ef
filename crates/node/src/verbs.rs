//! What can be done to a VM: prepare, start, stop, release, reconcile. Each may
//! be said again at any time, and after any crash.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};

use disklet_block::convert::Watch;
use disklet_core::config::Config;
use disklet_core::plan::{Access, Plan, Step, StepKind};
use uuid::Uuid;

use crate::agent::NodeLeases;
use crate::cut::{self, Cut};
use crate::disk_names::with_disks;
use crate::executor::{Executor, is_needless, is_there, made_by, sweep_nodes, unmake};
use crate::failure::{Failure, Result};
use crate::libvirt::{Event, Events, Libvirt, State};
use crate::record::{Held, Made, Phase, Record, Records};
use crate::rivals::refuse_rivals;
use crate::taken::named;
use crate::trial;

/// This machine, as far as VMs go.
pub(crate) struct Node<'n> {
    pub(crate) libvirt: &'n Libvirt,
    pub(crate) config: &'n Config,
    pub(crate) records: &'n Records,
    /// The launcher that a VM is run for, in a cluster.
    pub(crate) launcher: Option<u32>,
    /// Storage that all nodes of a cluster reach, in one.
    pub(crate) leases: Option<&'n NodeLeases>,
}

impl Node<'_> {
    /// Makes all that a VM needs. If this is the VM's first time and it fails,
    /// nothing is left.
    pub(crate) fn prepare(&self, plan: &Plan, held: Held, watch: &dyn Watch) -> Result<Held> {
        let before = held.read()?;
        let shared = self.records.hold_shared_things()?;
        let outcome = self.intend(plan, &held, before.as_ref(), shared);
        let outcome =
            outcome.and_then(|()| self.carry_out(plan, &held, watch, |step| !step.is_of_start()));
        match outcome {
            Ok(()) => {
                self.note_complete(&held)?;
                Ok(held)
            }
            Err(failure) if !self.libvirt.is_alive() => Err(lost(failure)),
            // What an earlier run has completed stays for the next.
            Err(failure) if before.is_some() => {
                let forgotten = self.forget_keys(plan);
                let given_up = self.give_up_unless_running(&held);
                Err(match forgotten.and(given_up) {
                    Ok(()) => failure,
                    Err(undoing) => failure.and_not_undone(&undoing),
                })
            }
            Err(failure) => Err(self.undone(held, failure)),
        }
    }

    /// Undoes what was made for a VM that cannot be had; why it cannot. Without
    /// its daemon nothing can be undone.
    pub(crate) fn undone(&self, held: Held, failure: Failure) -> Failure {
        if !self.libvirt.is_alive() {
            return lost(failure);
        }
        match self.release(held) {
            Ok(()) => failure,
            Err(undoing) => failure.and_not_undone(&undoing),
        }
    }

    /// Has a prepared VM run.
    pub(crate) fn start(&self, plan: &Plan, held: &Held, watch: &dyn Watch) -> Result<()> {
        let outcome = self.carry_out(plan, held, watch, Step::is_of_start);
        // QEMU has opened its disks, or will not: no key is needed any more.
        let forgotten = self.forget_keys(plan);
        outcome.and(forgotten)
    }

    pub(crate) fn forget_keys(&self, plan: &Plan) -> Result<()> {
        let keys = plan.steps.iter().filter_map(made_by);
        keys.filter(Made::is_key)
            .try_for_each(|key| unmake(self.libvirt, &key))
    }

    /// Gives a guest time to end by itself; the release ends it otherwise.
    pub(crate) fn stop(&self, events: &Events, uuid: Uuid, grace: Duration) -> Result<()> {
        // One that stands still does not hear that it shall end.
        if grace.is_zero() || self.libvirt.state(uuid)? != Some(State::Running) {
            return Ok(());
        }
        self.libvirt.ask_to_stop(uuid)?;
        let until = Instant::now() + grace;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match events.receiver.recv_timeout(left) {
                Ok(Event::Stopped(whose, _)) if whose == uuid => return Ok(()),
                Ok(Event::Interrupted) => {
                    return Err(Failure::cancelled_but(
                        "the guest was asked to switch itself off",
                    ));
                }
                Ok(Event::Lost) => {
                    return Err(Failure::new(
                        "libvirt has gone away while the guest was switching itself off",
                    ));
                }
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Removes everything that a record names, in reverse, and then the record.
    pub(crate) fn release(&self, held: Held) -> Result<()> {
        if let Some(record) = held.read()? {
            held.mark_releasing(&record)?;
            self.unmake_all(&record, |_| true)?;
            self.give_up(&record, record.made.iter())?;
        }
        cut::boundary(Cut::Forgetting);
        held.forget()
    }

    /// The same, but the volumes and the record of them stay, and the right to what an
    /// overlay stands on: it is worth nothing over bytes that others wrote meanwhile.
    pub(crate) fn release_but_volumes(&self, held: &Held) -> Result<()> {
        let Some(mut record) = held.read()? else {
            return Ok(());
        };
        self.unmake_all(&record, |made| !made.is_volume())?;
        self.give_up_but_masters(&record)?;
        record.phase = Phase::Kept;
        held.write(&record)
    }

    /// Finishes what a crash has left half done: VMs that were never complete,
    /// or were being removed. Says which.
    pub(crate) fn reconcile(&self) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for record in self.records.list()? {
            let is_half = |record: &Record| match record.phase {
                Phase::Preparing | Phase::Releasing => true,
                Phase::Ready | Phase::Running | Phase::Kept => false,
            };
            // VMs of a cluster are its agent's, which knows their leases.
            let is_agents = record.pod.is_some() && self.leases.is_none();
            if is_agents || self.records.is_held(record.uuid) {
                continue;
            }
            if !is_half(&record) {
                self.reconcile_disks(&record)?;
                continue;
            }
            let held = self.records.hold(record.uuid)?;
            // One that runs is not half removed; who says `up` ends that phase.
            let is_off = self.libvirt.is_running(record.uuid)? != Some(true);
            let is_here = self.libvirt.demand_daemon_of(&record).is_ok();
            if is_off && is_here && held.read()?.is_some_and(|record| is_half(&record)) {
                self.release(held)
                    .map_err(|failure| failure.of(&record.full_name()))?;
                removed.push(record.full_name());
            }
        }
        self.records.sweep()?;
        sweep_nodes(&self.config.run_dir, |number| self.is_device_used(number))?;
        trial::sweep(&self.config.data_dir)?;
        Ok(removed)
    }

    /// Whether a VM runs with this device.
    fn is_device_used(&self, number: &str) -> Result<bool> {
        let is_it = |made: &Made| matches!(made, Made::Device { number: of, .. } if of == number);
        for record in self.records.list()? {
            if record.made.iter().any(is_it) && self.libvirt.is_running(record.uuid)? == Some(true)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes down what is about to be made, unless something is in the way.
    fn intend(
        &self,
        plan: &Plan,
        held: &Held,
        before: Option<&Record>,
        _shared: File,
    ) -> Result<()> {
        let needed = plan.steps.iter().filter(|step| !is_needless(plan, step));
        let mut made: Vec<Made> = needed.filter_map(made_by).collect();
        self.number_devices(&mut made);
        if self.leases.is_none() {
            made.iter_mut().for_each(Made::be_known_here_only);
        }
        let known = |made: &Made| {
            before.is_some_and(|record| record.made.iter().any(|there| there.is_at(made)))
        };
        let domain = Made::Domain { uuid: plan.uuid };
        // Of a VM of which the volumes were kept, it was removed.
        let has_domain = before.is_some_and(|record| record.phase != Phase::Kept);
        refuse_rivals(self.libvirt, plan, has_domain && known(&domain))?;
        for made in made.iter().filter(|made| !known(made)) {
            if let Some(what) = is_there(self.libvirt, made)? {
                let what = named(plan, made, what);
                return Err(Failure::new(format!(
                    "{what} is there already and was not made for this VM"
                ))
                .help("remove it if nobody needs it, or give the VM another name or UUID"));
            }
        }
        if let Some(before) = before {
            self.refuse_moved(before, plan)?;
            refuse_lost(before, plan, &made)?;
        }
        self.refuse_taken(plan, &made)?;
        self.refuse_emptied(plan)?;
        let stays = match before {
            Some(before) => self.promised_beside(before, plan)?,
            None => BTreeMap::new(),
        };
        self.refuse_beyond_pools(plan, &stays)?;
        let mut record = Record::of(plan, self.libvirt.address()?, &made);
        if let Some(before) = before {
            record.created = before.created;
            record.whole.clone_from(&before.whole);
            record.phase = match before.phase {
                // A half-done VM is whole only when all of it is; of one that was
                // half removed, what is still there was given up.
                Phase::Preparing | Phase::Releasing => Phase::Preparing,
                Phase::Ready | Phase::Running | Phase::Kept => Phase::Ready,
            };
            for made in &before.made {
                if self.disk_upon(before, made).is_some() {
                    record.has_since(before, made);
                }
            }
            record.made = self.with_what_stays(before, record.made)?;
            for (pool, bytes) in stays {
                *record.promised.entry(pool).or_default() += bytes;
            }
        }
        self.keep_plan(plan)?;
        held.write(&record)
    }

    /// What the VM had and has no more goes; but volumes, which may hold
    /// somebody's data, only with the VM, and pools with the last.
    fn with_what_stays(&self, before: &Record, made: Vec<Made>) -> Result<Vec<Made>> {
        let is_gone = |old: &&Made| !made.iter().any(|new| new.is_at(old));
        let mut all = Vec::new();
        for old in before.made.iter().filter(is_gone) {
            match old {
                Made::Volume { .. } | Made::Pool { .. } => all.push(old.clone()),
                Made::Lease { .. } => self.give_up(before, std::iter::once(old))?,
                _ => unmake(self.libvirt, old)?,
            }
        }
        all.extend(made);
        Ok(all)
    }

    pub(crate) fn carry_out(
        &self,
        plan: &Plan,
        held: &Held,
        watch: &dyn Watch,
        wanted: impl Fn(&Step) -> bool,
    ) -> Result<()> {
        let executor = Executor {
            libvirt: self.libvirt,
            config: self.config,
            plan,
            user: self.libvirt.qemu_user()?,
            launcher: self.launcher,
            watch,
            held,
            leases: self.leases,
        };
        let is_wanted = |step: &&Step| wanted(step) && !is_needless(plan, step);
        let is_lease = |step: &&Step| step.kind() == StepKind::TakeLease;
        // Whoever has to wait for storage has made nothing yet. All take them in one order:
        // of two who need the same, one has all of it.
        let mut leases: Vec<_> = plan.steps.iter().filter(is_lease).collect();
        leases.sort_by_key(|step| made_by(step).and_then(|made| made.object().map(str::to_owned)));
        let leases = leases.into_iter();
        let others = plan.steps.iter().filter(|step| !is_lease(step));
        for step in leases.chain(others).filter(is_wanted) {
            cut::boundary(Cut::Before(step.kind()));
            if watch.cancelled() {
                return Err(Failure::cancelled());
            }
            executor
                .carry_out(step)
                .map_err(|failure| with_disks(failure, plan, self.libvirt))?;
        }
        cut::boundary(Cut::Done);
        Ok(())
    }

    fn unmake_all(&self, record: &Record, wanted: impl Fn(&Made) -> bool) -> Result<()> {
        for made in record.made.iter().rev().filter(|made| wanted(made)) {
            cut::boundary(Cut::Removing);
            match made {
                Made::Pool { .. } => self.unmake_pool(record, made)?,
                _ => unmake(self.libvirt, made)?,
            }
        }
        Ok(())
    }

    /// Other nodes may use what this VM has used. It is off.
    pub(crate) fn give_up<'m>(
        &self,
        record: &Record,
        made: impl Iterator<Item = &'m Made>,
    ) -> Result<()> {
        match self.leases {
            Some(leases) => leases.give_up(record.uuid, made),
            None => Ok(()),
        }
    }

    /// The same of a VM that may come back with its volumes.
    fn give_up_but_masters(&self, record: &Record) -> Result<()> {
        // Without its plan nobody knows what they stand on.
        let is_known = self.kept_plan(record.uuid).is_some();
        let has_volume = record.made.iter().any(Made::is_volume);
        let is_free = |made: &&Made| match is_known || !has_volume {
            true => self.disk_upon(record, made).is_none(),
            false => made.access() != Some(Access::ReadShared.name()),
        };
        self.give_up(record, record.made.iter().filter(is_free))
    }

    /// A VM that cannot be had keeps nobody waiting, but for what its overlays stand on.
    fn give_up_unless_running(&self, held: &Held) -> Result<()> {
        match held.read()? {
            Some(record) if self.libvirt.is_running(record.uuid)? != Some(true) => {
                self.give_up_but_masters(&record)
            }
            _ => Ok(()),
        }
    }

    /// The last VM takes the pool along.
    pub(crate) fn unmake_pool(&self, record: &Record, pool: &Made) -> Result<()> {
        let _shared = self.records.hold_shared_things()?;
        let others = self.records.list()?;
        let mut others = others.iter().filter(|other| other.uuid != record.uuid);
        match others.any(|other| other.made.contains(pool)) {
            true => Ok(()),
            false => unmake(self.libvirt, pool),
        }
    }

    /// All that the VM needs is there.
    fn note_complete(&self, held: &Held) -> Result<()> {
        let Some(before) = held.read()? else {
            return Ok(());
        };
        let mut record = before.clone();
        record.phase = Phase::Ready;
        record.complete(&before.made);
        match record.whole == before.whole && record.phase == before.phase {
            true => Ok(()),
            false => held.write(&record),
        }
    }

    pub(crate) fn set_phase(&self, held: &Held, phase: Phase) -> Result<()> {
        match held.read()? {
            Some(mut record) if record.phase != phase => {
                record.phase = phase;
                held.write(&record)
            }
            _ => Ok(()),
        }
    }
}

/// A volume that a guest has had is not made anew by itself.
fn refuse_lost(before: &Record, plan: &Plan, made: &[Made]) -> Result<()> {
    let Some(path) = before.lost(made) else {
        return Ok(());
    };
    let what = path.display().to_string();
    let what = named(plan, &Made::Volume { path }, what);
    Err(Failure::new(format!(
        "{what} is gone, and held what the guest wrote"
    ))
    .help(format!(
        "bring it back: is its filesystem mounted? If the data are not needed, say disklet down {} first",
        plan.name
    )))
}

/// What was made is in the record, and stays until somebody says what shall
/// become of it.
pub(crate) fn lost(failure: Failure) -> Failure {
    failure.of_lost_daemon().help(
        "say disklet up again once libvirtd answers: it goes on with what was begun; or disklet \
         down, which removes it",
    )
}

/// The same of a VM that runs on meanwhile.
pub(crate) fn lost_meanwhile(failure: Failure) -> Failure {
    failure
        .of_lost_daemon()
        .help("say it again once libvirtd answers: what was begun is finished or undone first")
}
