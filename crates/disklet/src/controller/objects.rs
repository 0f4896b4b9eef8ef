//! The objects that the controller watches, as narrow as it needs them: what a
//! cluster has of each is kept in memory as long as the controller runs.

use std::borrow::Cow;

use disklet::cluster::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Namespace and name; the namespace is empty for what has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A VM object. Its spec stays as it is, for the reader of manifests.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Vm {
    #[serde(deserialize_with = "trimmed")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default, deserialize_with = "or_nothing")]
    pub(super) status: VmStatus,
    /// What stands beside them, to be refused by the reader if it is unknown.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// What we look at in a VM's status.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VmStatus {
    pub(super) phase: Option<String>,
    pub(super) restarts: u32,
    pub(super) conditions: Vec<Condition>,
}

impl VmStatus {
    pub(super) fn condition(&self, of: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == of)
    }
}

/// A launcher pod, or another pod of a VM's name.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LauncherPod {
    #[serde(deserialize_with = "trimmed")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: PodSpec,
    #[serde(default)]
    pub(super) status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
    volumes: Vec<PodVolume>,
    containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodVolume {
    name: String,
    persistent_volume_claim: Option<CarriedClaim>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CarriedClaim {
    claim_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    volume_mounts: Vec<Named>,
    volume_devices: Vec<Named>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) conditions: Vec<PodCondition>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
    pub(super) last_transition_time: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) restart_count: u32,
    pub(super) state: ContainerState,
    pub(super) last_state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub(super) waiting: Option<Waiting>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) started_at: Option<Time>,
    pub(super) finished_at: Option<Time>,
}

/// Any pod, as far as it tells whether it is a VM.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct AnyPod {
    #[serde(deserialize_with = "trimmed")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: AnySpec,
    #[serde(default)]
    pub(super) status: PhaseOnly,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AnySpec {
    pub(super) runtime_class_name: Option<String>,
    pub(super) service_account_name: Option<String>,
    pub(super) containers: Vec<SeenContainer>,
    pub(super) init_containers: Vec<SeenContainer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SeenContainer {
    pub(super) name: String,
    pub(super) image: String,
}

impl AnyPod {
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    pub(super) fn all_containers(&self) -> impl Iterator<Item = &SeenContainer> {
        self.spec
            .containers
            .iter()
            .chain(&self.spec.init_containers)
    }
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ClaimObject {
    #[serde(deserialize_with = "trimmed")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default)]
    pub(super) status: PhaseOnly,
}

/// A PersistentVolume.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct VolumeObject {
    #[serde(deserialize_with = "trimmed")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default)]
    pub(super) status: PhaseOnly,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PhaseOnly {
    pub(super) phase: Option<String>,
}

/// A StorageClass.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClassObject {
    #[serde(deserialize_with = "trimmed")]
    pub(super) metadata: ObjectMeta,
    pub(super) provisioner: Option<String>,
    pub(super) volume_binding_mode: Option<String>,
}

/// A node.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodeObject {
    #[serde(deserialize_with = "trimmed")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: NodeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) taints: Vec<Taint>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Taint {
    pub(super) key: String,
}

macro_rules! resources {
    ($($name:ident: $group:literal $version:literal $kind:literal $plural:literal $scope:ident;)*) => {$(
        impl Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

resources! {
    Vm: "disklet.io" "v1alpha1" "VM" "vms" NamespaceResourceScope;
    LauncherPod: "" "v1" "Pod" "pods" NamespaceResourceScope;
    AnyPod: "" "v1" "Pod" "pods" NamespaceResourceScope;
    ClaimObject: "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" NamespaceResourceScope;
    VolumeObject: "" "v1" "PersistentVolume" "persistentvolumes" ClusterResourceScope;
    ClassObject: "storage.k8s.io" "v1" "StorageClass" "storageclasses" ClusterResourceScope;
    NodeObject: "" "v1" "Node" "nodes" ClusterResourceScope;
}

impl LauncherPod {
    /// Whether this VM has made it.
    pub(super) fn is_of(&self, vm: &Vm) -> bool {
        let by_vm = |owner: &OwnerReference| {
            owner.controller == Some(true) && Some(&owner.uid) == vm.metadata.uid.as_ref()
        };
        let owners = self.metadata.owner_references.as_deref();
        owners.unwrap_or_default().iter().any(by_vm)
    }

    /// It has one.
    pub(super) fn container(&self) -> Option<&ContainerStatus> {
        self.status.container_statuses.first()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// Whether the kubelet mounts or maps this claim for it.
    pub(super) fn opens(&self, claim: &str) -> bool {
        let is_it = |volume: &&PodVolume| {
            let carried = volume.persistent_volume_claim.as_ref();
            carried.is_some_and(|carried| carried.claim_name == claim)
        };
        let mut volumes = self.spec.volumes.iter().filter(is_it);
        let containers = self.spec.containers.iter();
        let used: Vec<_> = containers
            .flat_map(|it| it.volume_mounts.iter().chain(&it.volume_devices))
            .collect();
        volumes.any(|volume| used.iter().any(|used| used.name == volume.name))
    }

    /// The claims that its QEMU opens without the kubelet knowing of it.
    pub(super) fn direct_claims(&self) -> impl Iterator<Item = &str> {
        let claims = self.annotation(names::DIRECT_CLAIMS).unwrap_or_default();
        claims.split(',').filter(|name| !name.is_empty())
    }
}

/// Whether one of its finalizers is this.
pub(super) fn is_held(object: &impl Resource, finalizer: &str) -> bool {
    let finalizers = object.meta().finalizers.as_deref();
    finalizers
        .unwrap_or_default()
        .iter()
        .any(|held| held == finalizer)
}

pub(super) fn is_going(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Who wrote what, and what was applied last, is half of an object's size and
/// nothing to us.
fn trimmed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut meta = ObjectMeta::deserialize(deserializer)?;
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    Ok(meta)
}

/// One status that is not as ours are must not keep all other VMs from being
/// read.
fn or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VmStatus, D::Error> {
    let status = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(status).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cached_object_has_no_managed_fields() {
        let vm: Vm = serde_json::from_value(json!({
            "metadata": {
                "name": "vm",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"},
            },
            "spec": {"domain": {}},
        }))
        .unwrap();
        assert_eq!(vm.metadata.managed_fields, None);
        let kept: Vec<_> = vm.metadata.annotations.unwrap().into_keys().collect();
        assert_eq!(kept, ["mine"]);
    }

    #[test]
    fn a_strange_status_does_not_hide_a_vm() {
        for status in [json!({"conditions": "none"}), json!([]), json!(null)] {
            let vm = json!({"metadata": {"name": "vm"}, "spec": {}, "status": status});
            let vm: Vm = serde_json::from_value(vm).unwrap();
            assert_eq!(vm.status, VmStatus::default());
        }
    }
}
