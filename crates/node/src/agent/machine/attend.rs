//! Waiting for a guest's end.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use disklet_core::launch::protocol::{Ended, FromAgent, How};
use uuid::Uuid;

use super::room::is_full;
use super::servers::first_asked;
use super::times::{PRESS_AGAIN, Times};
use super::{Guest, Machine, Told};
use crate::agent::link::{Heard, Link};
use crate::agent::pod::Incarnation;
use crate::agent::status::Standing;
use crate::libvirt::{End, Event, Pause, State};

impl Machine {
    /// Until the guest has ended, or its launcher has.
    pub(super) fn attend(
        &mut self,
        link: &Link,
        guest: &mut Guest,
        launcher: &Incarnation,
    ) -> Ended {
        let mut times = Times {
            follow: self.when_to_follow(guest),
            ask: Some(first_asked(guest.uuid)),
            ..Times::default()
        };
        let mut told = Ok(Told::Look);
        let _ = link.say(&FromAgent::Running);
        loop {
            // Whatever else has happened meanwhile, this comes first.
            if let Some(grace) = link.take_wish()
                && let Some(ended) = self.stop(guest, grace, &mut times)
            {
                return ended;
            }
            let ended = match told {
                Ok(Told::Heard(whose, Heard::Gone)) if whose == *launcher => {
                    Some(killed("the launcher has gone away"))
                }
                Ok(Told::Domain(Event::Removed(whose))) if whose == guest.uuid => {
                    self.settle_disks(guest, &mut times);
                    None
                }
                Ok(Told::Domain(Event::Kept(whose))) if whose == guest.uuid => {
                    let note = "the guest does not let go of a disk that its object has no more";
                    self.cluster().warn(&self.pod, "DiskKept", note);
                    None
                }
                Ok(Told::Servers(whose, doubtful)) if whose == guest.uuid => {
                    self.heard_of_servers(guest, doubtful, &mut times);
                    None
                }
                Ok(Told::Domain(event)) if event.is_of(guest.uuid) => {
                    self.look(link, guest, &mut times)
                }
                Ok(Told::Look) => {
                    self.follow_if_begun(&mut times);
                    self.look(link, guest, &mut times)
                }
                Ok(Told::Pod(pod)) => {
                    let answered = self.pod.answers;
                    self.pod = *pod;
                    times.has_until(self.pod.grace);
                    if self.pod.answers != answered {
                        self.tell(guest, &mut times);
                    }
                    let times_to_follow = [times.follow, self.when_to_follow(guest)];
                    times.follow = times_to_follow.into_iter().flatten().min();
                    // Somebody else may still have the launcher's socket.
                    let is_done = self.pod.is_done();
                    is_done.then(|| killed("the launcher's container has ended"))
                }
                Ok(other) => {
                    self.note(other);
                    None
                }
                Err(RecvTimeoutError::Timeout) => self.on_time(link, guest, &mut times),
                Err(RecvTimeoutError::Disconnected) => Some(killed("the agent ends")),
            };
            if let Some(ended) = ended {
                return ended;
            }
            if self.gone {
                return killed("the pod is gone");
            }
            told = match times.next() {
                Some(left) => self.told.recv_timeout(left),
                None => self.told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
        }
    }

    /// The guest shall switch itself off in time.
    fn stop(&self, guest: &Guest, grace: u32, times: &mut Times) -> Option<Ended> {
        times.stop(Duration::from_secs(grace.into()), self.pod.grace);
        // It has been asked, and is asked again in time.
        if times.press.is_some() {
            return None;
        }
        // One that stands still does not hear that it shall end.
        let pause = self.libvirt().and_then(|libvirt| libvirt.pause(guest.uuid));
        if matches!(pause, Ok(Some(_))) {
            return Some(killed("the guest was paused, and cannot switch itself off"));
        }
        self.press(guest.uuid, times);
        None
    }

    /// Presses the power button. A guest that boots does not hear it yet: it is
    /// pressed until it does.
    fn press(&self, uuid: Uuid, times: &mut Times) {
        times.press = Some(Instant::now() + PRESS_AGAIN);
        let asked = self.libvirt().and_then(|libvirt| libvirt.ask_to_stop(uuid));
        if let Err(failure) = asked {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
        }
    }

    /// Whatever is due.
    fn on_time(&self, link: &Link, guest: &mut Guest, times: &mut Times) -> Option<Ended> {
        let now = Instant::now();
        let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        if is_due(times.force) {
            return Some(killed("the guest did not switch itself off in time"));
        }
        if is_due(times.press) {
            self.press(guest.uuid, times);
        }
        if is_due(times.retry) {
            self.go_on(guest, times);
        }
        if is_due(times.tell) {
            self.tell(guest, times);
        }
        if is_due(times.ask) {
            self.ask_servers(guest, times);
        }
        if is_due(times.follow) {
            self.follow(link, guest, times);
        }
        let settled = is_due(times.settle);
        if settled {
            times.settle_now();
        }
        match settled || is_due(times.look) {
            true => self.look(link, guest, times),
            false => None,
        }
    }

    /// How the guest is. Events only say that it is worth looking: they may be
    /// about an earlier run, or about the start, which is paused at first.
    fn look(&self, link: &Link, guest: &Guest, times: &mut Times) -> Option<Ended> {
        let seen = self.libvirt().and_then(|libvirt| {
            let state = libvirt.state(guest.uuid)?;
            Ok((state, libvirt.pause(guest.uuid)?))
        });
        times.look = None;
        match seen {
            Ok((Some(State::Off(end)), _)) => return Some(ended(end)),
            Ok((None, _)) => return Some(ended(End::Destroyed)),
            Ok((_, Some(Pause::DiskError))) => self.disk_full(link, guest, times),
            Ok((_, Some(Pause::Wanted))) => {
                let why = "somebody has paused the guest".to_owned();
                self.stands(link, guest, Standing::Paused("Paused", why), times);
            }
            Ok((_, None)) => {
                let was_full = is_full(&guest.standing.borrow());
                if !times.is_settling(was_full) {
                    self.stands(link, guest, Standing::Running, times);
                }
            }
            // What happens meanwhile is told to nobody.
            Err(_) => times.look = Some(Instant::now() + super::AGAIN),
        }
        None
    }

    /// How a guest was found to be; what is new is told.
    pub(super) fn stands(&self, link: &Link, guest: &Guest, now: Standing, times: &mut Times) {
        let before = guest.standing.replace(now);
        let now = guest.standing.borrow().clone();
        let cluster = self.cluster();
        match (&before, &now) {
            _ if before == now => {}
            (_, Standing::Paused(reason, why)) => {
                let _ = link.say(&FromAgent::Paused { why: why.clone() });
                cluster.warn(&self.pod, reason, why);
                self.shared.metrics.paused(reason);
            }
            (Standing::Paused(..), _) => {
                let _ = link.say(&FromAgent::Running);
                cluster.tell(&self.pod, "Resumed", "the guest goes on");
            }
            _ => {}
        }
        if before != now || guest.untold.get() {
            self.tell(guest, times);
        }
    }

    /// Writes how the guest is into its status; soon again, if nobody listens.
    pub(super) fn tell(&self, guest: &Guest, times: &mut Times) {
        let told = self.write(&self.cluster(), guest, &guest.standing.borrow());
        guest.untold.set(told.is_err());
        times.tell = told.err().map(|failure| {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
            Instant::now() + super::AGAIN
        });
    }
}

fn killed(why: &str) -> Ended {
    Ended {
        how: How::Killed,
        why: why.to_owned(),
    }
}

fn ended(end: End) -> Ended {
    let how = match end {
        End::Shutdown => How::Off,
        End::Destroyed => How::Killed,
        // It has run; if libvirt does not know how that ended, nobody wanted it.
        End::Failed | End::Unknown => How::Crashed,
    };
    Ended {
        how,
        why: format!("the VM {}", end.in_words()),
    }
}
