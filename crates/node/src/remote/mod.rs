//! Masters at servers, read while a copy of them is made.

mod daemon;
mod options;
mod qmp;
mod web;

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use disklet_block::convert::Watch;
use disklet_block::device::Source;
use disklet_block::nbd::Export;
use disklet_core::networks::Networks;
use disklet_core::source::{Nbd, Network};
use disklet_core::text::Secret;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::libvirt::QemuUser;
use daemon::{Daemon, PATIENCE};
use qmp::{NotDone, Qmp};

/// Who asks a server.
pub(crate) struct Login<'l> {
    pub(crate) user: &'l str,
    pub(crate) key: Secret,
}

/// How masters are had.
pub(crate) struct Reader<'r> {
    /// Where a socket may be for a moment.
    pub(crate) run_dir: &'r Path,
    /// Where the certificates for NBD are.
    pub(crate) certificates: &'r str,
    /// Where web servers may be.
    pub(crate) networks: &'r Networks,
    pub(crate) user: Option<QemuUser>,
    pub(crate) watch: &'r dyn Watch,
}

/// More connections keep a server busy while what has come is written.
const CONNECTIONS: usize = 4;

/// Soon enough for whoever has changed their mind.
const LOOK: Duration = Duration::from_millis(50);

impl Reader<'_> {
    /// Opens a master, only to read, and hands it on. It is closed when that is
    /// done, or given up.
    pub(crate) fn with<T>(
        &self,
        network: &Network,
        login: Option<&Login<'_>>,
        read: impl FnOnce(Arc<dyn Source>) -> Result<T>,
    ) -> Result<T> {
        let driver = match options::driver(network, login) {
            Ok(driver) => driver,
            Err(file) => return web::with(file, login, self.networks, self.watch, read),
        };
        let directory = self.run_dir.join("read");
        let Daemon {
            process,
            mut orders,
            streams,
        } = Daemon::start(&directory, self.user, CONNECTIONS)?;
        while_wanted(
            self.watch,
            || process.end(),
            || {
                self.open(&mut orders, network, &driver, login)?;
                let name = network.to_string();
                let export = Export::open(streams, EXPORT, &name);
                let export = export.map_err(|error| Failure::new(name).because(error))?;
                read(Arc::new(export))
            },
        )
    }

    /// Has the daemon open the master and serve it.
    fn open<R: BufRead, W: Write>(
        &self,
        orders: &mut Qmp<R, W>,
        network: &Network,
        driver: &Value,
        login: Option<&Login<'_>>,
    ) -> Result<()> {
        let failed = |not_done| unread(network, not_done);
        if let Some(login) = login {
            let key = json!({
                "qom-type": "secret", "id": options::KEY,
                "data": BASE64.encode(login.key.expose()), "format": "base64",
            });
            orders.tell("object-add", &key).map_err(failed)?;
        }
        if matches!(network, Network::Nbd(Nbd { tls: true, .. })) {
            let certificates = json!({
                "qom-type": "tls-creds-x509", "id": options::CERTIFICATES,
                "endpoint": "client", "dir": self.certificates,
            });
            orders.tell("object-add", &certificates).map_err(failed)?;
        }
        // Its bytes as they are: what format they have is for us to read.
        let node = json!({
            "driver": "raw", "node-name": EXPORT, "read-only": true, "file": driver,
        });
        orders.tell("blockdev-add", &node).map_err(failed)?;
        let export = json!({
            "type": "nbd", "id": EXPORT, "node-name": EXPORT, "name": EXPORT,
        });
        orders.tell("block-export-add", &export).map_err(failed)
    }
}

/// Does some work, and ends what it waits for as soon as nobody wants it any more.
fn while_wanted<T>(
    watch: &dyn Watch,
    end: impl Fn() + Sync,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if watch.cancelled() {
                    end();
                }
                std::thread::park_timeout(LOOK);
            }
        });
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        looker.thread().unpark();
        outcome
    });
    match watch.cancelled() {
        true => Err(Failure::cancelled()),
        false => outcome,
    }
}

/// By which name the daemon knows and serves the master.
const EXPORT: &str = "master";

/// What to do about a Ceph cluster that says nothing.
const SILENT_CLUSTER: &str = "see that the cluster runs and can be reached, and that the key is right: a wrong one is not answered at all";

fn unread(network: &Network, not_done: NotDone) -> Failure {
    let failure = Failure::new(format!("{network} cannot be opened"));
    match not_done {
        NotDone::Refused(why) => {
            let help = remedy(&why);
            let is_of_key = is_of_key(&why);
            let failure = failure
                .because(io::Error::other(why.trim().to_owned()))
                .help(help);
            match is_of_key {
                true => failure.into_of_key(),
                false => failure,
            }
        }
        NotDone::Lost(error) if is_silence(&error) => {
            let failure = Failure::new(format!(
                "{network} has not answered for {} seconds",
                PATIENCE.as_secs()
            ));
            match network {
                Network::Rbd(_) => failure.into_of_key().help(SILENT_CLUSTER),
                _ => failure.help("see that the server runs and can be reached"),
            }
        }
        NotDone::Lost(error) => failure.because(error),
    }
}

/// What to do about a server's refusal, by what QEMU's drivers say of it.
pub(crate) fn remedy(why: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if is_of_key(why) {
        "check the user, and the password or key in its Secret"
    } else if has(&["error connecting"]) {
        SILENT_CLUSTER
    } else if has(&[
        "refused",
        "reconnect",
        "No route",
        "unreachable",
        "reset",
        "Couldn't connect",
    ]) {
        "see that the server runs, and that the address and the port are right"
    } else if has(&["ertificate", "credentials", "TLS", "handshake"]) {
        "check the certificates of both sides, and whether the server has TLS on"
    } else {
        "check that the server has this storage, under this name, and lets this machine use it"
    }
}

fn is_of_key(why: &str) -> bool {
    let words = ["Authentication", "Operation not permitted"];
    words.iter().any(|word| why.contains(word))
}

fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
