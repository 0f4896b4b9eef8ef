//! What an agent counts; docs/metrics.md has the table.

use disklet::cluster::process::Process;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    machines: Gauge,
}

impl Metrics {
    /// All of them, under the names that they are known by.
    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        registry.register(
            "disklet_agent_launchers",
            "Launcher pods of this node that the agent serves",
            self.machines.clone(),
        );
        registry.register_collector(Box::new(Process));
        registry
    }

    pub(super) fn count_machines(&self, count: usize) {
        self.machines.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
