//! What every look at a VM needs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;

use disklet::cluster::events::Teller;
use disklet_core::launch::pod::Settings;

use super::fresh::Fresh;
use super::metrics::Metrics;
use super::objects::{ClaimObject, Key, LauncherPod, Vm};
use super::patience::Patience;
use super::strangers::{Rebuffs, Strangers};
use super::watch::{Caches, Queues};

pub(super) struct Context {
    pub(super) client: Client,
    pub(super) caches: Caches,
    pub(super) queues: Queues,
    pub(super) teller: Teller,
    pub(super) metrics: Arc<Metrics>,
    pub(super) launcher: Settings,
    pub(super) fresh_vms: Fresh<Vm>,
    pub(super) fresh_pods: Fresh<LauncherPod>,
    pub(super) fresh_claims: Fresh<ClaimObject>,
    pub(super) strangers: Strangers,
    pub(super) rebuffs: Rebuffs,
    pub(super) patience: Patience,
    pub(super) failures: Failures,
}

impl Context {
    /// The VM is gone, and a new one of its name is another one.
    pub(super) fn forget_vm(&self, key: &Key) {
        self.fresh_vms.forget(key);
        self.fresh_pods.forget(key);
        self.rebuffs.forget(key);
        self.patience.forget(key);
        self.failures.forget(key);
    }
}

/// How often in a row something has failed.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<Key, u32>>);

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

impl Failures {
    /// How long to wait after one more.
    pub(super) fn one_more(&self, key: &Key) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(key.clone()).or_default();
        let wait = FIRST * 2_u32.saturating_pow((*count).min(16));
        *count = count.saturating_add(1);
        wait.min(LONGEST)
    }

    pub(super) fn forget(&self, key: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_later_and_later() {
        let failures = Failures::default();
        let key = Key::new("n", "vm");
        let waits: Vec<_> = (0..9)
            .map(|_| failures.one_more(&key).as_millis())
            .collect();
        assert_eq!(
            waits,
            [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
        );
        failures.forget(&key);
        assert_eq!(failures.one_more(&key), FIRST);
    }
}
