//! Whether the servers are there that the disks of a guest are at.
//!
//! QEMU tells nobody of a server that keeps it waiting, and a guest that gets errors
//! runs on. So they are asked, seldom, by what costs them nothing.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use disklet_core::networks::Networks;
use disklet_core::plan::{Plan, PlannedDisk};
use disklet_core::source::Servers;

use super::times::Times;
use super::{Guest, Machine, Told};
use crate::knock::{SOON, knock_where};

/// How often they are asked while all answer.
const SELDOM: Duration = Duration::from_secs(30);
/// And while one does not.
const OFTEN: Duration = Duration::from_secs(5);

/// The word for it.
pub(in crate::agent) const SERVER_LOST: &str = "ServerLost";

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// One did not answer the last time. Once is no reason to tell anybody.
    doubted: bool,
    /// In words, which do not.
    pub(super) missing: Option<String>,
}

/// What there is to tell.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Nothing,
    /// Others than before, or none before, do not answer.
    Lost(String),
    Back,
}

impl Asked {
    /// Somebody has asked them: those that do not answer, in words.
    fn heard(&mut self, missing: &[String]) -> News {
        if missing.is_empty() {
            self.doubted = false;
            return match self.missing.take() {
                Some(_) => News::Back,
                None => News::Nothing,
            };
        }
        if !std::mem::replace(&mut self.doubted, true) {
            return News::Nothing;
        }
        let now = missing.join("; ");
        if self.missing.as_ref() == Some(&now) {
            return News::Nothing;
        }
        self.missing = Some(now.clone());
        News::Lost(now)
    }

    fn again(&self) -> Duration {
        if self.doubted { OFTEN } else { SELDOM }
    }
}

impl Machine {
    /// Asks those of a guest's disks. What they say is told later.
    pub(super) fn ask_servers(&self, guest: &Guest, times: &mut Times) {
        times.ask = None;
        let disks = at_servers(guest.plan.as_ref());
        if disks.is_empty() && guest.servers.borrow().missing.is_none() {
            times.ask = Some(Instant::now() + SELDOM);
            return;
        }
        let (whose, teller) = (guest.uuid, self.teller.clone());
        let networks = self.shared.config.networks.clone();
        std::thread::spawn(move || {
            let _ = teller.send(Told::Servers(whose, missing(&disks, &networks)));
        });
    }

    /// What became of it.
    pub(super) fn heard_of_servers(&self, guest: &Guest, missing: &[String], times: &mut Times) {
        let news = guest.servers.borrow_mut().heard(missing);
        times.ask = Some(Instant::now() + guest.servers.borrow().again());
        let cluster = self.cluster();
        match news {
            News::Nothing => return,
            News::Lost(why) => cluster.warn(&self.pod, SERVER_LOST, &why),
            News::Back => {
                let note = "the servers of all disks answer again";
                cluster.tell(&self.pod, "ServerBack", note);
            }
        }
        self.tell(guest, times);
    }
}

/// A disk's name, its servers, and those of their names that users gave.
type AtServers = (String, Servers, Vec<String>);

fn at_servers(plan: Option<&Plan>) -> Vec<AtServers> {
    let disks = plan.into_iter().flat_map(|plan| &plan.disks);
    let of = |disk: &PlannedDisk| {
        let servers = Servers::of(disk.at_servers()?);
        Some((disk.name.clone(), servers, disk.server_names.clone()))
    };
    disks.filter_map(of).collect()
}

/// Those that do not answer, all asked at once.
fn missing(disks: &[AtServers], networks: &Networks) -> Vec<String> {
    std::thread::scope(|scope| {
        let asked = disks.iter().map(|(disk, servers, names)| {
            scope.spawn(move || {
                // A name may lead elsewhere than when it was judged.
                let allowed = |host: &str, address: IpAddr| {
                    !names.iter().any(|name| name == host) || networks.denied(address).is_none()
                };
                let why = knock_where(servers, SOON, &allowed).missing_in_words()?;
                Some(format!("disk {disk}: {servers} {why}"))
            })
        });
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|thread| thread.join().ok().flatten());
        answers.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_twice_is_told_once() {
        let mut asked = Asked::default();
        let lost = |words: &str| [words.to_owned()];
        assert_eq!(asked.heard(&[]), News::Nothing);
        assert_eq!(asked.again(), SELDOM);
        // A moment's trouble.
        assert_eq!(asked.heard(&lost("a")), News::Nothing);
        assert_eq!(asked.again(), OFTEN);
        assert_eq!(asked.heard(&[]), News::Nothing);
        assert_eq!(asked.heard(&lost("a")), News::Nothing);
        assert_eq!(asked.heard(&lost("a")), News::Lost("a".to_owned()));
        assert_eq!(asked.heard(&lost("a")), News::Nothing);
        assert_eq!(asked.heard(&lost("a; b")), News::Lost("a; b".to_owned()));
        assert_eq!(asked.heard(&[]), News::Back);
        assert_eq!(asked.heard(&[]), News::Nothing);
        assert_eq!(asked.again(), SELDOM);
    }
}
