//! Whether a VM pod's claims are devices, where the pod does not say so: all of its
//! claims are disks, and the kubelet mounts the ones and maps the others.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use kube::api::Api;
use tokio::time::timeout;
use tracing::debug;

use super::review::Unsaid;

/// Whoever creates a pod waits for this.
const PATIENCE: Duration = Duration::from_secs(2);
/// No VM has so many disks.
const MOST: usize = 32;

/// Those that are devices. One that is not there yet is taken for what Kubernetes
/// takes a claim for that says nothing: a filesystem.
pub(super) async fn blocks(client: &Client, unsaid: &Unsaid) -> BTreeSet<String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &unsaid.namespace);
    let asked = unsaid.claims.iter().take(MOST).map(|name| {
        let claims = &claims;
        async move {
            let found = claims.get_opt(name).await;
            let found = found.inspect_err(|error| debug!(%error, name, "a claim is not known"));
            let mode = found.ok()??.spec?.volume_mode?;
            (mode == "Block").then(|| name.clone())
        }
    });
    let found = timeout(PATIENCE, join_all(asked)).await;
    found.unwrap_or_default().into_iter().flatten().collect()
}
