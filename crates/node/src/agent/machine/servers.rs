//! Whether the servers are there that the disks of a guest are at.
//!
//! QEMU tells nobody of a server that keeps it waiting, and a guest that gets errors
//! runs on. So they are asked, seldom, by what costs them nothing.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disklet_core::networks::Networks;
use disklet_core::plan::{Plan, PlannedDisk};
use disklet_core::source::Servers;
use uuid::Uuid;

use super::logins::Keyed;
use super::times::Times;
use super::{Guest, Machine, Told};
use crate::knock::{Answer, SOON, knock_where};

/// How often they are asked while all answer.
const SELDOM: Duration = Duration::from_secs(30);
/// And while one does not.
const OFTEN: Duration = Duration::from_secs(5);

/// The word for it.
pub(in crate::agent) const SERVER_LOST: &str = "ServerLost";

/// What became of asking for a disk.
#[derive(Debug)]
pub(in crate::agent) struct Doubtful {
    disk: String,
    /// In words, how its servers do not answer; of one that may be there for the guest
    /// alone nothing.
    lost: Option<String>,
    /// They are there, and do not let the guest in.
    refused: bool,
}

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// One did not answer the last time. Once is no reason to tell anybody.
    doubted: bool,
    /// The disks whose servers did not answer the last time, or refused their key.
    in_doubt: BTreeSet<String>,
    /// Those of which that was told, and whether their key is refused.
    lost: BTreeSet<(String, bool)>,
    /// In words, which and how.
    pub(super) missing: Option<String>,
    /// Disks whose servers say nothing to anybody but the guest.
    closed: BTreeSet<String>,
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
    /// Somebody has asked them.
    fn heard(&mut self, doubtful: Vec<Doubtful>) -> News {
        let (mut lost, mut words) = (BTreeSet::new(), Vec::new());
        self.in_doubt.clear();
        for Doubtful {
            disk,
            lost: how,
            refused,
        } in doubtful
        {
            match how {
                None => _ = self.closed.insert(disk),
                Some(how) => {
                    words.push(format!("disk {disk}: {how}"));
                    self.in_doubt.insert(disk.clone());
                    lost.insert((disk, refused));
                }
            }
        }
        if lost.is_empty() {
            self.doubted = false;
            self.lost.clear();
            return match self.missing.take() {
                Some(_) => News::Back,
                None => News::Nothing,
            };
        }
        // How they do not answer may change from one time to the next.
        if !std::mem::replace(&mut self.doubted, true) || self.lost == lost {
            return News::Nothing;
        }
        let words = words.join("; ");
        self.lost = lost;
        self.missing = Some(words.clone());
        News::Lost(words)
    }

    /// A key that is refused is not tried often: some servers count that.
    fn again(&self) -> Duration {
        let is_refused = !self.lost.is_empty() && self.lost.iter().all(|(_, refused)| *refused);
        if self.doubted && !is_refused {
            OFTEN
        } else {
            SELDOM
        }
    }
}

/// When the servers of a guest are asked first: not all guests of a node at once.
pub(super) fn first_asked(guest: Uuid) -> Instant {
    Instant::now() + OFTEN * u32::from(guest.as_bytes()[15]) / 256
}

impl Machine {
    /// Asks those of a guest's disks. What they say is told later.
    pub(super) fn ask_servers(&self, guest: &Guest, times: &mut Times) {
        times.ask = None;
        let mut disks = at_servers(guest.plan.as_ref());
        disks.retain(|(disk, ..)| !guest.servers.borrow().closed.contains(disk));
        if disks.is_empty() && guest.servers.borrow().missing.is_none() {
            times.ask = Some(Instant::now() + SELDOM);
            return;
        }
        let mut keyed = Keyed::of(guest.plan.as_ref(), &guest.servers.borrow().in_doubt);
        let user = match keyed.is_empty() {
            true => Ok(None),
            false => self.libvirt().and_then(|libvirt| libvirt.qemu_user()),
        };
        // As nobody else they may be refused.
        let user = user.unwrap_or_else(|_| {
            keyed.clear();
            None
        });
        let (whose, teller) = (guest.uuid, self.teller.clone());
        let shared = Arc::clone(&self.shared);
        let asker = std::thread::Builder::new().spawn(move || {
            let mut found = doubtful(&disks, &shared.config.networks);
            keyed.retain(|keyed| !found.iter().any(|it| it.disk == keyed.disk));
            found.extend(keyed.into_iter().filter_map(|keyed| {
                let lost = Some(keyed.refused(&shared.config, user)?);
                Some(Doubtful {
                    disk: keyed.disk,
                    lost,
                    refused: true,
                })
            }));
            let _ = teller.send(Told::Servers(whose, found));
        });
        if let Err(error) = asker {
            tracing::warn!(vm = self.pod.full_name(), "servers are not asked: {error}");
            times.ask = Some(Instant::now() + SELDOM);
        }
    }

    /// What became of it.
    pub(super) fn heard_of_servers(
        &self,
        guest: &Guest,
        doubtful: Vec<Doubtful>,
        times: &mut Times,
    ) {
        let news = guest.servers.borrow_mut().heard(doubtful);
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
fn doubtful(disks: &[AtServers], networks: &Networks) -> Vec<Doubtful> {
    std::thread::scope(|scope| {
        let asked = disks.iter().map(|at| {
            let ask = move || ask(at, networks);
            // Without another thread they are asked one by one.
            let asker = std::thread::Builder::new().spawn_scoped(scope, ask);
            asker.map_err(|_| ask())
        });
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|asked| match asked {
            Ok(thread) => thread.join().ok().flatten(),
            Err(answer) => answer,
        });
        answers.flatten().collect()
    })
}

fn ask((disk, servers, names): &AtServers, networks: &Networks) -> Option<Doubtful> {
    // A name may lead elsewhere than when it was judged.
    let allowed = |host: &str, address: IpAddr| {
        !names.iter().any(|name| name == host) || networks.denied(address).is_none()
    };
    let answer = knock_where(servers, SOON, &allowed);
    let why = answer.missing_in_words()?;
    let is_busy = matches!(answer, Answer::Silent) && servers.may_be_busy();
    Some(Doubtful {
        disk: disk.clone(),
        lost: (!is_busy).then(|| format!("{servers} {why}")),
        refused: false,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::{Value, json};

    use super::*;

    fn lost(disks: &[&str], how: &str) -> Vec<Doubtful> {
        let of = |disk: &&str| Doubtful {
            disk: (*disk).to_owned(),
            lost: Some(how.to_owned()),
            refused: how == "refused",
        };
        disks.iter().map(of).collect()
    }

    #[test]
    fn what_is_missing_twice_is_told_once() {
        let mut asked = Asked::default();
        assert_eq!(asked.heard(Vec::new()), News::Nothing);
        assert_eq!(asked.again(), SELDOM);
        // A moment's trouble.
        assert_eq!(asked.heard(lost(&["a"], "x")), News::Nothing);
        assert_eq!(asked.again(), OFTEN);
        assert_eq!(asked.heard(Vec::new()), News::Nothing);
        assert_eq!(asked.heard(lost(&["a"], "x")), News::Nothing);
        let told = News::Lost("disk a: x".to_owned());
        assert_eq!(asked.heard(lost(&["a"], "x")), told);
        // It is the same disk, however it is away.
        assert_eq!(asked.heard(lost(&["a"], "y")), News::Nothing);
        let both = News::Lost("disk a: y; disk b: y".to_owned());
        assert_eq!(asked.heard(lost(&["a", "b"], "y")), both);
        assert_eq!(asked.heard(Vec::new()), News::Back);
        assert_eq!(asked.heard(Vec::new()), News::Nothing);
        assert_eq!(asked.again(), SELDOM);
    }

    /// Whoever comes back with another password is not back for the guest.
    #[test]
    fn a_key_that_is_refused_is_told_and_tried_seldom() {
        let mut asked = Asked::default();
        asked.heard(lost(&["a"], "x"));
        assert_eq!(Vec::from_iter(&asked.in_doubt), ["a"]);
        // Also if nobody was told that it was away.
        let told = News::Lost("disk a: refused".to_owned());
        assert_eq!(asked.heard(lost(&["a"], "refused")), told);
        assert_eq!(asked.heard(lost(&["a"], "refused")), News::Nothing);
        assert_eq!(asked.again(), SELDOM);
        assert_eq!(Vec::from_iter(&asked.in_doubt), ["a"]);
        // Away again, which is another thing to do something about.
        let told = News::Lost("disk a: x".to_owned());
        assert_eq!(asked.heard(lost(&["a"], "x")), told);
        assert_eq!(asked.again(), OFTEN);
        assert_eq!(asked.heard(Vec::new()), News::Back);
        assert!(asked.in_doubt.is_empty());
    }

    #[test]
    fn a_server_that_the_guest_has_alone_is_not_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let networks = Networks::of_owner();
        let of = |source: Value| {
            let servers = Servers::shown(&source).unwrap();
            doubtful(&[("a".to_owned(), servers, Vec::new())], &networks)
        };
        let mut asked = Asked::default();
        for _ in 0..3 {
            let busy = of(json!({"kind": "nbd", "server": place}));
            assert_eq!(asked.heard(busy), News::Nothing);
        }
        assert_eq!(Vec::from_iter(&asked.closed), ["a"]);
        // Others serve many.
        let silent = of(json!({"kind": "rbd", "monitors": [place]}));
        assert!(silent[0].lost.is_some(), "{silent:?}");
        drop(listener);
        let gone = of(json!({"kind": "nbd", "server": place}));
        assert!(gone[0].lost.is_some(), "{gone:?}");
    }
}
