//! Waiting for a guest's end.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use disklet_core::launch::protocol::{Ended, FromAgent, How};
use uuid::Uuid;

use super::{Guest, Machine, Told};
use crate::agent::link::{Heard, Link};
use crate::agent::pod::Incarnation;
use crate::agent::status::Standing;
use crate::libvirt::{End, Pause, State};

/// How often it is looked whether there is room again.
const ROOM_AGAIN: Duration = Duration::from_secs(5);
/// Less is not worth going on for.
const ROOM: u64 = 64 << 20;

/// When something has to be done without being told.
#[derive(Debug, Default)]
struct Times {
    /// The guest has been asked to switch itself off, and has until then.
    force: Option<Instant>,
    /// A disk was full: there may be room by then.
    retry: Option<Instant>,
}

impl Times {
    fn next(&self) -> Option<Duration> {
        let next = self.force.into_iter().chain(self.retry).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn is_force(&self) -> bool {
        self.force.is_some_and(|until| until <= Instant::now())
    }
}

impl Machine {
    /// Until the guest has ended, or its launcher has.
    pub(super) fn attend(&mut self, link: &Link, guest: &Guest, launcher: &Incarnation) -> Ended {
        let end = |how, why: &str| Ended {
            how,
            why: why.to_owned(),
        };
        let _ = link.say(&FromAgent::Running);
        let mut times = Times::default();
        let mut told = Ok(Told::Look);
        loop {
            match told {
                Ok(Told::Heard(whose, Heard::Stop(grace))) if whose == *launcher => {
                    let until = Instant::now() + Duration::from_secs(grace.into());
                    times.force = Some(times.force.map_or(until, |earlier| earlier.min(until)));
                    self.ask_to_stop(guest.uuid);
                }
                Ok(Told::Heard(whose, Heard::Gone)) if whose == *launcher => {
                    return end(How::Killed, "the launcher has gone away");
                }
                Ok(Told::Domain(event)) if event.is_of(guest.uuid) => {
                    if let Some(ended) = self.look(link, guest, &mut times) {
                        return ended;
                    }
                }
                Ok(Told::Look) => {
                    if let Some(ended) = self.look(link, guest, &mut times) {
                        return ended;
                    }
                }
                Ok(other) => self.note(other),
                Err(RecvTimeoutError::Timeout) if times.is_force() => {
                    return end(How::Killed, "the guest did not switch itself off in time");
                }
                Err(RecvTimeoutError::Timeout) => self.go_on(guest.uuid, &mut times),
                Err(RecvTimeoutError::Disconnected) => return end(How::Killed, "the agent ends"),
            }
            if self.gone {
                return end(How::Killed, "the pod is gone");
            }
            told = match times.next() {
                Some(left) => self.told.recv_timeout(left),
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

    /// How the guest is. Events only say that it is worth looking: they may be
    /// about an earlier run, or about the start, which is paused at first.
    fn look(&self, link: &Link, guest: &Guest, times: &mut Times) -> Option<Ended> {
        let seen = self.libvirt().and_then(|libvirt| {
            let state = libvirt.state(guest.uuid)?;
            Ok((state, libvirt.pause(guest.uuid)?))
        });
        match seen {
            Ok((Some(State::Off(end)), _)) => return Some(ended(end)),
            Ok((None, _)) => return Some(ended(End::Destroyed)),
            Ok((_, Some(pause))) => {
                if pause == Pause::DiskError {
                    times.retry = Some(Instant::now() + ROOM_AGAIN);
                }
                self.tell_pause(link, guest, pause);
            }
            Ok((_, None)) => {
                times.retry = None;
                if guest.paused.take() {
                    let _ = link.say(&FromAgent::Running);
                    self.write(guest, &Standing::Running);
                }
            }
            // Whoever restarts libvirt tells us to look again.
            Err(_) => {}
        }
        None
    }

    fn tell_pause(&self, link: &Link, guest: &Guest, pause: Pause) {
        if guest.paused.replace(true) {
            return;
        }
        let (reason, why) = match pause {
            Pause::DiskError => (
                "DiskFull",
                "a disk cannot be written, as its storage is full: the guest goes on when there is room",
            ),
            Pause::Wanted => ("Paused", "somebody has paused the guest"),
        };
        let _ = link.say(&FromAgent::Paused {
            why: why.to_owned(),
        });
        self.write(guest, &Standing::Paused(reason, why.to_owned()));
        let cluster = &self.shared.cluster;
        cluster.warn(&self.pod, reason, why);
    }

    /// QEMU tries again what it could not write.
    fn go_on(&self, uuid: Uuid, times: &mut Times) {
        times.retry = Some(Instant::now() + ROOM_AGAIN);
        let config = &self.shared.config;
        let mut pools = config.pools.values();
        if pools.all(|pool| room_in(&pool.path) >= ROOM) {
            let resumed = self.libvirt().and_then(|libvirt| libvirt.resume(uuid));
            if let Err(failure) = resumed {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
            }
        }
    }
}

fn room_in(directory: &str) -> u64 {
    // What cannot be asked is not what keeps the guest.
    rustix::fs::statvfs(directory).map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize))
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
