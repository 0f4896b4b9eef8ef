//! Whether a launcher is still what was made of its VM pod, after others that change
//! pods have had it, and whether an update leaves it so.

use std::collections::BTreeSet;

use serde_json::Value;

use super::update::Changed;
use super::{REPLACED, RUNTIME_ANNOTATION, SAVED, items, label, original};
use crate::launch::pod::{AGENT_FINALIZER, VM_LABEL, own_volume};
use crate::launch::protocol::VOLUME;
use crate::manifest::is_annotation_of_vm;
use crate::units::parse_quantity;

/// What API servers write into containers that do not say it.
const FILLED_IN: [&str; 12] = [
    "failureThreshold",
    "imagePullPolicy",
    "path",
    "periodSeconds",
    "procMount",
    "protocol",
    "resizePolicy",
    "scheme",
    "successThreshold",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "timeoutSeconds",
];

static NOTHING: Value = Value::Null;

/// The VM pod that a launcher stands for, and beside its container what others have put
/// beside the launcher: whoever reads it says what is wrong with that.
#[must_use]
pub fn with_additions(launcher: &Value) -> Option<Value> {
    let mut pod = original(launcher)?;
    let spec = &launcher["spec"];
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        containers.extend(items(spec, "containers").iter().skip(1).cloned());
    }
    if !items(spec, "initContainers").is_empty() {
        pod["spec"]["initContainers"] = spec["initContainers"].clone();
    }
    Some(pod)
}

/// The claims that a launcher has as devices.
#[must_use]
pub fn mapped_claims(launcher: &Value) -> BTreeSet<String> {
    let spec = &launcher["spec"];
    let devices = items(&spec["containers"][0], "volumeDevices");
    let volumes = items(spec, "volumes").iter();
    let mapped = volumes.filter(|volume| devices.iter().any(|it| it["name"] == volume["name"]));
    let claims = mapped.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    claims.map(str::to_owned).collect()
}

/// The first field by which a launcher is another than the one that is `made` of its VM
/// pod now. What API servers fill in, what the administrators of a cluster decide about
/// all pods (more resources, other registries, fewer nodes), and its name, are its own.
#[must_use]
pub fn altered(launcher: &Value, made: &Value) -> Option<Changed> {
    let finalizers = items(&launcher["metadata"], "finalizers");
    if !finalizers.iter().any(|it| it == AGENT_FINALIZER) {
        return Some(Changed("metadata.finalizers".to_owned()));
    }
    let made = with_what_is_others_to_say(launcher, made);
    let (now, made) = (&launcher["spec"], &made["spec"]);
    let replaced = REPLACED.iter();
    let mut fields = replaced.map(|key| other(&now[key], &made[key], &format!("spec.{key}")));
    let field = fields.find_map(|field| field);
    let field = field.or_else(|| {
        let mut volumes = items(now, "volumes").iter();
        let at = volumes.position(|it| it["name"] == VOLUME);
        match at {
            Some(at) => other(
                &now["volumes"][at],
                &own_volume(),
                &format!("spec.volumes[{at}]"),
            ),
            None => Some("spec.volumes".to_owned()),
        }
    });
    field.map(Changed)
}

/// The launcher that is made, with what others may decide about the one that is there.
fn with_what_is_others_to_say(launcher: &Value, made: &Value) -> Value {
    let mut made = made.clone();
    let (now, vm) = (&launcher["spec"], original(launcher).unwrap_or_default());
    let (container, vm) = (&now["containers"][0], &vm["spec"]["containers"][0]);
    let ours = &mut made["spec"]["containers"][0];
    // The launcher may come from a mirror; it is never the VM's image.
    if container["image"] != vm["image"] {
        ours["image"] = container["image"].clone();
    }
    for key in ["imagePullPolicy", "resources"] {
        let has_less = key == "resources" && has_less_memory(container, ours);
        if container.get(key).is_some() && !has_less {
            ours[key] = container[key].clone();
        }
    }
    let nodes = &mut made["spec"]["nodeSelector"];
    for (label, value) in now["nodeSelector"].as_object().into_iter().flatten() {
        if nodes.get(label).is_none() {
            nodes[label] = value.clone();
        }
    }
    made
}

/// QEMU would be ended for lack of memory, some time.
fn has_less_memory(container: &Value, than: &Value) -> bool {
    let limit = |container: &Value| {
        let limit = container["resources"]["limits"]["memory"].as_str();
        limit.and_then(|text| parse_quantity(text).ok())
    };
    match (limit(container), limit(than)) {
        (Some(now), Some(needed)) => now < needed,
        _ => false,
    }
}

/// The first field that is not as it was made.
fn other(now: &Value, made: &Value, path: &str) -> Option<String> {
    match (now, made) {
        _ if now == made => None,
        (Value::Object(now), Value::Object(made)) => {
            let mut written = made.iter();
            let changed = written.find_map(|(key, value)| {
                let now = now.get(key).unwrap_or(&NOTHING);
                other(now, value, &format!("{path}.{key}"))
            });
            let is_added =
                |key: &&String| !made.contains_key(*key) && !FILLED_IN.contains(&key.as_str());
            let added = || now.keys().find(is_added);
            changed.or_else(|| added().map(|key| format!("{path}.{key}")))
        }
        (Value::Array(now), Value::Array(made)) => {
            let at = |list: &[Value], index: usize| list.get(index).cloned().unwrap_or_default();
            let mut all = 0..now.len().max(made.len());
            all.find_map(|i| other(&at(now, i), &at(made, i), &format!("{path}[{i}]")))
        }
        _ => Some(path.to_owned()),
    }
}

/// Whether an update leaves a launcher, and what is said of its VM, as they are; else the
/// first field that it changes.
pub fn unchanged(old: &Value, new: &Value) -> Result<(), Changed> {
    let (before, after) = (&old["metadata"], &new["metadata"]);
    let keys = [before, after].map(|meta| meta["annotations"].as_object());
    let keys = keys.into_iter().flatten().flat_map(|all| all.keys());
    let of_vm = |key: &&String| {
        [SAVED, RUNTIME_ANNOTATION].contains(&key.as_str()) || is_annotation_of_vm(key)
    };
    let keys: BTreeSet<_> = keys.filter(of_vm).collect();
    let annotations = keys.into_iter().map(|key| ("annotations", key.as_str()));
    for (field, key) in annotations {
        if before[field][key] != after[field][key] {
            return Err(Changed(format!("metadata.{field}.{key}")));
        }
    }
    if after["labels"][VM_LABEL] != label_to_keep(old, new) {
        return Err(Changed(format!("metadata.labels.{VM_LABEL}")));
    }
    for key in REPLACED {
        let (before, after) = (&old["spec"][key], &new["spec"][key]);
        if let Some(field) = first_difference(after, before, &format!("spec.{key}")) {
            return Err(Changed(field));
        }
    }
    Ok(())
}

/// The label of a launcher. One that has lost it on its way, by which it would be protected
/// from updates, may have it again.
pub(super) fn label_to_keep(old: &Value, new: &Value) -> Value {
    let (before, after) = (&old["metadata"]["labels"], &new["metadata"]["labels"]);
    match (&before[VM_LABEL], &after[VM_LABEL]) {
        (Value::Null, Value::Null) => Value::Null,
        (Value::Null, _) => label(old).into(),
        (kept, _) => kept.clone(),
    }
}

fn first_difference(now: &Value, then: &Value, path: &str) -> Option<String> {
    match (now, then) {
        _ if now == then => None,
        (Value::Object(one), Value::Object(two)) => {
            let keys: BTreeSet<_> = one.keys().chain(two.keys()).collect();
            let mut keys = keys.into_iter();
            keys.find_map(|key| first_difference(&now[key], &then[key], &format!("{path}.{key}")))
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            let mut pairs = one.iter().zip(two).enumerate();
            pairs.find_map(|(i, (one, two))| first_difference(one, two, &format!("{path}[{i}]")))
        }
        _ => Some(path.to_owned()),
    }
}
