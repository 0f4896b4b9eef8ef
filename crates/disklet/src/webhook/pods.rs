//! VM pods: a launcher takes the place of one that is created, and stays there
//! when it is updated. Other pods are let through as they are.

use std::collections::BTreeSet;

use disklet::cluster::words::sentence;
use disklet_core::launch::pod::Settings;
use disklet_core::launch::vm_pod::{is_launcher, is_vm, kept, launcher, no_mapping, original};
use serde_json::{Value, json};

use super::judge::judge_pod;
use super::review::{Request, Verdict, few, is_about_a_field, message, named, namespace};

/// What is to be said to a pod that is written.
pub(super) fn verdict(
    request: &Request,
    settings: &Settings,
    blocks: &BTreeSet<String>,
) -> Verdict {
    match request.operation.as_str() {
        _ if request.is_of_the_cluster() => Verdict::default(),
        "CREATE" if is_vm(&request.object) => created(request, settings, blocks),
        "UPDATE" if is_launcher(&request.old_object) => updated(request),
        _ => Verdict::default(),
    }
}

fn created(request: &Request, settings: &Settings, blocks: &BTreeSet<String>) -> Verdict {
    // One that is a launcher already, such as one from a backup, is made anew: what
    // somebody else says that a launcher is means nothing.
    let object = match is_launcher(&request.object) {
        false => request.object.clone(),
        true => match original(&request.object) {
            Some(object) => object,
            None => return refused(format!("{DAMAGED} (help: remove it)")),
        },
    };
    if let Some(field) = no_mapping(&object) {
        return refused(format!("{field}: not a mapping"));
    }
    let judged = judge_pod(&named(&object, request), &namespace(request));
    let notices = judged.notices.iter();
    let warnings: Vec<_> = notices
        .filter(|notice| is_about_a_field(notice))
        .map(sentence)
        .collect();
    let warnings = few(&warnings);
    let refusal = message(&judged.problems);
    let patch = match (&refusal, &judged.pod) {
        (None, Some(vm)) => {
            let made = launcher(&object, vm, blocks, settings);
            if let Some(refusal) = too_large(&made) {
                return refused(refusal);
            }
            difference(&request.object, &made)
        }
        _ => Vec::new(),
    };
    Verdict {
        refusal,
        warnings,
        patch,
    }
}

/// The API server takes no more, keys and values of all annotations together.
const MOST_ANNOTATIONS: usize = 256 << 10;

/// A launcher has all that it replaces in an annotation, beside those of the VM pod.
fn too_large(launcher: &Value) -> Option<String> {
    let annotations = launcher["metadata"]["annotations"].as_object();
    let sizes = annotations.into_iter().flatten();
    let size: usize = sizes
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    (size > MOST_ANNOTATIONS).then(|| {
        format!(
            "metadata.annotations: too large: with the container, which the launcher keeps in an annotation, they have {size} bytes (allowed: {MOST_ANNOTATIONS}) (help: put long texts into a ConfigMap or a Secret)"
        )
    })
}

const DAMAGED: &str = "metadata.annotations.disklet.io/vm-pod: Disklet writes this annotation, and has not written this";

fn updated(request: &Request) -> Verdict {
    let (old, new) = (&request.old_object, &request.object);
    if !new["metadata"]["deletionTimestamp"].is_null() {
        return Verdict::default();
    }
    if let Some(field) = no_mapping(new) {
        return refused(format!("{field}: not a mapping"));
    }
    match kept(old, new) {
        Ok(kept) => Verdict {
            patch: difference(new, &kept),
            ..Verdict::default()
        },
        Err(changed) => refused(format!(
            "{}: a VM pod stays as it was created (help: delete the pod, and create it anew)",
            changed.0
        )),
    }
}

fn refused(why: String) -> Verdict {
    Verdict {
        refusal: Some(why),
        ..Verdict::default()
    }
}

/// A JSON patch from one pod to another. What is the same is not touched.
fn difference(from: &Value, to: &Value) -> Vec<Value> {
    let mut patch = Vec::new();
    for part in ["metadata", "spec"] {
        let (from, to) = (&from[part], &to[part]);
        let fields = to.as_object().into_iter().flatten();
        for (key, value) in fields.filter(|(key, value)| from.get(key) != Some(value)) {
            patch.push(json!({"op": "add", "path": format!("/{part}/{key}"), "value": value}));
        }
        let fields = from.as_object().into_iter().flatten();
        for (key, _) in fields.filter(|(key, _)| to.get(key).is_none()) {
            patch.push(json!({"op": "remove", "path": format!("/{part}/{key}")}));
        }
    }
    patch
}

#[cfg(test)]
#[path = "pods/tests.rs"]
mod tests;
