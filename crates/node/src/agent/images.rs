//! The node's images while no VM waits for them: some are fetched beforehand, and
//! those that nobody uses go when there is no room.

use std::sync::Arc;
use std::time::Duration;

use disklet::pull::{Beginning, Observer, Order, PullError, Tenant, ensure_for};
use disklet::report::with_causes;
use disklet::shown::short_size;
use disklet::store::{Gone, Store, StoreError, in_use};
use disklet_core::config::Config;
use disklet_core::images::{ImageMapping, Keyring, PullPolicy};
use disklet_core::names::ImageName;

use super::Shared;
use crate::interrupt;

/// How often it is looked, as the kubelet does.
const EVERY: Duration = Duration::from_mins(5);
/// And until the API server has told where images come from.
const SOON: Duration = Duration::from_secs(2);

/// Begins, and goes on until the agent ends.
pub(super) fn keep(shared: &Arc<Shared>) {
    let of_gc = shared.clone();
    std::thread::spawn(move || {
        loop {
            collect(&of_gc);
            std::thread::sleep(EVERY);
        }
    });
    if shared.config.pre_pull.is_empty() {
        return;
    }
    let shared = shared.clone();
    std::thread::spawn(move || {
        loop {
            let Ok(mapping) = shared.mappings.now() else {
                std::thread::sleep(SOON);
                continue;
            };
            for image in &shared.config.pre_pull {
                pull_beforehand(&shared, &mapping, image);
            }
            std::thread::sleep(EVERY);
        }
    });
}

/// Has an image for everybody: with no credentials but the mapping's.
fn pull_beforehand(shared: &Shared, mapping: &ImageMapping, image: &ImageName) {
    match ensure_open(&shared.config, mapping, image) {
        Ok(()) => {}
        Err(_) if interrupt::asked() => {}
        Err(error) => {
            shared.metrics.not_pulled_beforehand();
            let why = with_causes(&error);
            tracing::warn!(
                image = image.name(),
                why,
                "an image of prePull does not come"
            );
        }
    }
}

fn ensure_open(
    config: &Config,
    mapping: &ImageMapping,
    image: &ImageName,
) -> Result<(), PullError> {
    let nobody = Tenant {
        keyring: &Keyring::default(),
        policy: PullPolicy::IfNotPresent,
    };
    let order = Order {
        mapping: mapping.clone(),
        ..Order::of(image)
    };
    ensure_for(config, &nobody, &order, &Logged).map(drop)
}

/// Tells the log.
struct Logged;

impl Observer for Logged {
    fn begins(&self, beginning: &Beginning<'_>) {
        let Beginning { image, from, .. } = beginning;
        tracing::info!(image, from, "fetching an image beforehand");
    }

    fn advance(&self, _bytes: u64) {}

    fn notice(&self, text: &str) {
        tracing::info!("{text}");
    }

    fn cancelled(&self) -> bool {
        interrupt::asked()
    }
}

fn collect(shared: &Shared) {
    match collected(&shared.config) {
        Ok(gone) => {
            for Gone { what, freed } in &gone {
                let freed = short_size(*freed);
                tracing::info!(freed, "removed an image that no VM uses: {what}");
            }
            shared.metrics.images_removed(gone.len());
        }
        // Such as a VM's record that cannot be read: then nothing is removed.
        Err(error) => tracing::warn!("images are not looked through: {}", with_causes(&error)),
    }
}

fn collected(config: &Config) -> Result<Vec<Gone>, StoreError> {
    let store = Store::configured(config);
    let Some(room) = store.room() else {
        return Ok(Vec::new());
    };
    let alone = store.to_remove(|| ())?;
    let uses = in_use(config)?;
    store.collect(&config.image_gc, room, &config.pre_pull, &uses, &alone)
}
