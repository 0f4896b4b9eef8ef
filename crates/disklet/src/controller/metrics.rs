//! What the controller counts. docs/metrics.md has the table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::runtime::reflector::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use disklet::cluster::process::Process;
use disklet_core::crd::PHASES;

use super::objects::Vm;
use crate::webhook::Counts;

#[derive(Debug)]
pub(super) struct Metrics {
    leader: Gauge,
    reconciles: Family<Outcome, Counter>,
    reconcile_time: Histogram,
    writes: Family<Write, Counter>,
    launches: Counter,
    refusals: Family<Reason, Counter>,
    watch_failures: Family<Watched, Counter>,
    reviews: Family<Outcome, Counter>,
    review_time: Histogram,
    certificate: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    resource: &'static str,
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watched {
    resource: String,
}

/// The reasons that are counted by their names: the controller's own, the scheduler's and the
/// kubelet's. A pod's status may have any word, and each would be a series of its own.
const REASONS: [&str; 24] = [
    "ClaimNotBound",
    "Crashed",
    "Ended",
    "Evicted",
    "Killed",
    "NameTaken",
    "NotStarted",
    "PodRefused",
    "Refused",
    "SwitchedOff",
    "ContainerCannotRun",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
    "RunContainerError",
    "SchedulerError",
    "SchedulingGated",
    "Unschedulable",
];

/// A word that is known, or that it is another.
fn known(words: &[&'static str], word: &str) -> &'static str {
    let found = words.iter().find(|known| **known == word);
    found.copied().unwrap_or("Other")
}

/// From a millisecond to half a minute.
const BUCKETS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

impl Metrics {
    /// Makes them, and a registry that shows them and the VMs of this cache.
    pub(super) fn new(vms: Arc<OnceLock<Store<Vm>>>) -> (Self, Registry) {
        let metrics = Self {
            leader: Gauge::default(),
            reconciles: Family::default(),
            reconcile_time: Histogram::new(BUCKETS),
            writes: Family::default(),
            launches: Counter::default(),
            refusals: Family::default(),
            watch_failures: Family::default(),
            reviews: Family::default(),
            review_time: Histogram::new(BUCKETS),
            certificate: Gauge::default(),
        };
        let mut all = Registry::default();
        all.register_collector(Box::new(Process));
        let registry = all.sub_registry_with_prefix("disklet_controller");
        registry.register("leader", "1 if this replica works", metrics.leader.clone());
        registry.register(
            "reconciles",
            "Looks at a VM, by how they ended",
            metrics.reconciles.clone(),
        );
        registry.register(
            "reconcile_seconds",
            "How long a look at a VM took",
            metrics.reconcile_time.clone(),
        );
        registry.register(
            "writes",
            "Requests that change something",
            metrics.writes.clone(),
        );
        registry.register("launches", "Launcher pods made", metrics.launches.clone());
        registry.register(
            "refusals",
            "VMs that were not launched, by reason",
            metrics.refusals.clone(),
        );
        registry.register(
            "watch_failures",
            "Watches that were lost and begun again",
            metrics.watch_failures.clone(),
        );
        registry.register(
            "webhook_requests",
            "VM objects that API servers asked about",
            metrics.reviews.clone(),
        );
        registry.register(
            "webhook_seconds",
            "How long an answer took",
            metrics.review_time.clone(),
        );
        registry.register(
            "webhook_certificate_expiry_seconds",
            "When the served certificate ends, in seconds since 1970",
            metrics.certificate.clone(),
        );
        registry.register_collector(Box::new(Vms(vms)));
        (metrics, all)
    }

    pub(super) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    pub(super) fn reconciled(&self, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Outcome { outcome }).inc();
        self.reconcile_time.observe(took.as_secs_f64());
    }

    pub(super) fn wrote(&self, resource: &'static str, verb: &'static str, outcome: &'static str) {
        let write = Write {
            resource,
            verb,
            outcome,
        };
        self.writes.get_or_create(&write).inc();
    }

    pub(super) fn launched(&self) {
        self.launches.inc();
    }

    pub(super) fn refused(&self, reason: &str) {
        let reason = known(&REASONS, reason);
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    pub(super) fn watch_failed(&self, resource: &str) {
        let resource = resource.to_owned();
        self.watch_failures
            .get_or_create(&Watched { resource })
            .inc();
    }
}

impl Counts for Metrics {
    fn answered(&self, outcome: &'static str, took: Duration) {
        self.reviews.get_or_create(&Outcome { outcome }).inc();
        self.review_time.observe(took.as_secs_f64());
    }

    fn serving_until(&self, when: u64) {
        self.certificate
            .set(i64::try_from(when).unwrap_or(i64::MAX));
    }
}

/// Counts the VMs of the cache when it is asked; a replica that does not work
/// has no cache and says nothing.
#[derive(Debug)]
struct Vms(Arc<OnceLock<Store<Vm>>>);

impl Collector for Vms {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(vms) = self.0.get() else {
            return Ok(());
        };
        let mut phases: BTreeMap<&'static str, i64> = BTreeMap::new();
        for vm in vms.state() {
            let phase = vm.status.phase.as_deref().unwrap_or("Pending");
            *phases.entry(known(&PHASES, phase)).or_default() += 1;
        }
        let help = "VM objects by phase";
        let mut family = encoder.encode_descriptor("vms", help, None, MetricType::Gauge)?;
        for (phase, count) in phases {
            let labels = [("phase", phase)];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::super::status::Phase;
    use super::super::watch::{Filling, list};
    use super::*;

    #[test]
    fn no_tenant_makes_a_series() {
        let mut filling = Filling::new();
        let vm = |name: &str, phase: &str| json!({"metadata": {"name": name, "namespace": "n"}, "status": {"phase": phase}});
        let vms = [vm("a", "Running"), vm("b", "mine"), vm("c", "yours")];
        list(&mut filling.vms, vms);
        let (metrics, registry) = Metrics::new(Arc::new(OnceLock::from(filling.caches.vms)));
        for reason in ["ErrImagePull", "mine", "yours", ""] {
            metrics.refused(reason);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "disklet_controller_refusals_total{reason=\"ErrImagePull\"} 1\n",
            "disklet_controller_refusals_total{reason=\"Other\"} 3\n",
            "disklet_controller_vms{phase=\"Other\"} 2\n",
            "disklet_controller_vms{phase=\"Running\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("mine"), "{text}");
    }

    #[test]
    fn the_definition_takes_every_phase() {
        for phase in Phase::ALL {
            assert!(PHASES.contains(&phase.name()), "{phase:?}");
        }
    }
}
