//! VM pods: a launcher takes the place of one that is created, and stays there
//! when it is updated. Other pods are let through as they are.
//!
//! ```text
//!   pod --verdict--> launcher --webhooks of others--> valid::verdict --> stored
//! ```

mod marks;
mod valid;

use disklet::cluster::words::sentence;
use disklet_core::launch::pod::Settings;
use disklet_core::launch::vm_pod::{
    MIRROR, is_launcher, is_vm, kept, launcher, no_mapping, original,
};
use serde_json::{Value, json};

use super::claims::Claims;
use super::judge::judge_pod;
use super::review::{Request, Verdict, few, is_about_a_field, message, named, namespace};

pub(super) use valid::verdict as last_verdict;

/// On a VM pod that nobody wants: who tries to create it would like to know whether we are
/// asked.
pub(crate) const ASKS: &str = "disklet.io/asks";
/// What such a one is told. It comes before whatever else could refuse a pod that is only
/// tried, but for other webhooks that change pods, and are asked before ours.
pub(crate) const ASKED: &str = "metadata.annotations.disklet.io/asks: Disklet's webhook is asked";

/// What is to be said to a pod that is written.
pub(super) fn verdict(request: &Request, settings: &Settings, claims: &Claims) -> Verdict {
    match request.operation.as_str() {
        _ if request.is_of_the_cluster() => Verdict::default(),
        "CREATE" if is_of_kubelet(&request.object) => Verdict::default(),
        "CREATE" if is_vm(&request.object) && only_asks(request) => refused(ASKED.to_owned()),
        "CREATE" if is_vm(&request.object) => created(request, settings, claims),
        "CREATE" => marks::refusal(&request.object)
            .map(refused)
            .unwrap_or_default(),
        "UPDATE" if is_of_no_vm(request) => Verdict::default(),
        "UPDATE" if is_launcher(&request.old_object) => updated(request),
        _ => Verdict::default(),
    }
}

/// Whether an update is of a pod that is no VM, whatever marks it has, and becomes none.
/// Whoever takes them off is not held up.
fn is_of_no_vm(request: &Request) -> bool {
    let (old, new) = (&request.old_object, &request.object);
    !marks::stands_for_vm(old) && !marks::stands_for_vm(new)
}

fn only_asks(request: &Request) -> bool {
    request.dry_run == Some(true) && request.object["metadata"]["annotations"][ASKS].is_string()
}

/// Whether it shows what a kubelet runs of its own. That is no VM, and stays as it is
/// whatever anybody answers.
fn is_of_kubelet(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null() && !is_launcher(pod)
}

fn created(request: &Request, settings: &Settings, claims: &Claims) -> Verdict {
    // One that is a launcher already, such as one from a backup, is made anew: what
    // somebody else says that a launcher is means nothing.
    let object = match is_launcher(&request.object) {
        false => request.object.clone(),
        true => match original(&request.object) {
            Some(object) => object,
            None => return refused(format!("{DAMAGED} (help: remove it)")),
        },
    };
    if let Some(refusal) = marks::refusal(&request.object) {
        return refused(refusal);
    }
    if let Some(field) = no_mapping(&object) {
        return refused(format!("{field}: not a mapping"));
    }
    let judged = judge_pod(&named(&object, request), &namespace(request));
    let notices = judged.notices.iter();
    let notices = notices.filter(|notice| is_about_a_field(notice));
    let warnings: Vec<_> = notices
        .map(sentence)
        .chain(doubts(&object, claims))
        .collect();
    let warnings = few(&warnings);
    let refusal = message(&judged.problems);
    let patch = match (&refusal, &judged.pod) {
        (None, Some(vm)) => {
            let made = launcher(&object, vm, &claims.blocks, settings);
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

/// A claim that turns out to be a device is then not what the kubelet expects, and it alone
/// says so, in its own words.
fn doubts(pod: &Value, claims: &Claims) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array();
    let volumes = volumes.into_iter().flatten().enumerate();
    let doubts = volumes.filter_map(|(index, volume)| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        let why = claims.unknown.get(claim)?.in_words(claim);
        Some(format!(
            "spec.volumes[{index}].persistentVolumeClaim.claimName: {why}"
        ))
    });
    doubts.collect()
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
        Err(changed) => refused(format!("{}: {STAYS}", changed.0)),
    }
}

const STAYS: &str = "a VM pod stays as it was created (help: delete the pod, and create it anew)";

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
mod as_planned;
#[cfg(test)]
#[path = "pods/tests.rs"]
mod tests;
