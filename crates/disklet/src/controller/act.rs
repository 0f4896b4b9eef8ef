//! Carries out what was decided, one thing after the other. What fails is tried
//! again from the beginning: decided anew, by what is there then.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{info, warn};

use disklet::cluster::client::ANSWER_WITHIN;
use disklet::cluster::names;
use disklet_core::launch::pod::VM_LABEL;

use super::context::Context;
use super::decide::{Action, Told};
use super::fresh::Fresh;
use super::gather::Gathered;
use super::objects::{ClaimObject, Key, LauncherPod, Vm};
use super::seen::ClaimState;
use super::status::OwnStatus;
use super::{launcher, watch};

/// Why something could not be done.
#[derive(Debug)]
pub(super) enum Failure {
    /// It has changed meanwhile, so that what was decided may be wrong.
    Outdated,
    /// The API server says no, or nothing.
    Api(Box<kube::Error>),
    TooSlow,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outdated => f.write_str("it has changed meanwhile"),
            Self::Api(error) => error.fmt(f),
            Self::TooSlow => f.write_str("the API server does not answer"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            // Of another version, or there already.
            kube::Error::Api(status) if status.code == 409 => Self::Outdated,
            error => Self::Api(Box::new(error)),
        }
    }
}

/// The VM's side of one look at it.
pub(super) struct Acting<'a> {
    pub(super) context: &'a Context,
    pub(super) gathered: &'a mut Gathered,
}

impl Acting<'_> {
    pub(super) async fn act(&mut self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::AddFinalizer => self.add_finalizer().await,
            Action::RemoveFinalizer => self.remove_finalizer().await,
            Action::HoldClaim(name) => self.hold_claim(name).await,
            Action::CreatePod { restarts } => self.create_pod(*restarts).await,
            Action::DeletePod { uid } => self.delete_pod(uid).await,
            Action::ReleasePod { uid } => self.release_pod(uid).await,
            Action::TellPod { generation } => self.tell_pod(*generation).await,
            Action::ApplyStatus(status) => self.apply_status(status).await,
            Action::Tell(told) => {
                self.tell(told).await;
                Ok(())
            }
        }
    }

    fn key(&self) -> Key {
        Key::of(&*self.gathered.vm)
    }

    async fn add_finalizer(&mut self) -> Result<(), Failure> {
        let patch = with_finalizer(&*self.gathered.vm, names::VM_FINALIZER);
        self.patch_vm(&patch).await
    }

    async fn remove_finalizer(&mut self) -> Result<(), Failure> {
        let patch = without_finalizer(&*self.gathered.vm, names::VM_FINALIZER);
        self.patch_vm(&patch).await
    }

    async fn patch_vm(&mut self, patch: &Value) -> Result<(), Failure> {
        let context = self.context;
        let before = Arc::clone(&self.gathered.vm);
        let vm = patched(context, "vms", &context.fresh_vms, &before, patch).await?;
        self.gathered.vm = vm;
        Ok(())
    }

    async fn hold_claim(&mut self, name: &str) -> Result<(), Failure> {
        let key = Key::new(&self.key().namespace, name);
        let cached = watch::get(&self.context.caches.claims, &key);
        let Some(claim) = self.context.fresh_claims.newest(&key, cached) else {
            return Err(Failure::Outdated);
        };
        let patch = with_finalizer(&*claim, names::CLAIM_FINALIZER);
        patch_claim(self.context, &claim, &patch).await
    }

    async fn create_pod(&mut self, restarts: u32) -> Result<(), Failure> {
        let Some(made) = &self.gathered.launcher else {
            return Err(Failure::Outdated);
        };
        let direct = self.direct_claims();
        let pod = launcher::tied(made, &self.gathered.vm, restarts, &direct);
        let (key, context) = (self.key(), self.context);
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
        let params = PostParams::default();
        let made = counted(context, "pods", "create", pods.create(&params, &pod)).await;
        match made {
            Ok(pod) => {
                context.metrics.launched();
                context.rebuffs.forget(&key);
                info!(vm = %key, "made the launcher pod");
                context
                    .fresh_pods
                    .wrote(&key, None, narrowed(&pod).map(Arc::new));
                Ok(())
            }
            Err(Failure::Outdated) => self.found_a_pod(&key).await,
            Err(error) => {
                context.rebuffs.note(&key, &error);
                Err(error)
            }
        }
    }

    /// There is a pod of the VM's name that our watch does not show: our own,
    /// made a moment ago, or somebody else's.
    async fn found_a_pod(&self, key: &Key) -> Result<(), Failure> {
        let pods: Api<LauncherPod> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let found = pods.get_opt(&key.name).await?;
        if let Some(pod) = found.map(Arc::new) {
            match pod.is_of(&self.gathered.vm) {
                true => self.context.fresh_pods.wrote(key, None, Some(pod)),
                false => self.context.strangers.found(self.context, key, pod),
            }
        }
        Err(Failure::Outdated)
    }

    async fn delete_pod(&mut self, uid: &str) -> Result<(), Failure> {
        let (key, context) = (self.key(), self.context);
        let now = delete_by_uid(context, &key, uid).await?;
        info!(vm = %key, "deleted the launcher pod");
        let before = self.gathered.pod.as_ref();
        context.fresh_pods.wrote(&key, before, now);
        Ok(())
    }

    async fn release_pod(&mut self, uid: &str) -> Result<(), Failure> {
        let Some(pod) = self.gathered.pod.clone() else {
            return Err(Failure::Outdated);
        };
        warn!(vm = %self.key(), pod = uid, "no agent frees the launcher pod; letting it go");
        let (key, context) = (self.key(), self.context);
        let pods: Api<LauncherPod> = Api::namespaced(context.client.clone(), &key.namespace);
        let patch = without_finalizer(&*pod, names::POD_FINALIZER);
        // The right to patch pods would be the right to exchange what they run.
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let released = pods.patch_status(&key.name, &params, &patch);
        let now = match counted(context, "pods/status", "patch", released).await {
            Ok(pod) => Some(Arc::new(pod)),
            Err(Failure::Api(error)) if is_gone(&error) => None,
            Err(error) => return Err(error),
        };
        context.fresh_pods.wrote(&key, Some(&pod), now);
        Ok(())
    }

    /// The claims that QEMU opens by itself.
    fn direct_claims(&self) -> Vec<String> {
        let claims = self.gathered.seen.claims.iter();
        let direct = claims.filter(|claim| matches!(claim.state, ClaimState::Direct { .. }));
        direct.map(|claim| claim.name.clone()).collect()
    }

    /// Claims that the guest has had stay held as long as its pod is there: nobody here
    /// knows when it lets go of them.
    async fn tell_pod(&mut self, generation: i64) -> Result<(), Failure> {
        let Some(pod) = self.gathered.pod.clone() else {
            return Err(Failure::Outdated);
        };
        let mut direct: BTreeSet<_> = pod.direct_claims().map(str::to_owned).collect();
        direct.extend(self.direct_claims());
        let direct = (!direct.is_empty()).then(|| direct.into_iter().collect::<Vec<_>>().join(","));
        let patch = json!({"metadata": {
            "uid": pod.metadata.uid,
            "annotations": {
                (names::WANTED): generation.to_string(),
                (names::DIRECT_CLAIMS): direct,
            },
        }});
        let (key, context) = (self.key(), self.context);
        let pods: Api<LauncherPod> = Api::namespaced(context.client.clone(), &key.namespace);
        // The right to patch pods would be the right to exchange what they run.
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let told = pods.patch_status(&key.name, &params, &patch);
        let now = match counted(context, "pods/status", "patch", told).await {
            Ok(pod) => Some(Arc::new(pod)),
            Err(Failure::Api(error)) if is_gone(&error) => None,
            Err(error) => return Err(error),
        };
        context.fresh_pods.wrote(&key, Some(&pod), now);
        Ok(())
    }

    async fn apply_status(&mut self, status: &OwnStatus) -> Result<(), Failure> {
        let (key, context) = (self.key(), self.context);
        let body = json!({
            "apiVersion": Vm::api_version(&()),
            "kind": Vm::kind(&()),
            // Not over what somebody else has written since.
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "resourceVersion": self.gathered.vm.metadata.resource_version,
            },
            "status": status,
        });
        let vms: Api<Vm> = Api::namespaced(context.client.clone(), &key.namespace);
        let params = PatchParams::apply(names::CONTROLLER).force();
        let patch = Patch::Apply(&body);
        let applied = vms.patch_status(&key.name, &params, &patch);
        let vm = counted(context, "vms/status", "patch", applied).await?;
        let vm = Arc::new(vm);
        let before = std::mem::replace(&mut self.gathered.vm, Arc::clone(&vm));
        context.fresh_vms.wrote(&key, Some(&before), Some(vm));
        Ok(())
    }

    /// That an event could not be told is no reason to do anything again.
    async fn tell(&self, told: &Told) {
        let context = self.context;
        if told.is_warning {
            context.metrics.refused(&told.reason);
        }
        let about = self.gathered.vm.object_ref(&());
        let telling = context
            .teller
            .tell(about, told.is_warning, &told.reason, &told.message);
        if let Err(error) = counted(context, "events", "create", telling).await {
            warn!(vm = %self.key(), %error, "an event was not told");
        }
    }
}

/// Deletes this pod and no other of its name. Returns what is left of it.
pub(super) async fn delete_by_uid(
    context: &Context,
    key: &Key,
    uid: &str,
) -> Result<Option<Arc<LauncherPod>>, Failure> {
    let pods: Api<LauncherPod> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match counted(context, "pods", "delete", pods.delete(&key.name, &params)).await {
        Ok(answer) => Ok(answer.left().map(Arc::new)),
        Err(Failure::Api(error)) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Changes a pod that has slipped past the webhook; of other pods nothing is changed.
/// Returns what has become of it.
pub(super) async fn patch_pod(
    context: &Context,
    key: &Key,
    patch: &Value,
) -> Result<Option<LauncherPod>, Failure> {
    let pods: Api<LauncherPod> = Api::namespaced(context.client.clone(), &key.namespace);
    let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
    let patched = pods.patch(&key.name, &params, &patch);
    unless_gone(counted(context, "pods", "patch", patched).await)
}

/// Takes a launcher's label off a pod that is none. By this way API servers do not ask
/// whether a launcher may be changed.
pub(super) async fn take_label_off(context: &Context, key: &Key, uid: &str) -> Result<(), Failure> {
    let pods: Api<LauncherPod> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch = json!({"metadata": {"uid": uid, "labels": {VM_LABEL: null}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let taken = pods.patch_status(&key.name, &params, &patch);
    unless_gone(counted(context, "pods/status", "patch", taken).await).map(drop)
}

fn unless_gone<T>(done: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match done {
        Err(Failure::Api(error)) if is_gone(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// Takes the agent's finalizer off a pod that no agent frees.
pub(super) async fn release_forsaken(context: &Context, pod: &LauncherPod) -> Result<(), Failure> {
    let key = Key::of(pod);
    warn!(pod = %key, "no agent frees the pod; letting it go");
    let pods: Api<LauncherPod> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch = without_finalizer(pod, names::POD_FINALIZER);
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let released = pods.patch_status(&key.name, &params, &patch);
    match counted(context, "pods/status", "patch", released).await {
        Err(Failure::Api(error)) if is_gone(&error) => Ok(()),
        // The cache is behind, or somebody else was faster.
        Err(Failure::Outdated) => Ok(()),
        other => other.map(drop),
    }
}

/// Takes our finalizer off a claim that no VM uses.
pub(super) async fn release_claim(
    context: &Context,
    claim: &Arc<ClaimObject>,
) -> Result<(), Failure> {
    let patch = without_finalizer(&**claim, names::CLAIM_FINALIZER);
    match patch_claim(context, claim, &patch).await {
        Err(Failure::Api(error)) if is_gone(&error) => Ok(()),
        other => other,
    }
}

async fn patch_claim(
    context: &Context,
    claim: &Arc<ClaimObject>,
    patch: &Value,
) -> Result<(), Failure> {
    let resource = "persistentvolumeclaims";
    patched(context, resource, &context.fresh_claims, claim, patch).await?;
    Ok(())
}

/// Patches metadata, and remembers what came of it.
async fn patched<K>(
    context: &Context,
    resource: &'static str,
    fresh: &Fresh<K>,
    before: &Arc<K>,
    patch: &Value,
) -> Result<Arc<K>, Failure>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let key = Key::of(&**before);
    let api: Api<K> = Api::namespaced(context.client.clone(), &key.namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api.patch(&key.name, &params, &patch);
    let now = Arc::new(counted(context, resource, "patch", patched).await?);
    fresh.wrote(&key, Some(before), Some(Arc::clone(&now)));
    Ok(now)
}

/// A write, in time and in the statistics.
async fn counted<T>(
    context: &Context,
    resource: &'static str,
    verb: &'static str,
    write: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    let done = in_time(write).await;
    let outcome = match &done {
        Ok(_) => "done",
        Err(Failure::Outdated) => "outdated",
        Err(_) => "failed",
    };
    context.metrics.wrote(resource, verb, outcome);
    done
}

/// An answer of the API server, or that none came.
pub(super) async fn in_time<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(Failure::TooSlow),
    }
}

/// A pod as the watch would show it.
fn narrowed(pod: &Pod) -> Option<LauncherPod> {
    serde_json::to_value(pod)
        .and_then(serde_json::from_value)
        .ok()
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Lists are replaced as a whole, so the version that was seen goes with them.
fn finalizers(object: &impl Resource, finalizers: &[String]) -> Value {
    json!({
        "metadata": {
            "finalizers": finalizers,
            "resourceVersion": object.meta().resource_version,
        },
    })
}

fn with_finalizer(object: &impl Resource, finalizer: &str) -> Value {
    let mut all = object.finalizers().to_vec();
    all.push(finalizer.to_owned());
    finalizers(object, &all)
}

fn without_finalizer(object: &impl Resource, finalizer: &str) -> Value {
    let mut all = object.finalizers().to_vec();
    all.retain(|held| held != finalizer);
    finalizers(object, &all)
}
