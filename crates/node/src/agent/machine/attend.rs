//! Waiting for a guest's end.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use disklet_core::launch::protocol::{Ended, FromAgent, How};
use kube::runtime::events::EventType;
use uuid::Uuid;

use super::{Guest, Machine, Told};
use crate::agent::link::{Heard, Link};
use crate::agent::pod::Incarnation;
use crate::agent::status::Standing;
use crate::libvirt::{End, Event, Pause, State};

impl Machine {
    /// Until the guest has ended, or its launcher has.
    pub(super) fn attend(&mut self, link: &Link, guest: &Guest, launcher: &Incarnation) -> Ended {
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

    fn is_paused(&self, uuid: Uuid) -> bool {
        let state = self.libvirt().and_then(|libvirt| libvirt.state(uuid));
        matches!(state, Ok(Some(State::Paused)))
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
            // It is told of the start as well, which is paused at first.
            Event::Paused(uuid, pause) if uuid == guest.uuid && self.is_paused(uuid) => {
                let why = match pause {
                    Pause::DiskError => {
                        "a disk cannot be read or written; if its storage is full, it goes on when there is room"
                    }
                    Pause::Wanted => "somebody has paused the guest",
                };
                let _ = link.say(&FromAgent::Paused {
                    why: why.to_owned(),
                });
                guest.paused.set(true);
                self.write(guest, &Standing::Paused(why.to_owned()));
                let cluster = &self.shared.cluster;
                cluster.tell(&self.pod, EventType::Warning, "Paused", why);
            }
            Event::Resumed(uuid) if uuid == guest.uuid && guest.paused.take() => {
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
