//! Letting go of what stays: without us nobody takes our finalizers off, and what
//! has one cannot be deleted; nor does anybody run VMs on a node with our label.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use disklet::cluster::names::{AGENT, CLAIM_FINALIZER, VM_FINALIZER};
use disklet_core::launch::pod::{NODE_LABEL, POOL_LABEL};

use super::cluster::{Cluster, failed, is_absent};
use super::{Refusal, tell};

impl Cluster {
    /// When nobody of us is there any more, who would hold it again.
    pub(super) async fn let_go(&self) -> Result<(), Refusal> {
        let vms = |namespace: Option<&str>| self.vm_objects(namespace);
        self.take_off(VM_FINALIZER, "VM", vms).await?;
        let claims = |namespace: Option<&str>| -> Api<PersistentVolumeClaim> {
            let client = self.client.clone();
            match namespace {
                Some(namespace) => Api::namespaced(client, namespace),
                None => Api::all(client),
            }
        };
        self.take_off(CLAIM_FINALIZER, "PersistentVolumeClaim", claims)
            .await?;
        self.take_label_off().await
    }

    pub(super) async fn take_off<K>(
        &self,
        finalizer: &str,
        kind: &str,
        api: impl Fn(Option<&str>) -> Api<K>,
    ) -> Result<(), Refusal>
    where
        K: ResourceExt + Clone + DeserializeOwned + Debug,
    {
        let all = match api(None).list(&ListParams::default()).await {
            Ok(all) => all.items,
            // There is no definition of VM objects.
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(failed(&format!("{kind}s cannot be listed"), &error)),
        };
        for object in all.into_iter().filter(|object| has(object, finalizer)) {
            let namespace = object.namespace().unwrap_or_default();
            let what = format!("{kind} {namespace}/{}", object.name_any());
            self.free(finalizer, &api(Some(&namespace)), object)
                .await
                .map_err(|error| failed(&what, &error))?;
            let word = if self.dry_run { "would be" } else { "is" };
            tell(&format!("{what} {word} held no more by {finalizer}"));
        }
        Ok(())
    }

    /// Lists are replaced as a whole: not over what somebody else has written.
    pub(super) async fn free<K>(
        &self,
        finalizer: &str,
        api: &Api<K>,
        object: K,
    ) -> Result<(), kube::Error>
    where
        K: ResourceExt + Clone + DeserializeOwned + Debug,
    {
        let mut held = Some(object);
        while let Some(object) = held.take_if(|object| has(object, finalizer)) {
            let mut others = object.finalizers().to_vec();
            others.retain(|other| other != finalizer);
            let patch = json!({"metadata": {
                "finalizers": others,
                "resourceVersion": object.resource_version(),
            }});
            let name = object.name_any();
            match api
                .patch(&name, &self.patching(), &Patch::Merge(&patch))
                .await
            {
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    held = api.get_opt(&name).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Off the nodes on which an agent of ours has put it, also those that have had
    /// none for long.
    async fn take_label_off(&self) -> Result<(), Refusal> {
        let api: Api<Node> = Api::all(self.client.clone());
        let (label, value) = NODE_LABEL;
        let with_it = ListParams::default().labels(&format!("{label}={value}"));
        let nodes = api.list(&with_it).await;
        let nodes = nodes.map_err(|error| failed("nodes cannot be listed", &error))?;
        for node in nodes {
            let what = format!("Node {}", node.name_any());
            if !node.managed_fields().iter().any(is_by_agent) {
                tell(&format!(
                    "{what} keeps its label {label}: not an agent of Disklet has put it there"
                ));
                continue;
            }
            let mut labels = of_pools(&node);
            labels.insert(label.to_owned(), Value::Null);
            let patch = json!({"metadata": {"labels": labels}});
            let (name, patching) = (node.name_any(), self.patching());
            match api.patch(&name, &patching, &Patch::Merge(&patch)).await {
                Err(error) if !is_absent(&error) => return Err(failed(&what, &error)),
                _ if self.dry_run => tell(&format!("{what} would lose its label {label}")),
                _ => tell(&format!("{what} has no label {label} any more")),
            }
        }
        Ok(())
    }

    fn patching(&self) -> PatchParams {
        PatchParams {
            dry_run: self.dry_run,
            ..PatchParams::default()
        }
    }
}

fn has(object: &impl ResourceExt, finalizer: &str) -> bool {
    object.finalizers().iter().any(|found| found == finalizer)
}

/// The labels of its pools, to be taken off.
fn of_pools(node: &Node) -> Map<String, Value> {
    let labels = node.labels().keys();
    let ours = labels.filter(|label| label.starts_with(POOL_LABEL.0));
    ours.map(|label| (label.clone(), Value::Null)).collect()
}

/// Whether this is what an agent has written: the label of its node.
fn is_by_agent(written: &ManagedFieldsEntry) -> bool {
    let path = format!("/f:metadata/f:labels/f:{}", NODE_LABEL.0);
    let fields = written.fields_v1.as_ref();
    written.manager.as_deref() == Some(AGENT)
        && fields.is_some_and(|fields| fields.0.pointer(&path).is_some())
}
