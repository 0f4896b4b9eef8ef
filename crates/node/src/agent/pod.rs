//! A launcher pod, as far as the agent has to know it.

use std::collections::BTreeSet;
use std::time::Duration;

use disklet::cluster::names::{POD_FINALIZER, WANTED};
use disklet_core::diag::{Diagnostics, Origin};
use disklet_core::launch::protocol::How;
use disklet_core::launch::vm_pod::{check, is_vm, original};
use disklet_core::manifest::Input;
use disklet_core::names::{Namespace, ObjectName, PodUid};
use disklet_core::units::{ByteSize, parse_quantity};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodSpec};
use serde_json::Value;

/// The container of a VM object's launcher.
const CONTAINER: &str = "vm";

/// What a launcher runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vm {
    /// A VM object, by its UID. It has the pod's name.
    Object(String),
    /// The pod itself, as its author wrote it.
    Pod(Box<Value>),
    /// Nobody knows any more.
    Forgotten,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LauncherPod {
    pub(super) uid: PodUid,
    pub(super) namespace: Namespace,
    pub(super) name: ObjectName,
    pub(super) vm: Vm,
    pub(super) address: Option<String>,
    /// It is being deleted.
    pub(super) deleting: bool,
    /// How long it has to end, if whoever deletes it has said so.
    pub(super) grace: Option<Duration>,
    /// All is over, and nothing of it is started again.
    pub(super) over: bool,
    /// It waits until the agent has freed what it made.
    pub(super) held: bool,
    /// Whether the guest answers its readiness probe, if it has one.
    pub(super) answers: Option<bool>,
    /// The generation of its VM object whose disks the guest shall have, if it is not the
    /// one that it was made of.
    pub(super) wanted: Option<i64>,
    /// Which start of its container runs now.
    pub(super) runs: Option<Incarnation>,
    /// The claims that the kubelet mounts or maps for it.
    pub(super) opened: BTreeSet<String>,
    /// All claims that it names.
    pub(super) carried: BTreeSet<String>,
    /// The Secrets for servers of images. The API server has put those of its
    /// ServiceAccount here, if its author named none.
    pub(super) pull_secrets: Vec<ObjectName>,
    restart: Restart,
    /// What its container may use.
    memory: Option<ByteSize>,
}

/// One run of a container: its ID at the runtime.
pub(super) type Incarnation = String;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    Always,
    OnFailure,
    Never,
}

impl LauncherPod {
    /// Nothing if it is not the pod of a VM object, and no VM pod. Whoever may make
    /// pods can write a label; that it has the VM's name and is owned by it makes it
    /// the only one. A VM pod is its own VM.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let name = pod.metadata.name.as_deref()?;
        let spec = pod.spec.as_ref()?;
        let first = Self {
            vm: owner(pod, name).map(Vm::Object).or_else(|| vm_pod(pod))?,
            opened: opened(spec),
            carried: carried(spec),
            pull_secrets: pull_secrets(spec),
            restart: match spec.restart_policy.as_deref() {
                Some("Never") => Restart::Never,
                Some("OnFailure") => Restart::OnFailure,
                _ => Restart::Always,
            },
            ..Self::named(pod)?
        };
        let memory = memory(spec, first.container());
        Some(Self { memory, ..first }.later(pod))
    }

    /// The same pod, as it is later. Whose it is was settled when it was first
    /// seen: its tenant may take away what says so, but not what it leaves here.
    pub(super) fn later(&self, pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        Self {
            address: status.and_then(|status| status.pod_ip.clone()),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            grace: grace(pod),
            over: matches!(phase, Some("Succeeded" | "Failed")),
            held: is_held(pod),
            answers: answers(pod, self.container()),
            wanted: annotation(pod, WANTED).and_then(|it| it.parse().ok()),
            runs: running(pod, self.container()),
            ..self.clone()
        }
    }

    /// The launcher's container; that of a VM pod has the name which its author gave.
    fn container(&self) -> &str {
        let written = match &self.vm {
            Vm::Pod(pod) => pod["spec"]["containers"][0]["name"].as_str(),
            Vm::Object(_) | Vm::Forgotten => None,
        };
        written.unwrap_or(CONTAINER)
    }

    /// One that has our finalizer and is nobody's launcher, or is not any more:
    /// nothing runs for it, and all that is here goes.
    pub(super) fn disowned(pod: &Pod) -> Option<Self> {
        let pod = Self::named(pod).filter(|_| is_held(pod))?;
        Some(Self { held: true, ..pod })
    }

    fn named(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let uid = uid_of(pod)?;
        Self::vanished(uid, meta.namespace.as_deref()?, meta.name.as_deref()?)
    }

    /// One that only the node remembers.
    pub(super) fn vanished(uid: PodUid, namespace: &str, name: &str) -> Option<Self> {
        Some(Self {
            uid,
            namespace: Namespace::parse(namespace).ok()?,
            name: ObjectName::parse(name).ok()?,
            vm: Vm::Forgotten,
            address: None,
            deleting: true,
            grace: None,
            over: true,
            held: false,
            answers: None,
            wanted: None,
            runs: None,
            opened: BTreeSet::new(),
            carried: BTreeSet::new(),
            pull_secrets: Vec::new(),
            restart: Restart::Never,
            memory: None,
        })
    }

    /// Whether the kubelet starts the launcher again after such an end: then
    /// the volumes that were made for the VM stay.
    pub(super) fn comes_back(&self, how: How) -> bool {
        !self.deleting
            && match self.restart {
                Restart::Always => true,
                Restart::OnFailure => how.exit_code() != 0,
                Restart::Never => false,
            }
    }

    /// Whether it is a VM pod, not the launcher of a VM object.
    pub(super) fn is_vm_pod(&self) -> bool {
        matches!(self.vm, Vm::Pod(_))
    }

    /// Why a guest cannot have so much memory in this pod: QEMU would be ended as soon as
    /// the guest used it.
    pub(super) fn has_no_room_for(&self, memory: ByteSize) -> Option<String> {
        let most = self.memory.filter(|most| *most < memory)?;
        let field = match self.vm {
            Vm::Pod(_) => "spec.containers[0].resources.limits.memory",
            Vm::Object(_) | Vm::Forgotten => "spec.domain.memory",
        };
        Some(format!(
            "{field}: the guest is to have {memory} of memory, and its launcher pod, made for less, may use {most}\n  \
             help: delete the pod, so that one is made anew; if the VM names no memory, have controllers \
             and nodes agree about defaultMemory: apply what disklet install --config prints"
        ))
    }

    /// Whether nothing of it will run any more.
    pub(super) fn is_done(&self) -> bool {
        self.over || (self.deleting && self.runs.is_none())
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// It need not be that of the spec: a node that is drained may leave pods more time, and
/// somebody in a hurry less.
fn grace(pod: &Pod) -> Option<Duration> {
    let seconds = pod.metadata.deletion_grace_period_seconds?;
    pod.metadata.deletion_timestamp.as_ref()?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// Which pod it is, whatever else it says.
pub(super) fn uid_of(pod: &Pod) -> Option<PodUid> {
    PodUid::parse(pod.metadata.uid.as_deref()?).ok()
}

fn is_held(pod: &Pod) -> bool {
    let mut finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers.any(|name| name == POD_FINALIZER)
}

fn opened(spec: &PodSpec) -> BTreeSet<String> {
    let containers = spec.containers.iter();
    let used: BTreeSet<_> = containers
        .flat_map(|container| {
            let mounts = container.volume_mounts.iter().flatten();
            let devices = container.volume_devices.iter().flatten();
            mounts.map(|it| &it.name).chain(devices.map(|it| &it.name))
        })
        .collect();
    let volumes = spec.volumes.iter().flatten();
    let volumes = volumes.filter(|volume| used.contains(&volume.name));
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.clone()).collect()
}

fn carried(spec: &PodSpec) -> BTreeSet<String> {
    let volumes = spec.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.clone()).collect()
}

fn annotation<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

fn pull_secrets(spec: &PodSpec) -> Vec<ObjectName> {
    let named = spec.image_pull_secrets.iter().flatten();
    let named = named.filter_map(|secret| ObjectName::parse(&secret.name).ok());
    named.collect()
}

/// The limit of a container, if it has one.
fn memory(spec: &PodSpec, name: &str) -> Option<ByteSize> {
    let mut containers = spec.containers.iter();
    let ours = containers.find(|container| container.name == name)?;
    let limits = ours.resources.as_ref()?.limits.as_ref()?;
    parse_quantity(&limits.get("memory")?.0).ok()
}

/// The UID of the VM object that owns it.
fn owner(pod: &Pod, name: &str) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| {
        owner.kind == "VM"
            && owner.api_version.starts_with("disklet.io/")
            && owner.controller == Some(true)
            && owner.name == name
    });
    owner.map(|owner| owner.uid.clone())
}

/// The VM pod that it stands for, as a file would have it.
fn vm_pod(pod: &Pod) -> Option<Vm> {
    let mut pod = original(&serde_json::to_value(pod).ok()?)?;
    let fields = pod.as_object_mut()?;
    fields.remove("status");
    fields.insert("apiVersion".to_owned(), "v1".into());
    fields.insert("kind".to_owned(), "Pod".into());
    let meta = fields.get_mut("metadata")?.as_object_mut()?;
    // A launcher that is to end has a VM until then.
    for key in [
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
    ] {
        meta.remove(key);
    }
    is_permitted(&pod).then(|| Vm::Pod(Box::new(pod)))
}

/// What is demanded of a VM pod when it is created. A pod that exists can be annotated
/// as if it were a launcher, and then nobody has asked.
fn is_permitted(pod: &Value) -> bool {
    let input = Input {
        name: Origin::object(""),
        text: pod.to_string(),
    };
    let mut diags = Diagnostics::default();
    check(&input, &mut diags);
    is_vm(pod) && diags.errors() == 0
}

fn running(pod: &Pod, name: &str) -> Option<Incarnation> {
    let container = container(pod, name)?;
    container.state.as_ref()?.running.as_ref()?;
    container.container_id.clone()
}

fn answers(pod: &Pod, name: &str) -> Option<bool> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let ours = containers.find(|container| container.name == name)?;
    ours.readiness_probe.as_ref()?;
    Some(container(pod, name).is_some_and(|container| container.ready))
}

fn container<'p>(pod: &'p Pod, name: &str) -> Option<&'p ContainerStatus> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.iter().find(|it| it.name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": "db", "namespace": "mine", "uid": "0b6f8c1e-3c3e-4d3e-9a86-3f6b2f5f9c11",
                "labels": {"disklet.io/vm": "db"}, "finalizers": ["disklet.io/agent"],
                "ownerReferences": [{
                    "apiVersion": "disklet.io/v1alpha1", "kind": "VM", "name": "db",
                    "uid": "vm-1", "controller": true,
                }],
            },
            "spec": {"containers": [{"name": "vm"}], "restartPolicy": "OnFailure"},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "vm", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": "containerd://1", "state": {"running": {}},
            }]},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_launcher_stays_one_whatever_its_tenant_takes_away() {
        let first = LauncherPod::of(&pod(|_| {})).unwrap();
        let vm = Vm::Object("vm-1".to_owned());
        assert_eq!((&first.vm, first.held), (&vm, true));
        assert_eq!(first.runs.as_deref(), Some("containerd://1"));
        let edited = pod(|pod| {
            pod["metadata"]["ownerReferences"] = json!([]);
            pod["metadata"]["labels"] = json!({});
            pod["metadata"]["finalizers"] = json!([]);
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["status"]["containerStatuses"] = json!([]);
        });
        assert_eq!(LauncherPod::of(&edited), None);
        let later = first.later(&edited);
        assert_eq!((&later.vm, &later.uid), (&vm, &first.uid));
        assert!(later.is_done() && !later.held);
    }

    /// Whoever may change a pod can write the annotation.
    #[test]
    fn a_pod_that_could_not_have_become_a_vm_pod_is_none() {
        let annotated = |change: fn(&mut Value)| {
            LauncherPod::of(&pod(|pod| {
                pod["metadata"]["ownerReferences"] = json!([]);
                let saved = json!({"containers": [{"name": "vm", "image": "virtlet.cloud/x"}]});
                pod["metadata"]["annotations"] = json!({
                    "disklet.io/vm-pod": saved.to_string(),
                    "kubernetes.io/target-runtime": "virtlet.cloud",
                });
                change(pod);
            }))
        };
        assert!(annotated(|_| {}).is_some_and(|pod| pod.is_vm_pod()));
        assert_eq!(
            annotated(|pod| pod["spec"]["hostNetwork"] = json!(true)),
            None
        );
        assert_eq!(annotated(|pod| pod["spec"]["hostPID"] = json!(true)), None);
        let of_another_runtime = |pod: &mut Value| {
            pod["metadata"]["annotations"]["kubernetes.io/target-runtime"] = json!("docker");
        };
        assert_eq!(annotated(of_another_runtime), None);
    }

    /// As when the nodes' `defaultMemory` is another than the controllers'.
    #[test]
    fn a_guest_has_no_more_memory_than_its_pod() {
        let launcher = |change: fn(&mut Value)| LauncherPod::of(&pod(change)).unwrap();
        let (small, large) = (ByteSize::from_bytes(1 << 30), ByteSize::from_bytes(4 << 30));
        let limited = launcher(|pod| {
            let limits = json!({"limits": {"memory": "1300Mi"}});
            pod["spec"]["containers"] = json!([
                {"name": "other", "resources": {"limits": {"memory": "1Mi"}}},
                {"name": "vm", "resources": limits},
            ]);
        });
        assert_eq!(limited.has_no_room_for(small), None);
        let why = limited.has_no_room_for(large).unwrap();
        assert!(
            why.starts_with("spec.domain.memory: the guest is to have 4 GiB of memory")
                && why.contains("may use 1.26 GiB")
                && why.contains("disklet install --config"),
            "{why}"
        );
        let unlimited = launcher(|_| {});
        assert_eq!(unlimited.has_no_room_for(large), None);
    }

    /// Nobody else takes our finalizer away.
    #[test]
    fn a_pod_that_is_no_launcher_and_has_our_finalizer_is_let_go() {
        let strip = |pod: &mut Value| pod["metadata"]["ownerReferences"] = json!([]);
        let disowned = LauncherPod::disowned(&pod(strip)).unwrap();
        assert!(disowned.is_done() && disowned.held);
        let unheld = pod(|pod| pod["metadata"]["finalizers"] = json!(["other"]));
        assert_eq!(LauncherPod::disowned(&unheld), None);
    }
}
