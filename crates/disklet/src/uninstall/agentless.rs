//! VM pods on nodes without an agent. The controller lets go of them, but here it may not be
//! there to do so; the judgement is the same.

use std::time::Instant;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use disklet::cluster::agents::{Absences, Agents, nothing_runs};
use disklet::cluster::names::POD_FINALIZER;

use super::cluster::{Cluster, failed, is_absent};
use super::{Refusal, tell};

impl Cluster {
    /// Lets go of those of these VM pods whose nodes have had no agent for long enough.
    pub(super) async fn let_go_without_agents(
        &self,
        pods: impl Iterator<Item = &Pod>,
        absences: &mut Absences,
    ) -> Result<(), Refusal> {
        let mut idle: Vec<_> = pods.filter(|pod| is_idle(pod)).collect();
        if !idle.is_empty() {
            let agents = Agents::list(&self.client, &self.namespace).await;
            let agents = agents.map_err(|error| failed("agents cannot be listed", &error))?;
            let nodes: Api<Node> = Api::all(self.client.clone());
            let nodes = nodes.list(&ListParams::default()).await;
            let nodes = nodes.map_err(|error| failed("nodes cannot be listed", &error))?;
            idle.retain(|pod| !has_agent(pod, &nodes.items, &agents));
        }
        let uids = idle.iter().filter_map(|pod| pod.uid()).collect();
        let lasting = absences.lasting(uids, Instant::now());
        for pod in idle {
            if pod.uid().is_some_and(|uid| lasting.contains(&uid)) {
                self.release(pod).await?;
            }
        }
        Ok(())
    }

    /// By a way by which API servers do not ask our webhook, which may not be there either.
    async fn release(&self, pod: &Pod) -> Result<(), Refusal> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let mut others = pod.finalizers().to_vec();
        others.retain(|other| other != POD_FINALIZER);
        let patch = json!({"metadata": {
            "finalizers": others,
            "resourceVersion": pod.resource_version(),
        }});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match pods.patch_status(&name, &params, &patch).await {
            // Somebody else was faster; it is looked at again.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) if !is_absent(&error) => {
                Err(failed(&format!("VM pod {namespace}/{name}"), &error))
            }
            _ => {
                tell(&format!(
                    "VM pod {namespace}/{name} is let go of: its node has no agent"
                ));
                Ok(())
            }
        }
    }
}

/// Whether it is going, and nothing of it runs.
fn is_idle(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let at_rest = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.waiting.is_some() || state.terminated.is_some())
    };
    let phase = status.and_then(|status| status.phase.as_deref());
    let is_held = pod.finalizers().iter().any(|held| held == POD_FINALIZER);
    let is_going = pod.metadata.deletion_timestamp.is_some();
    is_going && is_held && nothing_runs(phase, containers.unwrap_or_default().iter().map(at_rest))
}

/// A pod on no node has none.
fn has_agent(pod: &Pod, nodes: &[Node], agents: &Agents) -> bool {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    name.is_some_and(|name| {
        let node = nodes.iter().find(|node| node.name_any() == name);
        agents.are_on(name, node.and_then(|node| node.metadata.labels.as_ref()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": "vm", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": [POD_FINALIZER],
            },
            "spec": {"containers": [], "nodeName": "bare"},
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn with(state: &str) -> Pod {
        pod(|pod| {
            pod["status"]["containerStatuses"] = json!([{
                "name": "vm", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {state: {"exitCode": 0}},
            }]);
        })
    }

    #[test]
    fn only_what_goes_and_rests_is_let_go_of() {
        assert!(is_idle(&pod(|_| {})));
        assert!(is_idle(&with("terminated")));
        assert!(is_idle(&with("waiting")));
        assert!(!is_idle(&with("running")));
        assert!(!is_idle(&pod(
            |pod| pod["metadata"]["deletionTimestamp"] = Value::Null
        )));
        assert!(!is_idle(&pod(
            |pod| pod["metadata"]["finalizers"] = json!(["example.com/other"])
        )));
    }

    #[test]
    fn a_node_with_our_label_has_an_agent() {
        let node = |labels: Value| -> Vec<Node> {
            let node = json!({"metadata": {"name": "bare", "labels": labels}});
            vec![serde_json::from_value(node).unwrap()]
        };
        let agents = Agents::default();
        let labelled = node(json!({"extraRuntime": "virtlet"}));
        assert!(has_agent(&pod(|_| {}), &labelled, &agents));
        assert!(!has_agent(&pod(|_| {}), &node(json!({})), &agents));
        let nowhere = pod(|pod| pod["spec"]["nodeName"] = Value::Null);
        assert!(!has_agent(&nowhere, &labelled, &agents));
    }
}
