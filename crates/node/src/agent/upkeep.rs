//! What the agent keeps in step while it runs: others may take a label off its node, or
//! a release may not have reached the API server before its VM was forgotten.

use std::sync::Arc;
use std::time::Duration;

use super::{Shared, pools, sweep_leases};

/// The API server is asked by every node, so not often.
const EVERY: Duration = Duration::from_secs(120);

pub(super) fn keep(shared: &Arc<Shared>, client: kube::Client) {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            once(&shared, &client);
        }
    });
}

/// What fails now is tried again the next time.
fn once(shared: &Shared, client: &kube::Client) {
    let labelled = pools::label_node(client, &shared.node, &shared.config);
    if let Err(failure) = shared.cluster.block_on(labelled) {
        tracing::warn!("{failure}");
    }
    if let Some(leases) = &shared.leases {
        sweep_leases(leases, &shared.config, &shared.uri);
    }
}
