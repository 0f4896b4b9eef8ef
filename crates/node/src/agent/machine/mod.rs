//! The life of a launcher pod's VM on this node, on a thread of its own: it may
//! wait for libvirt, for bytes and for the API server without anybody else
//! waiting along.

mod attend;
mod disks;
mod free;
mod logins;
mod room;
pub(super) mod servers;
mod start;
mod times;
mod unwanted;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use disklet_core::launch::protocol::{Ended, FromAgent, How};
use disklet_core::plan::Plan;
use uuid::Uuid;

use super::Shared;
use super::cluster::{Cluster, now};
use super::leases::NodeLeases;
use super::link::{Heard, Link};
use super::pod::{Incarnation, LauncherPod};
use super::status::{Standing, add_left, news, pod_status, say_lost, says_alive, status};
use crate::failure::Result;
use crate::libvirt::Event;
use disks::Followed;
use servers::{Asked, Doubtful};
use start::NotStarted;

pub(super) use unwanted::Unwanted;

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
    /// The servers of a guest's disks were asked: which do not answer.
    Servers(Uuid, Vec<Doubtful>),
    /// What happened was not told for a while.
    Look,
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
    /// An agent before this one had it run: the status says more of it than a
    /// plan of today.
    found: bool,
    /// How it is, as far as is known.
    standing: RefCell<Standing>,
    /// Its status does not say so yet.
    untold: Cell<bool>,
    /// Which of its object's disks it has.
    followed: Followed,
    /// Whether the servers of its disks are there.
    servers: RefCell<Asked>,
}

impl Guest {
    fn new(uuid: Uuid, generation: Option<i64>, plan: Option<Plan>) -> Self {
        Self {
            uuid,
            generation,
            plan,
            found: false,
            standing: RefCell::new(Standing::Running),
            untold: Cell::new(true),
            followed: Followed::of(generation),
            servers: RefCell::default(),
        }
    }
}

/// How often something is tried again that others have to mend.
const AGAIN: Duration = Duration::from_secs(2);

impl Machine {
    /// Until nothing of the pod is left.
    pub(super) fn live(mut self) {
        let mut last = None;
        if self.pod.runs.is_none() {
            self.end_orphan();
            self.unsay();
        }
        while !self.gone && !self.pod.is_done() {
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
        self.unsay();
        self.let_go();
    }

    /// An agent before this one may not have said that the guest has ended.
    fn unsay(&self) {
        let none = Guest::new(Uuid::nil(), None, None);
        let why = "the guest has ended while no agent was there".to_owned();
        let ended = Standing::Ended(why);
        loop {
            let cluster = &self.shared.cluster;
            let status = cluster.status(&self.pod);
            let said = status.map(|it| it.is_some_and(|it| says_alive(&self.pod, &it)));
            let unsaid = said.and_then(|said| match said {
                true => self.write(cluster, &none, &ended),
                false => Ok(()),
            });
            match unsaid {
                Err(failure) if failure.is_outage() => std::thread::sleep(AGAIN),
                _ => return,
            }
        }
    }

    /// The API server, while a launcher is there: it is hardly waited for when the
    /// guest shall end.
    fn cluster(&self) -> Cluster {
        self.shared.cluster.unless(&self.unwanted)
    }

    /// The same of what other nodes have a say in.
    fn leases(&self) -> Option<NodeLeases> {
        let leases = self.shared.leases.as_ref();
        leases.map(|leases| leases.unless(&self.unwanted))
    }

    /// The pod may go: nothing is left of it here.
    fn let_go(&self) {
        if !self.pod.held || self.gone {
            return;
        }
        while let Err(failure) = self.shared.cluster.let_go(&self.pod) {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
            std::thread::sleep(AGAIN);
        }
    }

    /// What does not concern a running guest.
    fn note(&mut self, told: Told) {
        match told {
            Told::Pod(pod) => self.pod = *pod,
            Told::PodGone => self.gone = true,
            Told::Heard(..) | Told::Domain(_) | Told::Servers(..) | Told::Look => {}
        }
    }

    /// One run of the launcher, from its start to its end.
    fn serve(&mut self, launcher: &Incarnation) {
        self.unwanted = self.unwanted.with_new_launcher();
        let Some(link) = self.connect(launcher) else {
            return;
        };
        let begin = Instant::now();
        let (ended, reason, guest) = match self.start(&link) {
            Ok(mut guest) => {
                if !guest.found {
                    self.shared.metrics.started(begin.elapsed());
                }
                (self.attend(&link, &mut guest, launcher), None, Some(guest))
            }
            Err(NotStarted { ended, reason }) => (ended, reason, None),
        };
        self.shared.metrics.ended(ended.how);
        tracing::info!(vm = self.pod.full_name(), how = ?ended.how, "ended: {}", ended.why);
        let keep_volumes = self.pod.comes_back(ended.how);
        let is_all_free = self.free_here(keep_volumes);
        let standing = end_in_words(&ended, reason);
        let guest = guest.unwrap_or_else(|| Guest::new(Uuid::nil(), None, None));
        let mut told = Ok(());
        if !self.gone {
            if let Standing::Failed(reason, why) = &standing {
                let cluster = self.cluster();
                cluster.warn(&self.pod, reason, why);
            }
            // Before the launcher ends: then its pod tells the controller.
            told = self.write(&self.cluster(), &guest, &standing);
        }
        let _ = link.say(&FromAgent::Ended(ended));
        while let Err(failure) = told {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
            std::thread::sleep(AGAIN);
            // Nobody waits any more.
            told = self.write(&self.shared.cluster, &guest, &standing);
        }
        if !is_all_free {
            self.free(keep_volumes);
        }
    }

    /// The launcher listens soon after its container runs.
    fn connect(&mut self, launcher: &Incarnation) -> Option<Link> {
        let name = self.pod.full_name();
        while !self.gone && !self.pod.is_done() && self.pod.runs.as_ref() == Some(launcher) {
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

    /// Writes how a guest is into its VM's status, unless that says so already.
    /// It fails only if the API server is away.
    fn write(&self, cluster: &Cluster, guest: &Guest, standing: &Standing) -> Result<()> {
        let written = self.try_write(cluster, guest, standing);
        match written {
            Err(failure) if !failure.is_outage() => {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
                Ok(())
            }
            other => other,
        }
    }

    fn try_write(&self, cluster: &Cluster, guest: &Guest, standing: &Standing) -> Result<()> {
        let node = &self.shared.node;
        let Some(before) = cluster.status(&self.pod)? else {
            return Ok(());
        };
        let before = &before;
        if self.pod.is_vm_pod() {
            return match news(pod_status(standing, &now()), before) {
                Some(status) => cluster.write_status(&self.pod, &status),
                None => Ok(()),
            };
        }
        let plan = guest.plan.as_ref();
        let mut generation = guest.generation;
        let is_known = before["disks"].as_array().is_some_and(|it| !it.is_empty());
        let is_kept = guest.found && is_known && standing.has_disks();
        if is_kept {
            generation = before["observedGeneration"].as_i64();
        }
        let mut status = status(&self.pod, node, generation, plan, standing, &now());
        if let Some(why) = &guest.servers.borrow().missing {
            say_lost(&mut status, why);
        }
        add_left(&mut status, &guest.followed.left, before, &now());
        if is_kept {
            status["disks"] = before["disks"].clone();
        }
        match news(status, before) {
            Some(status) => cluster.write_status(&self.pod, &status),
            None => Ok(()),
        }
    }
}

/// `reason` is the word for it, if it is another than the usual one.
fn end_in_words(ended: &Ended, reason: Option<&'static str>) -> Standing {
    let why = ended.why.clone();
    let usual = match ended.how {
        How::Off | How::Killed => return Standing::Ended(why),
        How::Crashed => "Crashed",
        How::Refused => "Refused",
        How::Failed => "NotStarted",
    };
    Standing::Failed(reason.unwrap_or(usual), why)
}
