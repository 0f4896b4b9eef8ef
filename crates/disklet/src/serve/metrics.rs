//! What is counted of uploads.

use std::sync::atomic::AtomicU64;

use disklet::cluster::process::Process;
use disklet_block::convert::Watch;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts, and tells.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    received: Counter<u64, AtomicU64>,
    written: Counter<u64, AtomicU64>,
    begun: Counter<u64, AtomicU64>,
    refused: Counter<u64, AtomicU64>,
    filled: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::<u64, AtomicU64>::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let received = counter("disklet_upload_received_bytes", "Bytes that have come");
        let written = counter(
            "disklet_upload_disk_bytes",
            "Bytes of the disk that have been dealt with, zeroes included",
        );
        let begun = counter("disklet_uploads", "Uploads that have begun or gone on");
        let refused = counter("disklet_upload_refused", "Requests that were refused");
        let filled = Gauge::default();
        let help = "Whether the volume is filled";
        registry.register("disklet_upload_done", help, filled.clone());
        Self {
            registry,
            received,
            written,
            begun,
            refused,
            filled,
        }
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received.inc_by(bytes as u64);
    }

    pub(super) fn begun(&self) {
        self.begun.inc();
    }

    pub(super) fn refused(&self) {
        self.refused.inc();
    }

    pub(super) fn set_filled(&self) {
        self.filled.set(1);
    }

    pub(super) fn text(&self) -> Option<String> {
        let mut text = String::new();
        encode(&mut text, &self.registry).ok()?;
        Some(text)
    }
}

impl Watch for Metrics {
    fn advance(&self, bytes: u64) {
        self.written.inc_by(bytes);
    }

    /// The body ends instead.
    fn cancelled(&self) -> bool {
        false
    }
}
