//! The life of a launcher pod's VM on this node, on a thread of its own: it may
//! wait for libvirt, for bytes and for the API server without anybody else
//! waiting along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use disklet_block::convert::Watch;
use disklet_core::launch::protocol::{Ended, FromAgent, How};
use disklet_core::plan::Plan;
use kube::runtime::events::EventType;
use uuid::Uuid;

use super::Shared;
use super::cluster::now;
use super::link::{Heard, Link};
use super::planning::{NoPlan, Planned, plan};
use super::pod::{Incarnation, LauncherPod};
use super::progress::Told as Progress;
use super::status::{Standing, status};
use crate::failure::{Failure, Result};
use crate::libvirt::{End, Event, Libvirt, Pause, State};
use crate::record::{Phase, Record, Records};
use crate::verbs::Node;

/// What a machine's thread is told.
#[derive(Debug)]
pub(super) enum Told {
    /// The pod, as it is now.
    Pod(Box<LauncherPod>),
    /// There is no such pod any more.
    PodGone,
    /// Of its launcher, or of one before.
    Heard(Incarnation, Heard),
    /// Something happened to some domain.
    Domain(Event),
    /// What happened was not told for a while.
    Look,
}

/// Set as soon as nobody wants the VM any more, for whoever is at work on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Unwanted {
    pod: Arc<AtomicBool>,
    launcher: Arc<AtomicBool>,
}

impl Unwanted {
    /// The pod is gone.
    pub(super) fn without_pod(&self) {
        self.pod.store(true, Ordering::SeqCst);
    }

    /// Its launcher is to end, or has.
    fn without_launcher(&self) {
        self.launcher.store(true, Ordering::SeqCst);
    }

    /// The same pod with another launcher.
    fn with_new_launcher(&self) -> Self {
        Self {
            pod: self.pod.clone(),
            launcher: Arc::default(),
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.pod.load(Ordering::SeqCst) || self.launcher.load(Ordering::SeqCst)
    }
}

impl Watch for Unwanted {
    fn advance(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        self.is_set()
    }
}

pub(super) struct Machine {
    pub(super) shared: Arc<Shared>,
    pub(super) pod: LauncherPod,
    pub(super) gone: bool,
    pub(super) unwanted: Unwanted,
    pub(super) told: Receiver<Told>,
    pub(super) teller: Sender<Told>,
}

/// A guest that runs for a launcher.
struct Guest {
    uuid: Uuid,
    generation: Option<i64>,
    plan: Option<Plan>,
}

/// How often something is tried again that others have to mend.
const AGAIN: Duration = Duration::from_secs(2);

impl Machine {
    /// Until nothing of the pod is left.
    pub(super) fn live(mut self) {
        let mut last = None;
        while !self.gone && !self.pod.over {
            match self.pod.runs.clone() {
                Some(launcher) if last.as_ref() != Some(&launcher) => {
                    self.serve(&launcher);
                    last = Some(launcher);
                }
                _ => match self.told.recv() {
                    Ok(told) => self.note(told),
                    Err(_) => return,
                },
            }
        }
        self.free(false);
    }

    /// What does not concern a running guest.
    fn note(&mut self, told: Told) {
        match told {
            Told::Pod(pod) => self.pod = *pod,
            Told::PodGone => self.gone = true,
            Told::Heard(..) | Told::Domain(_) | Told::Look => {}
        }
    }

    /// One run of the launcher, from its start to its end.
    fn serve(&mut self, launcher: &Incarnation) {
        self.unwanted = self.unwanted.with_new_launcher();
        let Some(link) = self.connect(launcher) else {
            return;
        };
        let (ended, guest) = match self.start(&link) {
            Ok(guest) => (self.attend(&link, &guest, launcher), Some(guest)),
            Err(ended) => (ended, None),
        };
        self.free(self.pod.comes_back(ended.how));
        if !self.gone {
            self.tell_end(&ended, guest.as_ref());
        }
        let _ = link.say(&FromAgent::Ended(ended));
    }

    /// The launcher listens soon after its container runs.
    fn connect(&mut self, launcher: &Incarnation) -> Option<Link> {
        let name = self.pod.full_name();
        while !self.gone && !self.pod.over && self.pod.runs.as_ref() == Some(launcher) {
            match Link::open(&self.shared.config, &self.pod.uid) {
                Ok(link) => {
                    let (teller, whose) = (self.teller.clone(), launcher.clone());
                    let unwanted = self.unwanted.clone();
                    let heard = link.hear(move |heard| {
                        unwanted.without_launcher();
                        let _ = teller.send(Told::Heard(whose.clone(), heard));
                    });
                    match heard {
                        Ok(()) => return Some(link),
                        Err(failure) => tracing::warn!(vm = name, "{failure}"),
                    }
                }
                Err(failure) => tracing::debug!(vm = name, "{failure}"),
            }
            match self.told.recv_timeout(AGAIN / 8) {
                Ok(told) => self.note(told),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Has the guest run, or finds it running.
    fn start(&self, link: &Link) -> std::result::Result<Guest, Ended> {
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
        let records = Records::of(&shared.config.data_dir);
        let before = self.record(&records)?;
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
            let guest = Guest {
                uuid: record.uuid,
                generation,
                plan,
            };
            return Ok(guest);
        }
        let planned = planned?;
        let node = Node {
            libvirt: &libvirt,
            config: &shared.config,
            records: &records,
            launcher: Some(link.process),
        };
        self.carry_out(&node, &planned)?;
        let guest = Guest {
            uuid: planned.plan.uuid,
            generation: planned.generation,
            plan: Some(planned.plan),
        };
        let name = &shared.node;
        let note = format!("the guest runs on node {name}");
        shared
            .cluster
            .tell(&self.pod, EventType::Normal, "Started", &note);
        self.write(&guest, &Standing::Running);
        Ok(guest)
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
        node.start(plan, &self.unwanted)?;
        node.set_phase(&held, Phase::Running)
    }

    /// Until the guest has ended, or its launcher has.
    fn attend(&mut self, link: &Link, guest: &Guest, launcher: &Incarnation) -> Ended {
        let end = |how, why: &str| Ended {
            how,
            why: why.to_owned(),
        };
        let _ = link.say(&FromAgent::Running);
        let mut deadline: Option<Instant> = None;
        let mut told = Ok(Told::Look);
        loop {
            match told {
                Ok(Told::Heard(whose, Heard::Stop(grace))) if whose == *launcher => {
                    let until = Instant::now() + Duration::from_secs(grace.into());
                    deadline = Some(deadline.map_or(until, |earlier| earlier.min(until)));
                    self.ask_to_stop(guest.uuid);
                }
                Ok(Told::Heard(whose, Heard::Gone)) if whose == *launcher => {
                    return end(How::Killed, "the launcher has gone away");
                }
                Ok(Told::Domain(event)) => {
                    if let Some(ended) = self.happened(link, guest, event) {
                        return ended;
                    }
                }
                Ok(Told::Look) => {
                    if let Some(ended) = self.look(guest) {
                        return ended;
                    }
                }
                Ok(other) => self.note(other),
                Err(RecvTimeoutError::Timeout) => {
                    return end(How::Killed, "the guest did not switch itself off in time");
                }
                Err(RecvTimeoutError::Disconnected) => return end(How::Killed, "the agent ends"),
            }
            if self.gone {
                return end(How::Killed, "the pod is gone");
            }
            told = match deadline {
                Some(until) => self
                    .told
                    .recv_timeout(until.saturating_duration_since(Instant::now())),
                None => self.told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
        }
    }

    fn ask_to_stop(&self, uuid: Uuid) {
        let asked = self.libvirt().and_then(|libvirt| libvirt.ask_to_stop(uuid));
        if let Err(failure) = asked {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
        }
    }

    fn happened(&self, link: &Link, guest: &Guest, event: Event) -> Option<Ended> {
        match event {
            Event::Stopped(uuid, end) if uuid == guest.uuid => return Some(ended(end)),
            Event::Paused(uuid, pause) if uuid == guest.uuid => {
                let why = match pause {
                    Pause::DiskError => {
                        "a disk cannot be read or written; if its storage is full, it goes on when there is room"
                    }
                    Pause::Wanted => "somebody has paused the guest",
                };
                let _ = link.say(&FromAgent::Paused {
                    why: why.to_owned(),
                });
                self.write(guest, &Standing::Paused(why.to_owned()));
                let cluster = &self.shared.cluster;
                cluster.tell(&self.pod, EventType::Warning, "Paused", why);
            }
            Event::Resumed(uuid) if uuid == guest.uuid => {
                let _ = link.say(&FromAgent::Running);
                self.write(guest, &Standing::Running);
            }
            _ => {}
        }
        None
    }

    /// Whether it ended while nobody told.
    fn look(&self, guest: &Guest) -> Option<Ended> {
        match self.libvirt().and_then(|libvirt| libvirt.state(guest.uuid)) {
            Ok(Some(State::Running | State::Paused)) => None,
            Ok(Some(State::Off(end))) => Some(ended(end)),
            Ok(None) => Some(ended(End::Destroyed)),
            // Whoever restarts libvirt tells us to look again.
            Err(_) => None,
        }
    }

    /// Removes what was made; volumes stay for a launcher that comes back.
    fn free(&self, keep_volumes: bool) {
        let mut told = false;
        while let Err(failure) = self.try_free(keep_volumes) {
            if !told {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
                told = true;
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn try_free(&self, keep_volumes: bool) -> Result<()> {
        let records = Records::of(&self.shared.config.data_dir);
        let Some(record) = self.record(&records)? else {
            return Ok(());
        };
        let libvirt = self.libvirt()?;
        let node = Node {
            libvirt: &libvirt,
            config: &self.shared.config,
            records: &records,
            launcher: None,
        };
        let held = records.hold(record.uuid)?;
        match keep_volumes {
            true => node.release_but_volumes(&held),
            false => node.release(held),
        }
    }

    /// What is on this node because of the pod.
    fn record(&self, records: &Records) -> Result<Option<Record>> {
        let mut all = records.list()?.into_iter();
        Ok(all.find(|record| record.pod.as_deref() == Some(self.pod.uid.as_str())))
    }

    fn libvirt(&self) -> Result<Libvirt> {
        Libvirt::open(self.shared.uri.as_deref()).map_err(Failure::into_outage)
    }

    fn tell_end(&self, ended: &Ended, guest: Option<&Guest>) {
        let standing = match ended.how {
            How::Off | How::Killed => Standing::Ended(ended.why.clone()),
            How::Crashed => Standing::Failed("Crashed", ended.why.clone()),
            How::Refused => Standing::Failed("Refused", ended.why.clone()),
            How::Failed => Standing::Failed("NotStarted", ended.why.clone()),
        };
        if let Standing::Failed(reason, why) = &standing {
            let cluster = &self.shared.cluster;
            cluster.tell(&self.pod, EventType::Warning, reason, why);
        }
        let none = Guest {
            uuid: Uuid::nil(),
            generation: None,
            plan: None,
        };
        self.write(guest.unwrap_or(&none), &standing);
    }

    fn write(&self, guest: &Guest, standing: &Standing) {
        let Shared { cluster, node, .. } = &*self.shared;
        let plan = guest.plan.as_ref();
        let status = status(&self.pod, node, guest.generation, plan, standing, &now());
        if let Err(failure) = cluster.write_status(&self.pod, &status) {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
        }
    }
}

fn ended(end: End) -> Ended {
    let how = match end {
        End::Shutdown | End::Unknown => How::Off,
        End::Destroyed => How::Killed,
        End::Failed => How::Crashed,
    };
    Ended {
        how,
        why: format!("the VM {}", end.in_words()),
    }
}
