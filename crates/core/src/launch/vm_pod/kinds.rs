//! What a pod has to be like for a launcher to be made of it. API servers send no other,
//! but others can send anything.

use serde_json::Value;

/// What has to be a mapping, where it is, and what it is called.
const MAPPINGS: [(&str, &str); 9] = [
    ("", "the pod"),
    ("/metadata", "metadata"),
    ("/metadata/annotations", "metadata.annotations"),
    ("/metadata/labels", "metadata.labels"),
    ("/spec", "spec"),
    ("/spec/nodeSelector", "spec.nodeSelector"),
    (
        "/spec/containers/0/resources",
        "spec.containers[0].resources",
    ),
    (
        "/spec/containers/0/resources/limits",
        "spec.containers[0].resources.limits",
    ),
    (
        "/spec/containers/0/resources/requests",
        "spec.containers[0].resources.requests",
    ),
];

/// A field that is there, and should be a mapping, and is none.
#[must_use]
pub fn no_mapping(pod: &Value) -> Option<&'static str> {
    let is_another = |value: &Value| !value.is_object() && !value.is_null();
    let mut all = MAPPINGS.iter();
    let found = all.find(|(pointer, _)| pod.pointer(pointer).is_some_and(is_another));
    found.map(|(_, shown)| *shown)
}
