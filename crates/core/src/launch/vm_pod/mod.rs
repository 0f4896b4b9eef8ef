//! VM pods in a cluster: the launcher that takes a VM pod's place when it is
//! created, and the VM pod that a launcher stands for.
//!
//! What of the pod's spec is replaced is kept in an annotation; all the rest, its
//! volumes above all, stays where it is. So the two are one object, and each can
//! be made of the other:
//!
//! ```text
//!   VM pod --launcher--> launcher pod --original--> VM pod
//! ```

mod check;
mod intact;
mod kinds;
mod text;
mod update;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

pub use check::check;
pub use intact::{altered, mapped_claims, unchanged, with_additions};
pub use kinds::no_mapping;
pub use text::with_originals;
pub use update::{Changed, kept};

use super::overhead::pod_mebibytes;
use super::pod::{
    AGENT_FINALIZER, NODE_LABEL, Settings, VM_LABEL, label_value, own_volume, pod_security,
    program, share,
};
use super::ports::Ports;
use super::protocol::{DIRECTORY, VOLUME};
use crate::manifest::{self, VmPod, VolumeSource, is_vm_pod};

/// The annotation that makes a pod a VM, and its value.
pub const RUNTIME_ANNOTATION: &str = manifest::RUNTIME_ANNOTATION;
/// See [`RUNTIME_ANNOTATION`].
pub const RUNTIME: &str = manifest::RUNTIME;
/// What of a VM pod's spec its launcher has replaced, as JSON.
pub const SAVED: &str = "disklet.io/vm-pod";
/// On pods that a kubelet has made itself, of files on its node: nobody can change them.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// The condition of a VM pod that its guest runs; the pod is ready only then.
pub const RUNNING: &str = "disklet.io/running";

/// The fields of the spec that a launcher has of its own.
const REPLACED: [&str; 8] = [
    "automountServiceAccountToken",
    "containers",
    "enableServiceLinks",
    "nodeSelector",
    "overhead",
    "readinessGates",
    "runtimeClassName",
    "securityContext",
];
/// Those of its container that the kubelet and Services have to know.
const KEPT: [&str; 4] = ["livenessProbe", "ports", "readinessProbe", "startupProbe"];
/// How a kubelet asks after a container, and by what. A port that has a name is one of the
/// container's ports.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const ASKED: [&str; 3] = ["httpGet", "tcpSocket", "grpc"];
/// How long a pod has to end, if it does not say.
const GRACE: i64 = 30;

/// Whether a pod of a cluster is a VM: one that was written as such, or a
/// launcher.
#[must_use]
pub fn is_vm(pod: &Value) -> bool {
    is_launcher(pod) || {
        let annotations = &pod["metadata"]["annotations"];
        let class = pod["spec"]["runtimeClassName"].as_str();
        is_written_as_vm(|key| annotations[key].as_str(), class)
    }
}

/// Whether a pod with such annotations, and such a runtime class, is to be a VM.
pub fn is_written_as_vm<'a>(
    annotation: impl FnOnce(&str) -> Option<&'a str>,
    class: Option<&str>,
) -> bool {
    is_vm_pod(annotation, class)
}

/// Whether it is a launcher of a VM pod.
#[must_use]
pub fn is_launcher(pod: &Value) -> bool {
    pod["metadata"]["annotations"][SAVED].is_string()
}

/// The VM pod that a launcher stands for; nothing if the pod is no launcher of
/// one, or if somebody has damaged what was kept.
#[must_use]
pub fn original(launcher: &Value) -> Option<Value> {
    let saved = launcher["metadata"]["annotations"][SAVED].as_str()?;
    let saved: Map<String, Value> = serde_json::from_str(saved).ok()?;
    if !saved.get("containers").is_some_and(Value::is_array) {
        return None;
    }
    let mut pod = launcher.clone();
    let meta = pod["metadata"].as_object_mut()?;
    remove_in(meta, "annotations", SAVED);
    remove_in(meta, "labels", VM_LABEL);
    if let Some(Value::Array(finalizers)) = meta.get_mut("finalizers") {
        finalizers.retain(|it| it != AGENT_FINALIZER);
        if finalizers.is_empty() {
            meta.remove("finalizers");
        }
    }
    let spec = pod["spec"].as_object_mut()?;
    for key in REPLACED {
        match saved.get(key) {
            Some(value) => spec.insert(key.to_owned(), value.clone()),
            None => spec.remove(key),
        };
    }
    // Whatever else was put beside the launcher is no part of the VM.
    spec.remove("initContainers");
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.retain(|volume| volume["name"] != VOLUME);
        if volumes.is_empty() {
            spec.remove("volumes");
        }
    }
    Some(pod)
}

fn remove_in(meta: &mut Map<String, Value>, field: &str, key: &str) {
    if let Some(Value::Object(map)) = meta.get_mut(field) {
        map.remove(key);
        if map.is_empty() {
            meta.remove(field);
        }
    }
}

/// The launcher of a VM pod. `vm` is what was read of the pod; `blocks` has the
/// claims that are known to be devices although the pod does not say so. Of a pod that
/// [`no_mapping`] has something against none can be made.
#[must_use]
pub fn launcher(pod: &Value, vm: &VmPod, blocks: &BTreeSet<String>, settings: &Settings) -> Value {
    let mut launcher = pod.clone();
    let spec = &pod["spec"];
    let saved: Map<String, Value> = REPLACED
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), spec.get(key)?.clone())))
        .collect();
    let meta = &mut launcher["metadata"];
    meta["annotations"][SAVED] = json!(Value::Object(saved).to_string());
    meta["labels"][VM_LABEL] = json!(label(pod));
    let mut finalizers = meta["finalizers"].as_array().cloned().unwrap_or_default();
    // The API server takes it twice, and it would have to be taken off twice.
    if !finalizers.iter().any(|it| it == AGENT_FINALIZER) {
        finalizers.push(json!(AGENT_FINALIZER));
    }
    meta["finalizers"] = json!(finalizers);
    let mut gates = items(spec, "readinessGates").clone();
    gates.push(json!({"conditionType": RUNNING}));
    let mut volumes = items(spec, "volumes").clone();
    volumes.push(own_volume());
    let replaced = &mut launcher["spec"];
    if let Some(replaced) = replaced.as_object_mut() {
        REPLACED.iter().for_each(|key| drop(replaced.remove(*key)));
    }
    replaced["nodeSelector"] = spec.get("nodeSelector").cloned().unwrap_or_default();
    replaced["nodeSelector"][NODE_LABEL.0] = json!(NODE_LABEL.1);
    // The launcher asks nobody for anything.
    replaced["automountServiceAccountToken"] = json!(false);
    replaced["enableServiceLinks"] = json!(false);
    replaced["securityContext"] = pod_security(settings);
    replaced["readinessGates"] = json!(gates);
    replaced["volumes"] = json!(volumes);
    replaced["containers"] = json!([container(spec, vm, blocks, settings)]);
    launcher
}

/// The pod's name, as far as it is known: that of a pod of a ReplicaSet is made
/// later.
fn label(pod: &Value) -> String {
    let meta = &pod["metadata"];
    let text = |key: &str| meta[key].as_str().filter(|text| !text.is_empty());
    label_of(text("name").or(text("generateName")).unwrap_or("vm"))
}

/// The value of the label of a launcher, by the name of its pod.
#[must_use]
pub fn label_of(name: &str) -> String {
    let name = label_value(name);
    name.trim_end_matches(['-', '.']).to_owned()
}

fn items<'v>(value: &'v Value, key: &str) -> &'v Vec<Value> {
    static NONE: Vec<Value> = Vec::new();
    value[key].as_array().unwrap_or(&NONE)
}

fn container(spec: &Value, vm: &VmPod, blocks: &BTreeSet<String>, settings: &Settings) -> Value {
    let written = &spec["containers"][0];
    let grace = spec["terminationGracePeriodSeconds"].as_i64();
    let (tcp, udp) = ports(written);
    let name = written["name"].as_str().unwrap_or("vm");
    let mut container = program(name, grace.unwrap_or(GRACE), Some((&tcp, &udp)), settings);
    for key in KEPT {
        if let Some(value) = written.get(key) {
            container[key] = value.clone();
        }
    }
    container["resources"] = resources(written, vm, &tcp, &udp, settings);
    let (mounts, devices) = volumes(spec, blocks);
    container["volumeMounts"] = json!(mounts);
    if !devices.is_empty() {
        container["volumeDevices"] = json!(devices);
    }
    container
}

/// The usual ones, those that the container names, and those at which the kubelet asks.
fn ports(container: &Value) -> (Ports, Ports) {
    let (mut tcp, mut udp) = Ports::usual();
    let number = |value: &Value| value.as_u64().and_then(|it| u16::try_from(it).ok());
    for probe in PROBES.map(|key| &container[key]) {
        let asked = ASKED.map(|how| number(&probe[how]["port"]));
        asked
            .into_iter()
            .flatten()
            .for_each(|port| tcp.add(port, port));
    }
    for port in items(container, "ports") {
        let Some(number) = number(&port["containerPort"]) else {
            continue;
        };
        match port["protocol"].as_str() {
            None | Some("TCP") => tcp.add(number, number),
            Some("UDP") => udp.add(number, number),
            Some(_) => {}
        }
    }
    (tcp, udp)
}

/// What the container asks for is the guest's; QEMU and the launcher come on top.
fn resources(
    container: &Value,
    vm: &VmPod,
    tcp: &Ports,
    udp: &Ports,
    settings: &Settings,
) -> Value {
    let mut resources = container["resources"].clone();
    if !resources.is_object() {
        resources = json!({});
    }
    let memory = vm.container.memory.as_ref();
    let memory = memory.map_or(settings.default_memory, |memory| memory.value);
    let cpus = vm.annotations.vcpus.unwrap_or(1);
    let is_disk = |source: &VolumeSource| !matches!(source, VolumeSource::Files(_));
    let volumes = vm.volumes.iter().map(|volume| &volume.source.value);
    // The others are the root and that for cloud-init.
    let disks = volumes.filter(|source| is_disk(source)).count() + 2;
    let memory = pod_mebibytes(memory.as_bytes(), cpus, disks, tcp, udp);
    let memory = json!(format!("{memory}Mi"));
    resources["limits"]["memory"] = memory.clone();
    resources["requests"]["memory"] = memory;
    let limit = resources["limits"].get("cpu").cloned();
    if resources["requests"].get("cpu").is_none() {
        resources["requests"]["cpu"] = limit.unwrap_or_else(|| json!(share(cpus)));
    }
    resources
}

/// The kubelet does nothing about a volume that no container mounts, so the
/// launcher mounts all that the kubelet has a part in: flexvolumes, claims, and
/// volumes with a token, which nobody else may request for the pod. The guest sees
/// none of these places.
fn volumes(spec: &Value, blocks: &BTreeSet<String>) -> (Vec<Value>, Vec<Value>) {
    let written = &spec["containers"][0];
    let is_in =
        |list: &str, name: &Value| items(written, list).iter().any(|it| it["name"] == *name);
    let mut mounts = vec![json!({"name": VOLUME, "mountPath": DIRECTORY})];
    let mut mapped = Vec::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let name = &volume["name"];
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        let is_device =
            is_in("volumeDevices", name) || claim.is_some_and(|claim| blocks.contains(claim));
        let is_flex = volume.get("flexVolume").is_some();
        if claim.is_some() && is_device {
            mapped.push(json!({
                "name": name,
                "devicePath": format!("/dev/disklet/{index}"),
            }));
        } else if claim.is_some() || is_flex || (has_token(volume) && is_in("volumeMounts", name)) {
            mounts.push(json!({
                "name": name,
                "mountPath": format!("/run/disklet-volumes/{index}"),
                "readOnly": true,
            }));
        }
    }
    (mounts, mapped)
}

fn has_token(volume: &Value) -> bool {
    let mut sources = items(&volume["projected"], "sources").iter();
    sources.any(|source| source["serviceAccountToken"].is_object())
}

/// The claims of a pod of which it does not say whether they are devices.
#[must_use]
pub fn claims_to_look_at(pod: &Value) -> BTreeSet<String> {
    let spec = &pod["spec"];
    let devices = items(&spec["containers"][0], "volumeDevices");
    let volumes = items(spec, "volumes").iter();
    let unsaid = volumes.filter(|volume| {
        !devices
            .iter()
            .any(|device| device["name"] == volume["name"])
    });
    let claims = unsaid.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    claims.map(str::to_owned).collect()
}
