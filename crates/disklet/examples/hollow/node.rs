//! A node that says that it is well.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::Error;

/// The cluster gives up a node after 40 s.
const HEARTBEAT: Duration = Duration::from_secs(10);
const MANAGER: &str = "hollow";

pub(crate) async fn register(client: &Client, name: &str) -> Result<(), Error> {
    let nodes = Api::<Node>::all(client.clone());
    let how = PatchParams::apply(MANAGER).force();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    nodes.patch(name, &how, &Patch::Apply(&node)).await?;
    beat(client, name).await?;
    let room = json!({"cpu": "1000", "memory": "10Ti", "pods": "2000"});
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "it is only played", "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        },
    });
    nodes
        .patch_status(name, &how, &Patch::Apply(&status))
        .await?;
    Ok(())
}

pub(crate) async fn stay_alive(client: Client, name: String) {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        if let Err(error) = beat(&client, &name).await {
            tracing::warn!(%error, "no heartbeat");
        }
    }
}

async fn beat(client: &Client, name: &str) -> Result<(), Error> {
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    let now = Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
    });
    let how = PatchParams::apply(MANAGER).force();
    leases.patch(name, &how, &Patch::Apply(&lease)).await?;
    Ok(())
}
