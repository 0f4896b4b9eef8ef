//! Puts together what is known of one VM, from the caches alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use disklet::cluster::names;
use disklet_core::launch::pod::Unready;
use disklet_core::manifest::{DiskSource, RestartPolicy, VmObject};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::context::Context;
use super::objects::{
    ClaimObject, ClassObject, Key, LauncherPod, NodeObject, Vm, VolumeObject, is_going, is_held,
};
use super::seen::{ClaimSeen, ClaimState, PodSeen, Seen, Stage};
use super::watch::{Caches, get};
use super::{launcher, read};

/// A VM with all that belongs to it.
pub(super) struct Gathered {
    pub(super) vm: Arc<Vm>,
    pub(super) pod: Option<Arc<LauncherPod>>,
    /// The pod that would be made of it now.
    pub(super) launcher: Option<Pod>,
    pub(super) seen: Seen,
}

/// Nothing if the VM is gone.
pub(super) fn gather(context: &Context, cached: Arc<Vm>) -> Option<Gathered> {
    let key = Key::of(&*cached);
    let vm = context.fresh_vms.newest(&key, Some(cached))?;
    let pod = get(&context.caches.pods, &key);
    let pod = context.fresh_pods.newest(&key, pod);
    let pod = pod.or_else(|| context.strangers.get(&key));
    let pod_seen = pod.as_ref().map(|pod| look_at_pod(context, &vm, pod));

    let reading = read::vm(&vm);
    let accepted = reading.vm.as_ref().filter(|_| reading.refusal.is_none());
    let (claims, launcher) = match accepted {
        Some(object) => look_at_claims(context, &key, object),
        None => (Vec::new(), None),
    };
    let seen = Seen {
        now: Timestamp::now(),
        name: key.name.clone(),
        generation: vm.metadata.generation.unwrap_or_default(),
        is_going: is_going(&*vm),
        is_held: is_held(&*vm, names::VM_FINALIZER),
        // Even a VM that cannot be read can be stopped.
        running: vm.spec["running"].as_bool().unwrap_or(true),
        policy: accepted.map_or(RestartPolicy::default(), |vm| vm.restart),
        refusal: reading.refusal,
        status: vm.status.clone(),
        patience: patience(context, &key, pod_seen.as_ref()),
        pod: pod_seen,
        misplaced: misplaced(&claims, pod.as_deref(), launcher.as_ref()),
        claims,
        rebuff: context.rebuffs.get(&key),
    };
    Some(Gathered {
        vm,
        pod,
        launcher,
        seen,
    })
}

fn look_at_pod(context: &Context, vm: &Vm, pod: &LauncherPod) -> PodSeen {
    let node = pod.spec.node_name.as_deref();
    let is_node_lost = node.is_some_and(|node| is_lost(&context.caches, node));
    PodSeen::of(pod, vm, is_node_lost)
}

/// A node that does not exist any more, or of which somebody has said that it is
/// off. Silence is not enough: its VMs may well run.
pub(super) fn is_lost(caches: &Caches, node: &str) -> bool {
    match get(&caches.nodes, &Key::new("", node)) {
        None => true,
        Some(node) => is_out_of_service(&node),
    }
}

/// By the word of an administrator.
pub(super) fn is_out_of_service(node: &NodeObject) -> bool {
    let mut taints = node.spec.taints.iter();
    taints.any(|taint| taint.key == names::OUT_OF_SERVICE)
}

fn patience(context: &Context, vm: &Key, pod: Option<&PodSeen>) -> SignedDuration {
    match pod {
        Some(PodSeen {
            uid,
            stage: Stage::Ended(end),
            ..
        }) => context.patience.after(vm, uid, end.ran),
        _ => SignedDuration::ZERO,
    }
}

/// The claims that the pod has otherwise than the one that would be made now.
fn misplaced(claims: &[ClaimSeen], pod: Option<&LauncherPod>, wanted: Option<&Pod>) -> Vec<String> {
    let is_bound =
        |state: &ClaimState| matches!(state, ClaimState::Kubelet | ClaimState::Direct { .. });
    let bound: Vec<_> = claims.iter().filter(|it| is_bound(&it.state)).collect();
    let (Some(pod), Some(wanted), false) = (pod, wanted, bound.is_empty()) else {
        return Vec::new();
    };
    // Both as we see pods.
    let wanted = serde_json::to_value(wanted).and_then(serde_json::from_value::<LauncherPod>);
    let Ok(wanted) = wanted else {
        return Vec::new();
    };
    let names = bound.into_iter().map(|claim| claim.name.clone());
    names
        .filter(|name| pod.opens(name) != wanted.opens(name))
        .collect()
}

/// The VM's claims, and the pod that would be made of it with them.
fn look_at_claims(context: &Context, vm: &Key, object: &VmObject) -> (Vec<ClaimSeen>, Option<Pod>) {
    let names: BTreeSet<_> = object
        .disks
        .iter()
        .filter_map(|disk| match &disk.source.as_ref()?.value {
            DiskSource::Claim { name, .. } => Some(name.value.as_str()),
            _ => None,
        })
        .collect();
    let found: Vec<_> = names
        .into_iter()
        .map(|name| Found::look(context, &Key::new(&vm.namespace, name)))
        .collect();
    let given: Vec<_> = found.iter().flat_map(|found| &found.given).collect();
    let objects = read::objects(&given);
    let launcher = launcher::make(object, &objects, &context.launcher);
    let claims = found.into_iter().map(|found| found.seen(&launcher));
    (claims.collect(), launcher.ok())
}

/// A claim as the caches have it.
struct Found {
    name: String,
    state: ClaimState,
    is_held: bool,
    /// The claim, its volume and its class, for the reader.
    given: Vec<Value>,
}

impl Found {
    fn look(context: &Context, key: &Key) -> Self {
        let cached = get(&context.caches.claims, key);
        let claim = context.fresh_claims.newest(key, cached);
        let mut found = Self {
            name: key.name.clone(),
            state: ClaimState::Missing,
            is_held: false,
            given: Vec::new(),
        };
        if let Some(claim) = claim {
            found.is_held = is_held(&*claim, names::CLAIM_FINALIZER);
            found.given.push(read::claim(&claim));
            found.state = found.judge(context, &claim);
        }
        found
    }

    fn judge(&mut self, context: &Context, claim: &ClaimObject) -> ClaimState {
        if is_going(claim) {
            return ClaimState::Going;
        }
        let phase = claim.status.phase.as_deref().unwrap_or("Pending");
        let class = class_of(context, claim);
        self.given
            .extend(class.iter().map(|class| read::class(class)));
        if phase != "Bound" {
            let mode = class
                .as_ref()
                .and_then(|it| it.volume_binding_mode.as_deref());
            return match mode {
                Some("WaitForFirstConsumer") if phase == "Pending" => {
                    self.given.extend(volumes_for(context, claim));
                    ClaimState::Awaits
                }
                _ => ClaimState::NotBound(phase.to_owned()),
            };
        }
        let volume = claim.spec["volumeName"].as_str().unwrap_or_default();
        match get(&context.caches.volumes, &Key::new("", volume)) {
            None => ClaimState::VolumeUnseen,
            Some(volume) => {
                self.given.push(read::volume(&volume));
                ClaimState::Kubelet
            }
        }
    }

    /// What is bound and not in the pod is opened by QEMU.
    fn seen(self, launcher: &Result<Pod, Vec<Unready>>) -> ClaimSeen {
        let Self { name, is_held, .. } = self;
        let state = match (self.state, launcher) {
            (ClaimState::Kubelet, Ok(pod)) if !launcher::carries(pod, &name) => {
                ClaimState::Direct { is_held }
            }
            (state, Err(unready)) if state.is_usable() => {
                let why = unready.iter().find(|it| it.claim.as_str() == name);
                why.map_or(state, |unready| ClaimState::Unready(unready.why.clone()))
            }
            (state, _) => state,
        };
        ClaimSeen { name, state }
    }
}

/// The volumes that an unbound claim may be bound to, and some more.
fn volumes_for(context: &Context, claim: &ClaimObject) -> Vec<Value> {
    let is_open = |volume: &VolumeObject| {
        volume.status.phase.as_deref() == Some("Available")
            && volume.spec["storageClassName"] == claim.spec["storageClassName"]
    };
    let volumes = context.caches.volumes.state_filter(is_open);
    volumes.iter().map(|volume| read::volume(volume)).collect()
}

/// The claim's class; the API server has given it the default one.
fn class_of(context: &Context, claim: &ClaimObject) -> Option<Arc<ClassObject>> {
    let annotations = claim.metadata.annotations.as_ref();
    let older = annotations.and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    let name = claim.spec["storageClassName"].as_str();
    let name = name.or(older.map(String::as_str))?;
    get(&context.caches.classes, &Key::new("", name))
}
