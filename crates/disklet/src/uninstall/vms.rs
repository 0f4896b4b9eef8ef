//! VMs that are in the way.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions};

use disklet::cluster::agents::Absences;
use disklet::cluster::names::POD_FINALIZER;
use disklet_core::crd::{GROUP, VERSION};
use disklet_core::launch::pod::VM_LABEL;
use disklet_core::launch::vm_pod::SAVED;

use super::cluster::{Cluster, failed, is_absent};
use super::{Refusal, tell};

/// The VMs of a cluster.
pub(super) struct Vms {
    /// Every VM object, as namespace and name.
    objects: Vec<(String, String)>,
    /// Every pod by which a VM is on a node.
    on_nodes: Vec<Pod>,
}

impl Vms {
    pub(super) fn exist(&self) -> bool {
        !self.objects.is_empty() || !self.on_nodes.is_empty()
    }

    pub(super) fn objects(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn demand_none_on_nodes(&self) -> Result<(), Refusal> {
        match self.on_nodes.len() {
            0 => Ok(()),
            count => Err(Refusal::new(format!(
                "{count} {} on nodes: {}",
                if count == 1 { "VM is" } else { "VMs are" },
                listed(&self.shown())
            ))
            .help("set running: false, or delete them; --force does that, see --help for what is lost")),
        }
    }

    /// A VM pod that is deleted comes again if somebody makes such pods.
    fn demand_none_comes_again(&self) -> Result<(), Refusal> {
        let makers: Vec<_> = self.on_nodes.iter().filter_map(made_by_another).collect();
        match makers.is_empty() {
            true => Ok(()),
            false => Err(Refusal::new(format!(
                "VM pods that are deleted would be made again: {}",
                listed(&makers)
            ))
            .help("delete what makes them, or scale it to 0")),
        }
    }

    fn shown(&self) -> Vec<String> {
        self.on_nodes.iter().map(shown).collect()
    }
}

/// Some of many.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

impl Cluster {
    pub(super) async fn vms(&self) -> Result<Vms, Refusal> {
        let objects = match self.vm_objects(None).list(&ListParams::default()).await {
            Ok(list) => list.items,
            // Their definition is gone, or was never there.
            Err(error) if is_absent(&error) => Vec::new(),
            Err(error) => return Err(failed("VM objects cannot be listed", &error)),
        };
        let pods: Api<Pod> = Api::all(self.client.clone());
        let launchers = ListParams::default().labels(VM_LABEL);
        let pods = pods.list(&launchers).await;
        let pods = pods.map_err(|error| failed("launcher pods cannot be listed", &error))?;
        let name =
            |object: &DynamicObject| (object.namespace().unwrap_or_default(), object.name_any());
        Ok(Vms {
            objects: objects.iter().map(name).collect(),
            on_nodes: pods.into_iter().filter(is_on_node).collect(),
        })
    }

    pub(super) fn vm_objects(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "VM".to_owned(),
            plural: "vms".to_owned(),
        };
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Deletes every VM object and VM pod, and waits until controller and agents have
    /// let go of them.
    pub(super) async fn delete_vms(&self, vms: &Vms, patience: Duration) -> Result<(), Refusal> {
        vms.demand_none_comes_again()?;
        for (namespace, name) in &vms.objects {
            let what = format!("VM {namespace}/{name}");
            tell(&self.says_of_deleting(&what));
            if self.dry_run {
                continue;
            }
            let api = self.vm_objects(Some(namespace));
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if !is_absent(&error) => {
                    return Err(failed(&what, &error));
                }
                _ => {}
            }
        }
        // The controller deletes the others.
        for pod in vms.on_nodes.iter().filter(|pod| !is_of_vm_object(pod)) {
            self.delete_vm_pod(pod).await?;
        }
        if self.dry_run {
            return Ok(());
        }
        let is_forsaken = self.is_forsaken().await?;
        if is_forsaken {
            self.be_asked_no_more().await?;
        }
        let (begun, mut absences) = (Instant::now(), Absences::default());
        loop {
            let left = self.vms().await?;
            if !left.exist() {
                return Ok(());
            }
            if is_forsaken {
                self.let_go_of(&left.on_nodes).await?;
            }
            let vm_pods = left.on_nodes.iter().filter(|pod| !is_of_vm_object(pod));
            self.let_go_without_agents(vm_pods, &mut absences).await?;
            if begun.elapsed() > patience {
                return Err(still_there(&left));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn says_of_deleting(&self, what: &str) -> String {
        match self.dry_run {
            true => format!("{what} would be deleted"),
            false => format!("deleting {what}"),
        }
    }

    async fn delete_vm_pod(&self, pod: &Pod) -> Result<(), Refusal> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        tell(&self.says_of_deleting(&format!("VM pod {namespace}/{name}")));
        if self.dry_run {
            return Ok(());
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        match pods.delete(&name, &params).await {
            Err(error) if !is_absent(&error) => {
                Err(failed(&format!("VM pod {namespace}/{name}"), &error))
            }
            _ => Ok(()),
        }
    }
}

fn still_there(left: &Vms) -> Refusal {
    let objects = left.objects.iter();
    let mut names: Vec<_> = objects
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    names.extend(left.shown());
    names.sort();
    names.dedup();
    Refusal::new(format!("still there, so nothing was removed: {}", listed(&names))).help(
        "see with kubectl describe what holds them; disklet-controller and the agents of their nodes have to run",
    )
}

/// A pod whose VM may have something on its node, now or soon. The label alone, which
/// anybody can write, makes no pod a VM.
fn is_on_node(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    let is_held = pod.finalizers().iter().any(|held| held == POD_FINALIZER);
    let is_vm = is_of_vm_object(pod) || pod.annotations().contains_key(SAVED);
    is_held || (is_vm && !has_ended)
}

fn maker(pod: &Pod) -> Option<&OwnerReference> {
    let mut owners = pod.owner_references().iter();
    owners.find(|owner| owner.controller == Some(true))
}

fn is_of_vm_object(pod: &Pod) -> bool {
    let group = format!("{GROUP}/");
    maker(pod).is_some_and(|owner| owner.kind == "VM" && owner.api_version.starts_with(&group))
}

/// The pod and who makes it, unless nobody does, or a VM object.
fn made_by_another(pod: &Pod) -> Option<String> {
    let maker = maker(pod).filter(|_| !is_of_vm_object(pod))?;
    let namespace = pod.namespace().unwrap_or_default();
    let pod = pod.name_any();
    Some(format!(
        "{namespace}/{pod} by {} {}",
        maker.kind, maker.name
    ))
}

fn shown(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let namespace = pod.namespace().unwrap_or_default();
    format!(
        "{namespace}/{} ({})",
        pod.name_any(),
        node.unwrap_or("no node yet")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, meta: &Value, phase: &str) -> Pod {
        let mut pod = json!({"metadata": meta, "status": {"phase": phase}});
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["namespace"] = "n".into();
        serde_json::from_value(pod).unwrap()
    }

    fn owned(kind: &str, version: &str) -> Value {
        json!({"ownerReferences": [{
            "apiVersion": version, "kind": kind, "name": "it", "uid": "1", "controller": true,
        }]})
    }

    #[test]
    fn a_label_alone_makes_no_pod_a_vm() {
        let held = json!({"finalizers": [POD_FINALIZER]});
        let vm_pod = json!({"annotations": {SAVED: "{}"}});
        let of_vm = owned("VM", "disklet.io/v1alpha1");
        for (meta, phase, is_there) in [
            (json!({}), "Running", false),
            (
                json!({"finalizers": ["example.com/other"]}),
                "Failed",
                false,
            ),
            (owned("VM", "example.com/v1"), "Running", false),
            (held.clone(), "Running", true),
            (held, "Failed", true),
            (vm_pod.clone(), "Running", true),
            (vm_pod, "Succeeded", false),
            (of_vm.clone(), "Pending", true),
            (of_vm, "Succeeded", false),
        ] {
            let pod = pod("pod", &meta, phase);
            assert_eq!(is_on_node(&pod), is_there, "{meta} {phase}");
        }
    }

    #[test]
    fn what_others_make_again_is_not_deleted() {
        let vms = |on_nodes| Vms {
            objects: Vec::new(),
            on_nodes,
        };
        let alone = pod("alone", &json!({"annotations": {SAVED: "{}"}}), "Running");
        let of_vm = pod("vm", &owned("VM", "disklet.io/v1alpha1"), "Running");
        let made = pod("web-1", &owned("ReplicaSet", "apps/v1"), "Running");
        let mine = vec![alone, of_vm];
        vms(mine.clone()).demand_none_comes_again().unwrap();
        let all = vms(mine.into_iter().chain([made]).collect());
        let refused = format!("{:?}", all.demand_none_comes_again().unwrap_err());
        assert!(refused.contains("n/web-1 by ReplicaSet it\""), "{refused}");
    }
}
