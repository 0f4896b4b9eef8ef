//! When somebody has deleted our namespace, and with it controllers and agents: nobody lets
//! go of VMs any more, and nobody answers who is asked whether they may be changed.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::Api;

use disklet::cluster::names::{POD_FINALIZER, VM_FINALIZER};

use super::cluster::{Cluster, failed};
use super::ours::ALL;
use super::{Refusal, tell};

impl Cluster {
    /// Whether there is no controller and no agent, since their namespace is not there.
    pub(super) async fn is_forsaken(&self) -> Result<bool, Refusal> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = api.get_opt(&self.namespace).await;
        let found = found.map_err(|error| failed("the namespace", &error))?;
        Ok(found.is_none())
    }

    /// Has nobody ask us any more.
    pub(super) async fn be_asked_no_more(&self) -> Result<(), Refusal> {
        tell(&format!(
            "there is no namespace {}: VMs are let go of without controllers and agents, and volumes stay on the nodes",
            self.namespace
        ));
        let asking = |kind: &str| kind.ends_with("WebhookConfiguration");
        for object in ALL.iter().filter(|object| asking(object.kind)) {
            self.remove(object).await?;
        }
        Ok(())
    }

    /// Lets go in the stead of controllers and agents: of VM objects, whose pods are deleted
    /// then, and of pods of which nothing runs any more.
    pub(super) async fn let_go_of(&self, pods: &[Pod]) -> Result<(), Refusal> {
        let vms = |namespace: Option<&str>| self.vm_objects(namespace);
        self.take_off(VM_FINALIZER, "VM", vms).await?;
        for pod in pods.iter().filter(|pod| is_over(pod)) {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            let freed = self.free(POD_FINALIZER, &api, pod.clone()).await;
            freed.map_err(|error| failed(&format!("Pod {namespace}/{name}"), &error))?;
        }
        Ok(())
    }
}

/// Whether it is deleted, and the kubelet says that its containers have ended, with QEMU,
/// which is among their processes; or no kubelet ever had it.
fn is_over(pod: &Pod) -> bool {
    let is_bound = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.is_some());
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let has_ended = |containers: &[k8s_openapi::api::core::v1::ContainerStatus]| {
        let mut states = containers.iter().map(|it| it.state.as_ref());
        states.all(|state| state.is_some_and(|state| state.running.is_none()))
    };
    let ended = match containers {
        Some(containers) => has_ended(containers),
        None => !is_bound,
    };
    pod.metadata.deletion_timestamp.is_some() && ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_what_has_ended_is_let_go_of() {
        let is_over = |deleted: bool, node: Value, states: Value| {
            let deleted = deleted.then_some("2026-01-01T00:00:00Z");
            let status = |state: &Value| {
                json!({"name": "vm", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": state})
            };
            let states = states
                .as_array()
                .map(|all| all.iter().map(status).collect::<Vec<_>>());
            let pod = json!({
                "metadata": {"name": "vm", "deletionTimestamp": deleted},
                "spec": {"containers": [], "nodeName": node},
                "status": {"containerStatuses": states},
            });
            is_over(&serde_json::from_value(pod).unwrap())
        };
        let (runs, ended) = (
            json!({"running": {}}),
            json!({"terminated": {"exitCode": 0}}),
        );
        assert!(is_over(true, json!("node1"), json!([ended])));
        assert!(is_over(true, Value::Null, Value::Null));
        assert!(!is_over(false, json!("node1"), json!([ended])));
        assert!(!is_over(true, json!("node1"), json!([runs])));
        assert!(!is_over(true, json!("node1"), json!([ended, runs])));
        // The kubelet has not told yet.
        assert!(!is_over(true, json!("node1"), Value::Null));
    }
}
