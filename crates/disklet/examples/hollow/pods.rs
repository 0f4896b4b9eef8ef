//! What the kubelet does for launcher pods.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::pin;

use disklet_core::launch::protocol::directory_of_pod;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Error;
use crate::launcher::Launcher;

/// Serves every launcher pod that has a node, until the program ends.
pub(crate) async fn serve(client: Client, root: PathBuf) {
    let config = watcher::Config::default().labels("disklet.io/vm");
    let stream = watcher(Api::<Pod>::all(client.clone()), config).default_backoff();
    let mut stream = pin!(stream.applied_objects());
    let mut known: HashMap<String, watch::Sender<bool>> = HashMap::new();
    while let Some(pod) = stream.next().await {
        let Ok(pod) = pod else { continue };
        let (Some(uid), Some(node)) = (&pod.metadata.uid, node_of(&pod)) else {
            continue;
        };
        let deleting = pod.metadata.deletion_timestamp.is_some();
        match known.get(uid) {
            Some(stop) if deleting => drop(stop.send(true)),
            Some(_) => {}
            None => {
                let (stop, stopped) = watch::channel(deleting);
                let directory = root.join(node).join("kubelet").join(directory_of_pod(uid));
                known.insert(uid.clone(), stop);
                tokio::spawn(told_if_failed(client.clone(), pod, directory, stopped));
            }
        }
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

async fn told_if_failed(
    client: Client,
    pod: Pod,
    directory: PathBuf,
    stopped: watch::Receiver<bool>,
) {
    let name = pod.metadata.name.clone();
    if let Err(error) = live(client, pod, &directory, stopped).await {
        tracing::warn!(%error, name, "a pod's life is over");
    }
}

/// A pod's whole life.
async fn live(
    client: Client,
    pod: Pod,
    directory: &Path,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let pods = Api::<Pod>::namespaced(client, namespace);
    let launcher = Launcher::listen(directory)?;
    let now = "2026-01-01T00:00:00Z";
    write(
        &pods,
        name,
        "Running",
        true,
        &json!({"running": {"startedAt": now}}),
        uid,
    )
    .await?;
    let code = launcher.serve(stopped.clone()).await?;
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let ended = json!({"terminated": {
        "exitCode": code, "reason": "Ended", "startedAt": now, "finishedAt": now,
    }});
    write(&pods, name, phase, false, &ended, uid).await?;
    std::fs::remove_dir_all(directory)?;
    // The kubelet's last word on a pod that somebody has deleted.
    stopped.wait_for(|stopped| *stopped).await?;
    let at_once = DeleteParams::default().grace_period(0);
    match pods.delete(name, &at_once).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).map_err(Into::into),
    }
}

async fn write(
    pods: &Api<Pod>,
    name: &str,
    phase: &str,
    ready: bool,
    state: &Value,
    uid: &str,
) -> Result<(), Error> {
    let is = if ready { "True" } else { "False" };
    let conditions = ["Initialized", "Ready", "ContainersReady"];
    let conditions = conditions.map(|kind| json!({"type": kind, "status": is}));
    let status = json!({
        // Not of another pod that has come under the name since.
        "metadata": {"uid": uid},
        "status": {
            "phase": phase,
            "podIP": "192.0.2.1",
            "conditions": conditions,
            "containerStatuses": [{
                "name": "vm", "image": "x", "imageID": "x", "restartCount": 0,
                "containerID": format!("hollow://{uid}"),
                "ready": ready, "state": state,
            }],
        },
    });
    let how = PatchParams::default();
    pods.patch_status(name, &how, &Patch::Merge(&status))
        .await?;
    Ok(())
}
