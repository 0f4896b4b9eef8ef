//! The marks of launchers. By them agents, the controller and `disklet uninstall` take a
//! pod for a VM, and anybody can write them.

use disklet_core::crd::GROUP;
use disklet_core::launch::pod::{AGENT_FINALIZER, VM_LABEL};
use disklet_core::launch::vm_pod::{SAVED, is_launcher, is_vm, original};
use serde_json::Value;

/// Whether it is a VM: one that was written as such, or the launcher of one.
pub(super) fn stands_for_vm(pod: &Value) -> bool {
    match is_launcher(pod) {
        true => original(pod).is_some_and(|pod| is_vm(&pod)),
        false => is_vm(pod),
    }
}

/// Why a pod that is no VM cannot be created with a launcher's marks. One that is, and has
/// got past us, exists until the controller stops it.
pub(super) fn refusal(pod: &Value) -> Option<String> {
    if stands_for_vm(pod) {
        return None;
    }
    if is_launcher(pod) {
        return Some(format!(
            "metadata.annotations.{SAVED}: this marks the launcher of a VM pod, and the pod that it tells of is none (help: remove the annotation, the label {VM_LABEL} and the finalizer {AGENT_FINALIZER})"
        ));
    }
    let meta = &pod["metadata"];
    let mut finalizers = meta["finalizers"].as_array().into_iter().flatten();
    let is_marked =
        !meta["labels"][VM_LABEL].is_null() && finalizers.any(|it| it == AGENT_FINALIZER);
    (is_marked && !is_of_vm_object(pod)).then(|| {
        format!(
            "metadata.finalizers: {AGENT_FINALIZER}, together with the label {VM_LABEL}, marks the launcher of a VM, and this pod is none (help: remove the finalizer and the label)"
        )
    })
}

/// Launchers of VM objects have the marks, too, but for the annotation.
fn is_of_vm_object(pod: &Value) -> bool {
    let group = format!("{GROUP}/");
    let owners = pod["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| {
        let version = owner["apiVersion"].as_str().unwrap_or_default();
        owner["controller"] == true && owner["kind"] == "VM" && version.starts_with(&group)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{asked, message, patched, vm_pod};
    use super::super::valid::tests::valid;
    use super::*;

    fn marked(meta: &Value) -> Value {
        let security = json!({"privileged": true});
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": {"containers": [{"name": "c", "image": "virtlet.cloud/x", "securityContext": security}]},
        });
        pod["metadata"]["name"] = json!("plain");
        pod
    }

    fn saved() -> Value {
        json!({SAVED: r#"{"containers":[{"name":"c","image":"virtlet.cloud/x"}]}"#})
    }

    fn with_all() -> Value {
        json!({
            "annotations": saved(), "labels": {VM_LABEL: "x"}, "finalizers": [AGENT_FINALIZER],
        })
    }

    fn held() -> Value {
        json!({"labels": {VM_LABEL: "x"}, "finalizers": ["example.com/a", AGENT_FINALIZER]})
    }

    #[test]
    fn nobody_gets_a_launchers_marks_without_a_vm() {
        for (meta, field) in [
            (with_all(), "metadata.annotations.disklet.io/vm-pod: "),
            (
                json!({"annotations": saved()}),
                "metadata.annotations.disklet.io/vm-pod: ",
            ),
            (held(), "metadata.finalizers: disklet.io/agent, "),
        ] {
            let pod = marked(&meta);
            for refused in [
                asked("CREATE", &pod, &Value::Null),
                valid("CREATE", &pod, &Value::Null),
            ] {
                assert_eq!(refused["allowed"], false, "{pod}");
                let told = message(&refused);
                assert!(told.starts_with(field), "{told}");
                for words in ["help: remove", VM_LABEL, AGENT_FINALIZER] {
                    assert!(told.contains(words), "{words}: {told}");
                }
            }
        }
    }

    /// The controller makes launchers of VM objects, and one mark alone makes none.
    #[test]
    fn launchers_of_vm_objects_and_pods_with_one_mark_are_created() {
        let mut of_vm = held();
        of_vm["ownerReferences"] = json!([{
            "apiVersion": "disklet.io/v1alpha1", "kind": "VM", "name": "x", "uid": "1",
            "controller": true,
        }]);
        for meta in [
            of_vm,
            json!({"labels": {VM_LABEL: "x"}}),
            json!({"finalizers": [AGENT_FINALIZER]}),
        ] {
            let pod = marked(&meta);
            assert_eq!(
                asked("CREATE", &pod, &Value::Null)["allowed"],
                true,
                "{pod}"
            );
            assert_eq!(
                valid("CREATE", &pod, &Value::Null)["allowed"],
                true,
                "{pod}"
            );
        }
        let mut of_another = held();
        of_another["ownerReferences"] = json!([{
            "apiVersion": "disklet.io.example.com/v1", "kind": "VM", "name": "x", "uid": "1",
            "controller": true,
        }]);
        let pod = marked(&of_another);
        assert_eq!(asked("CREATE", &pod, &Value::Null)["allowed"], false);
    }

    /// A VM pod that somebody has marked becomes a launcher all the same, and one that came
    /// while nobody made it one exists, until the controller stops it.
    #[test]
    fn vm_pods_that_are_marked_are_not_refused() {
        let mut pod = vm_pod();
        pod["metadata"]["labels"] = json!({VM_LABEL: "mine"});
        pod["metadata"]["finalizers"] = json!([AGENT_FINALIZER]);
        let launcher = patched(&pod, &asked("CREATE", &pod, &Value::Null));
        assert!(launcher["metadata"]["annotations"][SAVED].is_string());
        assert_eq!(valid("CREATE", &pod, &Value::Null)["allowed"], true);
    }

    #[test]
    fn marks_can_be_taken_off_where_there_is_no_vm() {
        let old = marked(&with_all());
        let changes: [fn(&mut Value); 4] = [
            |meta| meta["annotations"] = json!({}),
            |meta| meta["labels"] = json!({}),
            |meta| meta["finalizers"] = json!([]),
            |meta| *meta = json!({"name": "plain"}),
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            let mut new = old.clone();
            change(&mut new["metadata"]);
            for response in [asked("UPDATE", &new, &old), valid("UPDATE", &new, &old)] {
                assert_eq!(response, json!({"uid": "1", "allowed": true}), "{nth}");
            }
        }
        // Nobody makes a VM of it in this way.
        let mut new = old.clone();
        new["metadata"]["annotations"]["kubernetes.io/target-runtime"] = json!("virtlet.cloud");
        assert_eq!(valid("UPDATE", &new, &old)["allowed"], false);
    }
}
