//! VMs that are in the way.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams};

use disklet_core::crd::{GROUP, VERSION};

use super::cluster::{Cluster, failed, is_absent};
use super::{Refusal, tell};

/// The label of launcher pods.
const LAUNCHERS: &str = "disklet.io/vm";

/// The VMs of a cluster.
pub(super) struct Vms {
    /// Every VM object, as namespace and name.
    objects: Vec<(String, String)>,
    /// Every pod by which a VM is on a node.
    on_nodes: Vec<String>,
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
                listed(&self.on_nodes)
            ))
            .help("set running: false, or delete them; --force does that, see --help for what is lost")),
        }
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
        let launchers = ListParams::default().labels(LAUNCHERS);
        let pods = pods.list(&launchers).await;
        let pods = pods.map_err(|error| failed("launcher pods cannot be listed", &error))?;
        let name =
            |object: &DynamicObject| (object.namespace().unwrap_or_default(), object.name_any());
        Ok(Vms {
            objects: objects.iter().map(name).collect(),
            on_nodes: pods
                .iter()
                .filter(|pod| is_on_node(pod))
                .map(shown)
                .collect(),
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

    /// Deletes every VM object, and waits until controller and agents have let go
    /// of them.
    pub(super) async fn delete_vms(&self, vms: &Vms, patience: Duration) -> Result<(), Refusal> {
        for (namespace, name) in &vms.objects {
            tell(&format!("deleting VM {namespace}/{name}"));
            if self.dry_run {
                continue;
            }
            let api = self.vm_objects(Some(namespace));
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if !is_absent(&error) => {
                    return Err(failed(&format!("VM {namespace}/{name}"), &error));
                }
                _ => {}
            }
        }
        if self.dry_run {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            let left = self.vms().await?;
            if !left.exist() {
                return Ok(());
            }
            if begun.elapsed() > patience {
                return Err(still_there(&left));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

fn still_there(left: &Vms) -> Refusal {
    let objects = left.objects.iter();
    let mut names: Vec<_> = objects
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    names.extend(left.on_nodes.iter().cloned());
    names.sort();
    names.dedup();
    Refusal::new(format!("still there, so nothing was removed: {}", listed(&names))).help(
        "see with kubectl describe what holds them; disklet-controller and the agents of their nodes have to run",
    )
}

/// A pod whose VM may have something on its node, now or soon.
fn is_on_node(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    !has_ended || !pod.finalizers().is_empty()
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
