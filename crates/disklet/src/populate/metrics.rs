//! How far it is, for people, for programs that read lines, and for those that ask.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use disklet::cluster::health::{self, Health};
use disklet::cluster::process::Process;
use disklet::progress::ProgressForm;
use disklet::pull::{Beginning, Observer, Teller};
use disklet_block::convert::Watch;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use super::Failure;

/// Tells, and counts.
#[derive(Debug)]
pub(super) struct Counting {
    teller: Teller,
    fetched: Counter<u64, AtomicU64>,
    written: Counter<u64, AtomicU64>,
    notices: Counter<u64, AtomicU64>,
    total: Gauge,
}

impl Counting {
    /// Answers at the address, if there is one, until the program ends.
    pub(super) fn begin(form: ProgressForm, listen: Option<SocketAddr>) -> Result<Self, Failure> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::<u64, AtomicU64>::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let counting = Self {
            teller: Teller::new(form),
            fetched: counter("disklet_populate_fetched_bytes", "Bytes that have come"),
            written: counter(
                "disklet_populate_disk_bytes",
                "Bytes of the disk that have been dealt with, zeroes included",
            ),
            notices: counter(
                "disklet_populate_notices",
                "Lost connections, and what else was met on the way",
            ),
            total: Gauge::default(),
        };
        let help =
            "Bytes that shall come at most, if that is known; layers that do not matter do not";
        registry.register("disklet_populate_total_bytes", help, counting.total.clone());
        if let Some(address) = listen {
            answer(address, registry)?;
        }
        Ok(counting)
    }

    /// Clears the bar, or tells the end.
    pub(super) fn end(&self) {
        self.teller.end();
    }
}

/// On a thread of its own, which goes with the program.
fn answer(address: SocketAddr, registry: Registry) -> Result<(), Failure> {
    let unheard = |error: io::Error| Failure::new(format!("cannot listen at {address}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(unheard)?;
    let listener = runtime.block_on(TcpListener::bind(address));
    let listener = listener.map_err(unheard)?;
    let health = Health::new(registry);
    std::thread::spawn(move || runtime.block_on(health::serve(listener, Arc::clone(&health))));
    Ok(())
}

impl Observer for Counting {
    fn begins(&self, beginning: &Beginning<'_>) {
        let total = beginning.total.unwrap_or(0);
        self.total.set(i64::try_from(total).unwrap_or(i64::MAX));
        self.teller.begins(beginning);
    }

    fn advance(&self, bytes: u64) {
        self.fetched.inc_by(bytes);
        self.teller.advance(bytes);
    }

    fn notice(&self, text: &str) {
        self.notices.inc();
        self.teller.notice(text);
    }
}

impl Watch for Counting {
    fn advance(&self, bytes: u64) {
        self.written.inc_by(bytes);
    }

    fn cancelled(&self) -> bool {
        false
    }
}
