//! What an agent counts; docs/metrics.md has the table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use disklet::cluster::process::Process;
use disklet_core::config::Config;
use disklet_core::launch::protocol::How;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone)]
pub(super) struct Metrics {
    machines: Gauge,
    libvirt: Gauge,
    waiting: Gauge,
    starts: Histogram,
    ends: Family<Ended, Counter>,
    pauses: Family<Paused, Counter>,
    images_removed: Counter,
    not_pulled: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    how: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Paused {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    pool: String,
}

/// Somebody waits.
pub(super) struct Waits(Gauge);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// From a VM whose image is there to one whose image comes from far away.
const BUCKETS: [f64; 9] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0];

impl Default for Metrics {
    fn default() -> Self {
        Self {
            machines: Gauge::default(),
            libvirt: Gauge::default(),
            waiting: Gauge::default(),
            starts: Histogram::new(BUCKETS),
            ends: Family::default(),
            pauses: Family::default(),
            images_removed: Counter::default(),
            not_pulled: Counter::default(),
        }
    }
}

impl Metrics {
    /// All of them, under the names that they are known by.
    pub(super) fn registry(&self, config: &Config) -> Registry {
        let mut all = Registry::default();
        all.register_collector(Box::new(Process));
        let paths = config.pools.iter();
        let paths = paths.map(|(name, pool)| (name.to_string(), pool.path.clone()));
        all.register_collector(Box::new(Pools(paths.collect())));
        let ours = all.sub_registry_with_prefix("disklet_agent");
        ours.register(
            "launchers",
            "Launcher pods of this node that the agent serves",
            self.machines.clone(),
        );
        ours.register("libvirt_up", "1 if libvirt answers", self.libvirt.clone());
        ours.register(
            "waiting",
            "VMs that wait for storage that others use",
            self.waiting.clone(),
        );
        ours.register(
            "start_seconds",
            "From a launcher that listens to a guest that runs",
            self.starts.clone(),
        );
        ours.register("ends", "VMs that ended, by how", self.ends.clone());
        ours.register(
            "pauses",
            "Guests that were found to stand still, by why",
            self.pauses.clone(),
        );
        ours.register(
            "images_removed",
            "Images that no VM used, given up for room or age",
            self.images_removed.clone(),
        );
        ours.register(
            "prepull_failures",
            "Attempts to fetch an image of prePull that have failed",
            self.not_pulled.clone(),
        );
        all
    }

    pub(super) fn count_machines(&self, count: usize) {
        self.machines.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn libvirt_answers(&self, it_does: bool) {
        self.libvirt.set(it_does.into());
    }

    /// One more waits, until this is dropped.
    pub(super) fn waits(&self) -> Waits {
        self.waiting.inc();
        Waits(self.waiting.clone())
    }

    pub(super) fn started(&self, after: Duration) {
        self.starts.observe(after.as_secs_f64());
    }

    pub(super) fn ended(&self, how: How) {
        let how = match how {
            How::Off => "off",
            How::Crashed => "crashed",
            How::Killed => "killed",
            How::Refused => "refused",
            How::Failed => "failed",
        };
        self.ends.get_or_create(&Ended { how }).inc();
    }

    pub(super) fn images_removed(&self, count: usize) {
        self.images_removed
            .inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(super) fn not_pulled_beforehand(&self) {
        self.not_pulled.inc();
    }

    pub(super) fn paused(&self, reason: &'static str) {
        self.pauses.get_or_create(&Paused { reason }).inc();
    }
}

/// The room in each pool, looked at when somebody asks.
#[derive(Debug)]
struct Pools(BTreeMap<String, String>);

impl Collector for Pools {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rooms: Vec<_> = self.0.iter().filter_map(room_of).collect();
        gauge(
            &mut encoder,
            "disklet_agent_pool_free",
            "Room that VMs' files can still take, by pool",
            rooms.iter().map(|room| (&room.pool, room.free)),
        )?;
        gauge(
            &mut encoder,
            "disklet_agent_pool_size",
            "The size of the pool's filesystem",
            rooms.iter().map(|room| (&room.pool, room.size)),
        )
    }
}

fn gauge<'p>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (&'p String, u64)>,
) -> Result<(), fmt::Error> {
    let unit = Some(&Unit::Bytes);
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (pool, bytes) in values {
        let labels = OfPool { pool: pool.clone() };
        ConstGauge::new(bytes).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

struct Room {
    pool: String,
    free: u64,
    size: u64,
}

/// A pool that nobody has used yet has no directory.
fn room_of((pool, path): (&String, &String)) -> Option<Room> {
    let seen = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(seen.f_frsize);
    Some(Room {
        pool: pool.clone(),
        free: bytes(seen.f_bavail),
        size: bytes(seen.f_blocks),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::default();
        metrics.count_machines(2);
        metrics.libvirt_answers(true);
        metrics.started(Duration::from_millis(700));
        metrics.ended(How::Crashed);
        metrics.paused("DiskFull");
        metrics.images_removed(3);
        metrics.not_pulled_beforehand();
        let mut pools = Config::default();
        for pool in pools.pools.values_mut() {
            pool.path = "/".to_owned();
        }
        let mut text = String::new();
        let registry = metrics.registry(&pools);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "disklet_agent_launchers 2",
            "disklet_agent_libvirt_up 1",
            "disklet_agent_start_seconds_bucket{le=\"1.0\"} 1",
            "disklet_agent_ends_total{how=\"crashed\"} 1",
            "disklet_agent_pauses_total{reason=\"DiskFull\"} 1",
            "disklet_agent_images_removed_total 3",
            "disklet_agent_prepull_failures_total 1",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        assert!(
            text.contains("\ndisklet_agent_pool_free_bytes{pool=\"volumes\"} "),
            "{text}"
        );
    }
}
