//! The API server, for threads that wait for its answers.

use disklet::cluster::events::Teller;
use disklet::cluster::names::POD_FINALIZER;
use disklet_core::resolve::Reference;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::pod::LauncherPod;
use crate::failure::{Failure, Result};

/// Who writes what of ours is.
const MANAGER: &str = "disklet-agent";

#[derive(Clone)]
pub(super) struct Cluster {
    client: kube::Client,
    teller: Teller,
    runtime: Handle,
}

impl Cluster {
    pub(super) fn new(client: kube::Client, runtime: Handle, node: &str) -> Self {
        Self {
            teller: Teller::new(client.clone(), MANAGER, Some(node.to_owned())),
            client,
            runtime,
        }
    }

    /// A VM object, as text; nothing if it is gone.
    pub(super) fn vm(&self, pod: &LauncherPod) -> Result<Option<Value>> {
        let vms = self.vms(pod.namespace.as_str());
        let found = self.runtime.block_on(vms.get_opt(pod.name.as_str()));
        let found = found.map_err(|error| unanswered("tell of the VM", error))?;
        let found = found.map(|vm| text_of(&vm, "VM", "disklet.io/v1alpha1"));
        Ok(found.filter(|vm| vm["metadata"]["uid"].as_str() == Some(&pod.vm)))
    }

    /// What a plan looked for; nothing if there is no such thing.
    pub(super) fn get(&self, wanted: &Reference) -> Result<Option<Value>> {
        let (kind, plural, namespace, name) = match wanted {
            Reference::Claim((namespace, name)) => {
                let kind = "PersistentVolumeClaim";
                (kind, "persistentvolumeclaims", Some(namespace), name)
            }
            Reference::Volume(name) => ("PersistentVolume", "persistentvolumes", None, name),
            Reference::ConfigMap((namespace, name)) => {
                ("ConfigMap", "configmaps", Some(namespace), name)
            }
            Reference::Secret((namespace, name)) => ("Secret", "secrets", Some(namespace), name),
            Reference::Endpoints((namespace, name)) => {
                ("Endpoints", "endpoints", Some(namespace), name)
            }
            Reference::ServiceAccount((namespace, name)) => {
                ("ServiceAccount", "serviceaccounts", Some(namespace), name)
            }
        };
        let resource = GroupVersionKind::gvk("", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&resource, plural);
        let client = self.client.clone();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace.as_str(), &resource),
            None => Api::all_with(client, &resource),
        };
        let found = self.runtime.block_on(api.get_opt(name.as_str()));
        let found = found.map_err(|error| unanswered(&format!("tell of {kind} {name}"), error))?;
        Ok(found.map(|found| text_of(&found, kind, "v1")))
    }

    /// Writes the part of a VM's status that is the agent's.
    pub(super) fn write_status(&self, pod: &LauncherPod, status: &Value) -> Result<()> {
        let vm = json!({
            "apiVersion": "disklet.io/v1alpha1",
            "kind": "VM",
            // Not that of another VM that has come under the name since.
            "metadata": {"name": pod.name.as_str(), "uid": pod.vm},
            "status": status,
        });
        let how = PatchParams::apply(MANAGER).force();
        let vms = self.vms(pod.namespace.as_str());
        let patch = Patch::Apply(&vm);
        let written = vms.patch_status(pod.name.as_str(), &how, &patch);
        match self.runtime.block_on(written) {
            // Who is gone needs no status.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(unanswered("take the VM's status", error)),
            Ok(_) => Ok(()),
        }
    }

    /// Tells people; that it does not get through stops nobody.
    pub(super) fn tell(&self, pod: &LauncherPod, reason: &str, note: &str) {
        self.publish(pod, false, reason, note);
    }

    /// The same, of something that is wrong.
    pub(super) fn warn(&self, pod: &LauncherPod, reason: &str, note: &str) {
        self.publish(pod, true, reason, note);
    }

    fn publish(&self, pod: &LauncherPod, is_warning: bool, reason: &str, note: &str) {
        let about = core::ObjectReference {
            api_version: Some("disklet.io/v1alpha1".to_owned()),
            kind: Some("VM".to_owned()),
            name: Some(pod.name.to_string()),
            namespace: Some(pod.namespace.to_string()),
            uid: Some(pod.vm.clone()),
            ..core::ObjectReference::default()
        };
        let told = self.teller.tell(about, is_warning, reason, note);
        if let Err(error) = self.runtime.block_on(told) {
            tracing::warn!(vm = pod.full_name(), %error, "an event was not published");
        }
    }

    /// Takes the agent's finalizer from a pod of which nothing is left here.
    pub(super) fn let_go(&self, pod: &LauncherPod) -> Result<()> {
        let pods = Api::<core::Pod>::namespaced(self.client.clone(), pod.namespace.as_str());
        let name = pod.name.as_str();
        let unheld = async {
            let Some(now) = pods.get_opt(name).await? else {
                return Ok(());
            };
            if now.metadata.uid.as_deref() != Some(pod.uid.as_str()) {
                return Ok(());
            }
            let others = now.metadata.finalizers.iter().flatten();
            let others: Vec<_> = others.filter(|name| *name != POD_FINALIZER).collect();
            // Whoever changes them meanwhile is not overruled.
            let version = now.metadata.resource_version.as_deref();
            let patch = json!({"metadata": {"finalizers": others, "resourceVersion": version}});
            // Of a pod's own resource the agent may change nothing.
            let how = PatchParams::default();
            match pods.patch_status(name, &how, &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(drop),
            }
        };
        self.runtime
            .block_on(unheld)
            .map_err(|error: kube::Error| unanswered("let go of the pod", error))
    }

    fn vms(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("disklet.io", "v1alpha1", "VM");
        let kind = ApiResource::from_gvk_with_plural(&kind, "vms");
        Api::namespaced_with(self.client.clone(), namespace, &kind)
    }
}

/// Now, as Kubernetes writes it.
pub(super) fn now() -> String {
    let now = Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// As a file would have it: answers leave the kind out.
fn text_of(object: &impl Serialize, kind: &str, version: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["kind"] = kind.into();
    value["apiVersion"] = version.into();
    if let Some(meta) = value["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    value
}

fn unanswered(what: &str, error: kube::Error) -> Failure {
    // What it has decided, it will decide again.
    let decided = matches!(&error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429);
    let failure = Failure::new(format!("the API server does not {what}")).because(error);
    match decided {
        true => failure,
        false => failure.into_outage(),
    }
}
