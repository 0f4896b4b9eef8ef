//! From an object of the cluster to what the reader of manifests makes of it:
//! there is one reader for files and for clusters.

use std::collections::BTreeSet;

use disklet::cluster::words::sentence;
use disklet_core::diag::{Diagnostic, Diagnostics, Origin};
use disklet_core::manifest::{DiskSource, Input, Objects, VmObject};
use disklet_core::names::Namespace;
use kube::Resource;
use serde_json::{Map, Value, json};

use crate::webhook::judge;

use super::objects::{ClaimObject, ClassObject, Key, PhaseOnly, Vm, VolumeObject};

/// A VM as it was read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Everything that could be read, even if it was refused.
    pub(super) vm: Option<VmObject>,
    /// What is wrong with it, for people.
    pub(super) refusal: Option<String>,
}

/// Reads a VM object, and judges it as the webhook does: what came while nobody
/// was there to refuse it is refused here.
pub(super) fn vm(vm: &Vm) -> Reading {
    let mut object = vm.rest.clone();
    object.insert("metadata".to_owned(), meta(vm));
    if !vm.spec.is_null() {
        object.insert("spec".to_owned(), vm.spec.clone());
    }
    let Ok(default) = Namespace::parse("default") else {
        return Reading::default();
    };
    let judged = judge(&Value::Object(object), &default);
    Reading {
        vm: judged.vm,
        refusal: in_words(&judged.problems),
    }
}

/// The claims that a VM names, if only in parts that were not refused.
pub(super) fn claims_of(object: &Vm) -> BTreeSet<Key> {
    let namespace = Key::of(object).namespace;
    let vm = vm(object).vm;
    let disks = vm.iter().flat_map(|vm| &vm.disks);
    let names = disks.filter_map(|disk| match &disk.source.as_ref()?.value {
        DiskSource::Claim { name, .. } => Some(name.value.as_str()),
        _ => None,
    });
    names.map(|name| Key::new(&namespace, name)).collect()
}

/// Reads objects that a VM refers to. What the reader refuses of them is the
/// agent's to tell, which plans with all of them.
pub(super) fn objects(given: &[&Value]) -> Objects {
    let (mut objects, mut diags) = (Objects::default(), Diagnostics::default());
    let Ok(default) = Namespace::parse("default") else {
        return objects;
    };
    for object in given {
        let input = Input {
            name: Origin::object(""),
            text: object.to_string(),
        };
        objects.read(&input, &default, &mut diags);
    }
    objects
}

fn meta(object: &impl Resource) -> Value {
    let meta = object.meta();
    let mut out = Map::new();
    let texts = [
        ("name", &meta.name),
        ("namespace", &meta.namespace),
        ("uid", &meta.uid),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            out.insert(key.to_owned(), json!(text));
        }
    }
    for (key, texts) in [("labels", &meta.labels), ("annotations", &meta.annotations)] {
        if let Some(texts) = texts {
            out.insert(key.to_owned(), json!(texts));
        }
    }
    Value::Object(out)
}

fn status(status: &PhaseOnly) -> Value {
    match &status.phase {
        Some(phase) => json!({"phase": phase}),
        None => json!({}),
    }
}

/// A claim for the reader.
pub(super) fn claim(claim: &ClaimObject) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(claim),
        "spec": claim.spec,
        "status": status(&claim.status),
    })
}

/// A volume for the reader.
pub(super) fn volume(volume: &VolumeObject) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta(volume),
        "spec": volume.spec,
        "status": status(&volume.status),
    })
}

/// A class for the reader.
pub(super) fn class(class: &ClassObject) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta(class),
        "provisioner": class.provisioner,
        "volumeBindingMode": class.volume_binding_mode,
    })
}

/// More would not be read.
const MOST_TOLD: usize = 5;

/// Field, reason and remedy of each problem; nothing if there is none.
fn in_words(problems: &[Diagnostic]) -> Option<String> {
    let mut told: Vec<_> = problems.iter().take(MOST_TOLD).map(sentence).collect();
    match problems.len().saturating_sub(MOST_TOLD) {
        0 => {}
        1 => told.push("and 1 more problem".to_owned()),
        more => told.push(format!("and {more} more problems")),
    }
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(object: Value) -> Vm {
        serde_json::from_value(object).unwrap()
    }

    fn base(spec: &Value) -> Value {
        json!({
            "apiVersion": "disklet.io/v1alpha1",
            "kind": "VM",
            "metadata": {"name": "db", "namespace": "prod", "uid": "1-2"},
            "spec": spec,
        })
    }

    #[test]
    fn a_refusal_has_field_reason_and_remedy() {
        let domain = json!({"memory": 1, "devices": {"discs": []}});
        let reading = vm(&of(base(&json!({"domain": domain}))));
        assert_eq!(
            reading.refusal.unwrap(),
            "spec.domain.devices.discs: unknown field \"discs\" (allowed: disks, interfaces; help: did \
             you mean \"disks\"?); spec.domain.memory: too little memory for a VM (found: \"1\"; allowed: \
             16Mi to 256Ti, as a Kubernetes quantity such as 1Gi)"
        );
        let reading = vm(&of(base(&Value::Null)));
        assert_eq!(reading.refusal.unwrap(), "spec: is required but missing");
    }

    #[test]
    fn many_problems_are_counted() {
        let disks = vec![json!({}); 9];
        let spec = json!({"domain": {"devices": {"disks": disks}}});
        let refusal = vm(&of(base(&spec))).refusal.unwrap();
        assert!(refusal.ends_with("; and 4 more problems"), "{refusal}");
    }

    #[test]
    fn thousands_of_disks_are_not_even_read() {
        let disk = |number| json!({"source": {"pvc": {"claimname": format!("claim-{number}")}}});
        let disks: Vec<_> = (0..8_000).map(disk).collect();
        let object = of(base(&json!({"domain": {"devices": {"disks": disks}}})));
        let reading = vm(&object);
        let refusal = reading.refusal.unwrap();
        let told = "spec.domain.devices.disks[46]: too many disks: no bus has a place left \
            (found: 8000 disks; allowed: 46 disks of a VM; help: remove disks, or have some of \
            them in another VM)";
        assert!(refusal.ends_with(told), "{refusal}");
        assert_eq!(reading.vm.unwrap().disks.len(), 46);
    }

    #[test]
    fn what_stands_beside_spec_is_refused_too() {
        let mut object = base(&json!({"domain": {}}));
        object["specs"] = json!({});
        let refusal = vm(&of(object)).refusal.unwrap();
        assert!(refusal.starts_with("specs: unknown field"), "{refusal}");
    }

    #[test]
    fn claims_are_found_in_all_spellings() {
        let disks = json!([
            {"source": {"pvc": {"claimname": "a"}}},
            {"source": {"pvc": {"claimName": "b"}}},
            {"type": "PersistentVolumeClaim", "source": {"name": "c"}},
            {"source": {"image": {"name": "debian"}}},
            {"source": {"pvc": {"claimname": "d"}}, "cache": "refused"},
        ]);
        let object = of(base(&json!({"domain": {"devices": {"disks": disks}}})));
        let claims: Vec<_> = claims_of(&object).into_iter().collect();
        let expected = ["a", "b", "c", "d"].map(|name| Key::new("prod", name));
        assert_eq!(claims, expected);
    }
}
