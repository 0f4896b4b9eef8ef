//! A launcher's course, from the agent's coming to the VM's end.

use std::io::Write;
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use disklet_core::launch::grace::of_guest;
use disklet_core::launch::protocol::{Ended, FromAgent, FromLauncher, How, Message, VERSION};

use super::agent::{Connection, Event};
use super::tell::Teller;

/// What has happened so far.
#[derive(Debug)]
pub(super) struct Course {
    grace: Duration,
    teller: Teller,
    agent: Option<Connection>,
    /// An agent was here, so there may be a VM.
    met: bool,
    /// The end that the guest was told, and how often.
    stop: Option<(Instant, u32)>,
}

/// After it, a node without an agent is the likely reason.
const SOON: Duration = Duration::from_secs(30);
/// The agent takes a line at once, or is stuck.
const TO_TAKE_A_LINE: Duration = Duration::from_secs(5);
/// Who asks twice is in a hurry.
const HURRY: Duration = Duration::from_secs(5);

impl Course {
    /// `grace` is the pod's.
    pub(super) fn new(grace: Duration, teller: Teller) -> Self {
        Self {
            grace: of_guest(grace),
            teller,
            agent: None,
            met: false,
            stop: None,
        }
    }

    /// Goes on until the VM has ended.
    pub(super) fn run(mut self, events: &Receiver<Event>) -> Ended {
        let mut patience = SOON;
        loop {
            let event = match events.recv_timeout(patience) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    patience = Duration::MAX;
                    if !self.met {
                        self.teller.tell(
                            "the agent of this node has not come yet: does disklet-agent run here?",
                        );
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return lost(),
            };
            if let Some(ended) = self.step(event) {
                return ended;
            }
        }
    }

    fn step(&mut self, event: Event) -> Option<Ended> {
        match event {
            Event::Came(connection) => self.greet(connection),
            Event::Said(number, message) if self.is_current(number) => return self.hear(message),
            Event::Left(number, why) if self.is_current(number) => {
                self.agent = None;
                self.teller.tell(&match why {
                    None => "the agent has gone; the VM runs on, and waits for the next".to_owned(),
                    Some(why) => format!("the connection with the agent has ended: {why}"),
                });
            }
            Event::Said(..) | Event::Left(..) => {}
            Event::ToldToEnd => return self.end(),
        }
        None
    }

    fn is_current(&self, number: usize) -> bool {
        self.agent.as_ref().is_some_and(|it| it.number == number)
    }

    fn greet(&mut self, connection: Connection) {
        if let Some(old) = self.agent.replace(connection) {
            let _ = old.stream.shutdown(Shutdown::Both);
        }
        self.met = true;
        self.say(&FromLauncher::Hello { version: VERSION });
        if self.stop.is_some() {
            self.say_stop();
        }
    }

    fn hear(&mut self, message: FromAgent) -> Option<Ended> {
        match message {
            FromAgent::Hello { .. } => {}
            FromAgent::Working { what } => self.teller.tell(&what),
            FromAgent::Running => self.teller.tell("the VM runs"),
            FromAgent::Paused { why } => self.teller.tell(&format!("the VM is paused: {why}")),
            FromAgent::Ended(ended) => return Some(ended),
        }
        None
    }

    fn end(&mut self) -> Option<Ended> {
        if !self.met {
            return Some(Ended {
                how: How::Off,
                why: "told to end before the agent of this node has come".to_owned(),
            });
        }
        let now = Instant::now();
        self.stop = Some(match self.stop {
            None => (now + self.grace, 1),
            Some((end, 1)) => (end.min(now + HURRY), 2),
            Some((_, times)) => (now, times.saturating_add(1)),
        });
        let left = self.left();
        self.teller.tell(&match left {
            0 => "told to end: the VM is ended by force".to_owned(),
            left => format!("told to end: the guest has {left} s to switch itself off"),
        });
        self.say_stop();
        None
    }

    /// Whole seconds until the end that the guest was told.
    fn left(&self) -> u32 {
        let end = self.stop.map(|(end, _)| end);
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let millis = left.unwrap_or_default().as_millis();
        u32::try_from(millis.div_ceil(1000)).unwrap_or(u32::MAX)
    }

    fn say_stop(&mut self) {
        let grace = self.left();
        self.say(&FromLauncher::Stop { grace });
    }

    /// An agent that cannot take it is gone, and the next one hears it again.
    fn say(&mut self, message: &FromLauncher) {
        let Some(Connection { stream, .. }) = &mut self.agent else {
            return;
        };
        let sent = stream
            .set_write_timeout(Some(TO_TAKE_A_LINE))
            .and_then(|()| stream.write_all(message.to_line().as_bytes()));
        if sent.is_err() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Threads of ours hold the other end for ever.
fn lost() -> Ended {
    Ended {
        how: How::Failed,
        why: "the launcher's threads have ended".to_owned(),
    }
}
