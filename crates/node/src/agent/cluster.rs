//! The API server, for threads that wait for its answers.

use std::pin::pin;
use std::time::Duration;

use disklet::cluster::client::ANSWER_WITHIN;
use disklet::cluster::events::Teller;
use disklet::cluster::names::POD_FINALIZER;
use disklet_core::resolve::Reference;
use futures::future::{Either, select};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::machine::Unwanted;
use super::pod::{LauncherPod, Vm};
use crate::failure::{Failure, Result};

/// Who writes what of ours is.
const MANAGER: &str = "disklet-agent";

/// How long it is waited for an answer.
struct Patience {
    usually: Duration,
    /// Once a guest shall end, which comes first.
    in_a_hurry: Duration,
}

const PATIENCE: Patience = Patience {
    usually: ANSWER_WITHIN,
    in_a_hurry: Duration::from_secs(2),
};
/// How often it is looked whether there is a hurry.
const LOOK_UP: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(super) struct Cluster {
    client: kube::Client,
    teller: Teller,
    runtime: Handle,
    unwanted: Unwanted,
}

impl Cluster {
    pub(super) fn new(client: kube::Client, runtime: Handle, node: &str) -> Self {
        Self {
            teller: Teller::new(client.clone(), MANAGER, Some(node.to_owned())),
            client,
            runtime,
            unwanted: Unwanted::default(),
        }
    }

    /// For somebody who has no time once a VM is not wanted any more.
    pub(super) fn unless(&self, unwanted: &Unwanted) -> Self {
        Self {
            unwanted: unwanted.clone(),
            ..self.clone()
        }
    }

    /// An answer, or that none came in time.
    pub(super) fn wait<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let hurries = || self.unwanted.is_set();
        self.runtime.block_on(in_time(request, hurries, PATIENCE))
    }

    /// For who waits as long as it takes.
    pub(super) fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// A VM, as text; nothing if it is gone.
    pub(super) fn vm(&self, pod: &LauncherPod) -> Result<Option<Value>> {
        let uid = match &pod.vm {
            Vm::Object(uid) => uid,
            Vm::Pod(vm) => return Ok(Some((**vm).clone())),
            Vm::Forgotten => return Ok(None),
        };
        let vms = self.vms(pod.namespace.as_str());
        let found = self.wait(vms.get_opt(pod.name.as_str()));
        let found = found.map_err(|error| unanswered("tell of the VM", error))?;
        let found = found.map(|vm| text_of(&vm, "VM", "disklet.io/v1alpha1"));
        Ok(found.filter(|vm| vm["metadata"]["uid"].as_str() == Some(uid)))
    }

    /// The status that tells people of a VM: that of the VM object, or of the VM
    /// pod; nothing if it is gone.
    pub(super) fn status(&self, pod: &LauncherPod) -> Result<Option<Value>> {
        if !pod.is_vm_pod() {
            return Ok(self.vm(pod)?.map(|vm| vm["status"].clone()));
        }
        let found = self.pod(pod)?;
        let found = found.map(|found| serde_json::to_value(found.status).unwrap_or_default());
        Ok(found)
    }

    fn pod(&self, pod: &LauncherPod) -> Result<Option<core::Pod>> {
        let found = self.wait(self.pods(pod).get_opt(pod.name.as_str()));
        let found = found.map_err(|error| unanswered("tell of the pod", error))?;
        Ok(found.filter(|found| found.metadata.uid.as_deref() == Some(pod.uid.as_str())))
    }

    fn pods(&self, pod: &LauncherPod) -> Api<core::Pod> {
        Api::namespaced(self.client.clone(), pod.namespace.as_str())
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
        let found = self.wait(api.get_opt(name.as_str()));
        let found = found.map_err(|error| unanswered(&format!("tell of {kind} {name}"), error))?;
        Ok(found.map(|found| text_of(&found, kind, "v1")))
    }

    /// Writes the part of a VM's status that is the agent's.
    pub(super) fn write_status(&self, pod: &LauncherPod, status: &Value) -> Result<()> {
        let uid = match &pod.vm {
            Vm::Object(uid) => uid,
            Vm::Pod(_) => return self.write_pod_status(pod, status),
            Vm::Forgotten => return Ok(()),
        };
        let vm = json!({
            "apiVersion": "disklet.io/v1alpha1",
            "kind": "VM",
            // Not that of another VM that has come under the name since.
            "metadata": {"name": pod.name.as_str(), "uid": uid},
            "status": status,
        });
        let how = PatchParams::apply(MANAGER).force();
        let vms = self.vms(pod.namespace.as_str());
        let patch = Patch::Apply(&vm);
        let written = vms.patch_status(pod.name.as_str(), &how, &patch);
        match self.wait(written) {
            // Who is gone needs no status.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(unanswered("take the VM's status", error)),
            Ok(_) => Ok(()),
        }
    }

    /// The kubelet keeps conditions that are not its own.
    fn write_pod_status(&self, pod: &LauncherPod, status: &Value) -> Result<()> {
        let patch = json!({"metadata": {"uid": pod.uid.as_str()}, "status": status});
        let patch = Patch::Strategic(&patch);
        let how = PatchParams::default();
        let pods = self.pods(pod);
        let written = pods.patch_status(pod.name.as_str(), &how, &patch);
        match self.wait(written) {
            // Who is gone needs no status.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(unanswered("take the pod's status", error)),
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

    /// The same, by somebody who does not wait until it got through.
    pub(super) fn tell_aside(&self, pod: &LauncherPod, reason: &'static str, note: &str) {
        let (this, pod, note) = (self.clone(), pod.clone(), note.to_owned());
        self.runtime.spawn(async move {
            let told = this.teller.tell(about(&pod), false, reason, &note);
            if let Err(error) = answered(told).await {
                tracing::warn!(vm = pod.full_name(), %error, "an event was not published");
            }
        });
    }

    fn publish(&self, pod: &LauncherPod, is_warning: bool, reason: &str, note: &str) {
        let told = self.teller.tell(about(pod), is_warning, reason, note);
        if let Err(error) = self.wait(told) {
            tracing::warn!(vm = pod.full_name(), %error, "an event was not published");
        }
    }

    /// Takes the agent's finalizer from a pod of which nothing is left here.
    pub(super) fn let_go(&self, pod: &LauncherPod) -> Result<()> {
        let (pods, name) = (self.pods(pod), pod.name.as_str());
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
        self.wait(unheld)
            .map_err(|error: kube::Error| unanswered("let go of the pod", error))
    }

    fn vms(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("disklet.io", "v1alpha1", "VM");
        let kind = ApiResource::from_gvk_with_plural(&kind, "vms");
        Api::namespaced_with(self.client.clone(), namespace, &kind)
    }
}

/// Whom events about a launcher's VM are about.
fn about(pod: &LauncherPod) -> core::ObjectReference {
    let (version, kind, uid) = match &pod.vm {
        Vm::Object(uid) => ("disklet.io/v1alpha1", "VM", uid.as_str()),
        Vm::Pod(_) | Vm::Forgotten => ("v1", "Pod", pod.uid.as_str()),
    };
    core::ObjectReference {
        api_version: Some(version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(pod.name.to_string()),
        namespace: Some(pod.namespace.to_string()),
        uid: Some(uid.to_owned()),
        ..core::ObjectReference::default()
    }
}

/// An answer to somebody who is in no hurry.
pub(super) async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    in_time(request, || false, PATIENCE).await
}

/// Waits until there is an answer, but no longer than is sensible, and still
/// less if somebody is in a hurry.
async fn in_time<T>(
    request: impl Future<Output = kube::Result<T>>,
    hurries: impl Fn() -> bool,
    patience: Patience,
) -> kube::Result<T> {
    let hurried = async {
        while !hurries() {
            sleep(LOOK_UP).await;
        }
        sleep(patience.in_a_hurry).await;
    };
    let (request, hurried) = (pin!(request), pin!(hurried));
    match timeout(patience.usually, select(request, hurried)).await {
        Ok(Either::Left((answer, _))) => answer,
        Ok(Either::Right(_)) | Err(_) => Err(kube::Error::Service("no answer came in time".into())),
    }
}

/// Now, as Kubernetes writes it.
pub(super) fn now() -> String {
    let now = Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// As a file would have it: answers leave the kind out.
pub(super) fn text_of(object: &impl Serialize, kind: &str, version: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["kind"] = kind.into();
    value["apiVersion"] = version.into();
    if let Some(meta) = value["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    value
}

pub(super) fn unanswered(what: &str, error: kube::Error) -> Failure {
    // What it has decided, it will decide again.
    let decided = matches!(&error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429);
    let failure = Failure::new(format!("the API server does not {what}")).because(error);
    match decided {
        true => failure,
        false => failure.into_outage(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_mins(10);
    const SHORT: Duration = Duration::from_millis(300);

    /// How long somebody waits for an API server from which nothing comes.
    async fn waited(hurries: impl Fn() -> bool, usually: Duration) -> Duration {
        let (begun, in_a_hurry) = (Instant::now(), SHORT);
        let patience = Patience {
            usually,
            in_a_hurry,
        };
        let nothing = std::future::pending::<kube::Result<()>>();
        let answer = in_time(nothing, hurries, patience).await;
        assert!(unanswered("answer", answer.unwrap_err()).is_outage());
        begun.elapsed()
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        assert!(waited(|| false, SHORT).await >= SHORT);
        assert!(waited(|| true, LONG).await >= SHORT);
        // The launcher says stop while a status is being written.
        let begun = Instant::now();
        assert!(waited(|| begun.elapsed() > SHORT, LONG).await >= 2 * SHORT);
    }

    #[tokio::test]
    async fn an_answer_that_comes_in_time_is_heard() {
        for hurries in [false, true] {
            let late = async {
                sleep(LOOK_UP).await;
                Ok(7)
            };
            assert_eq!(in_time(late, || hurries, PATIENCE).await.unwrap(), 7);
        }
    }
}
