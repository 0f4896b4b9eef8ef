//! Leases of storage whose holders' nodes are gone for good: nobody else releases
//! them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use disklet::cluster::client::ANSWER_WITHIN;
use disklet::cluster::leases::{Leases, content_of, selector};
use disklet_core::lease::Holder;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Client, ResourceExt};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::gather::{is_lost, is_out_of_service};
use super::objects::NodeObject;
use super::watch::Caches;

/// How often it is looked into the caches.
const EVERY: Duration = Duration::from_secs(2);

/// Releases what VMs of lost nodes held, until the controller ends.
pub(super) async fn forever(client: &Client, namespace: &str, caches: &Caches) {
    let leases = Leases::new(client.clone(), namespace);
    let writer = Writer::<Lease>::new(());
    let known = writer.as_reader();
    let ours = watcher::Config::default().labels(&selector());
    let changes = reflector(writer, watcher(leases.api().clone(), ours)).default_backoff();
    let followed = pin!(changes.for_each(async |change| {
        if let Err(error) = change {
            warn!(%error, "the API server does not tell of leases");
        }
    }));
    let released = pin!(async {
        while caches.filled().await && known.wait_until_ready().await.is_ok() {
            for lease in known.state() {
                release(client, &leases, &lease, caches).await;
            }
            sleep(EVERY).await;
        }
    });
    futures::future::select(followed, released).await;
}

async fn release(client: &Client, leases: &Leases, lease: &Arc<Lease>, caches: &Caches) {
    let lost = lost_nodes(lease, |node| is_lost(caches, node));
    if lost.is_empty() {
        return;
    }
    let object = lease.name_any();
    match timeout(ANSWER_WITHIN, try_release(client, leases, lease, lost)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(object, %error, "a lease was not released; tried again"),
        Err(_) => warn!(object, "a lease was not released in time; tried again"),
    }
}

/// The nodes of holders that are lost.
fn lost_nodes(lease: &Lease, is_lost: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let holders = content_of(lease).map_or(Vec::new(), |content| content.holders);
    let nodes = holders.into_iter().map(|holder| holder.node);
    nodes.filter(|node| is_lost(node)).collect()
}

/// A cache may be late: a node that it does not have may have come, and leased
/// something, since. So nodes are asked for after the lease was seen, and the
/// lease is changed only if it is still as it was seen.
async fn try_release(
    client: &Client,
    leases: &Leases,
    lease: &Lease,
    lost: BTreeSet<String>,
) -> kube::Result<()> {
    let mut off = BTreeSet::new();
    for node in lost {
        if is_off(client, &node).await? {
            off.insert(node);
        }
    }
    let is_off = |holder: &Holder| off.contains(&holder.node);
    if !off.is_empty() && leases.release_seen(lease, is_off).await? {
        let (object, nodes) = (lease.name_any(), off);
        info!(
            object,
            ?nodes,
            "released: these nodes are gone, or out of service"
        );
    }
    Ok(())
}

/// Whether a node does not exist, or is out of service, now. It is looked for in
/// the list of nodes, for which there is a right anyway.
async fn is_off(client: &Client, node: &str) -> kube::Result<bool> {
    let nodes = Api::<NodeObject>::all(client.clone());
    let this = ListParams::default().fields(&format!("metadata.name={node}"));
    let found = nodes.list(&this).await?.items;
    Ok(found.first().is_none_or(is_out_of_service))
}

#[cfg(test)]
mod tests {
    use disklet_core::lease::{ANNOTATION, Content, Taken};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_holders_on_lost_nodes_are_looked_for() {
        let mut content = Content::new("unit");
        for node in ["one", "two"] {
            let holder = json!({
                "uuid": "00000000-0000-0000-0000-000000000001",
                "namespace": "n", "name": "vm", "node": node, "boot": "b",
                "access": "read-shared", "since": "then",
            });
            let holder: Holder = serde_json::from_value(holder).unwrap();
            if let Taken::Granted(more) = content.taken(&holder) {
                content = more;
            }
        }
        let mut lease = Lease::default();
        let annotations = lease.annotations_mut();
        annotations.insert(ANNOTATION.to_owned(), content.written());
        let lost = |gone: &'static [&'static str]| lost_nodes(&lease, |node| gone.contains(&node));
        assert_eq!(lost(&["three"]), BTreeSet::new());
        assert_eq!(lost(&["two", "three"]), BTreeSet::from(["two".to_owned()]));
        // What cannot be read is nobody's to change.
        assert_eq!(lost_nodes(&Lease::default(), |_| true), BTreeSet::new());
    }
}
