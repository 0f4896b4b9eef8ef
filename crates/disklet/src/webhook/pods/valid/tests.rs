use disklet_core::launch::vm_pod::SAVED;
use serde_json::json;

use super::super::tests::{asked, message, patched, settings, vm_pod};
use super::*;
use crate::webhook::review::{Outcome, Question, answer};

/// What somebody does to a pod, and the field by which it is refused.
type Change = (fn(&mut Value), &'static str);

fn created_launcher() -> Value {
    let pod = vm_pod();
    patched(&pod, &asked("CREATE", &pod, &Value::Null))
}

/// What API servers make of a launcher before they ask again.
fn filled_in(mut launcher: Value) -> Value {
    let spec = &mut launcher["spec"];
    spec["restartPolicy"] = json!("Always");
    spec["dnsPolicy"] = json!("ClusterFirst");
    spec["schedulerName"] = json!("default-scheduler");
    spec["tolerations"] = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
    let container = &mut spec["containers"][0];
    container["terminationMessagePath"] = json!("/dev/termination-log");
    container["terminationMessagePolicy"] = json!("File");
    container["imagePullPolicy"] = json!("IfNotPresent");
    launcher
}

fn valid_of(part: &str, operation: &str, object: &Value, old: &Value) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "subResource": part,
            "namespace": "prod",
            "operation": operation,
            "object": object,
            "oldObject": old,
        },
    });
    let settings = settings();
    let body = review.to_string();
    let (bytes, outcome) = answer(body.as_bytes(), Question::Valid(&settings)).unwrap();
    let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
    let response = answer["response"].take();
    assert_eq!(response["allowed"], outcome == Outcome::Allowed);
    assert_eq!(response.get("patch"), None);
    response
}

pub(in super::super) fn valid(operation: &str, object: &Value, old: &Value) -> Value {
    valid_of("", operation, object, old)
}

#[test]
fn a_launcher_as_it_was_made_is_stored() {
    let launcher = filled_in(created_launcher());
    let response = valid("CREATE", &launcher, &Value::Null);
    assert_eq!(response, json!({"uid": "1", "allowed": true}));
}

/// Administrators have policies for all pods.
#[test]
fn what_is_said_about_all_pods_is_said_about_launchers() {
    let changes: [fn(&mut Value); 5] = [
        |spec| spec["containers"][0]["image"] = json!("mirror.example/disklet:1"),
        |spec| spec["containers"][0]["imagePullPolicy"] = json!("Always"),
        |spec| spec["containers"][0]["resources"]["limits"]["cpu"] = json!("2"),
        |spec| spec["containers"][0]["resources"]["limits"]["memory"] = json!("64Gi"),
        |spec| spec["nodeSelector"]["zone"] = json!("a"),
    ];
    for (nth, change) in changes.into_iter().enumerate() {
        let mut launcher = filled_in(created_launcher());
        change(&mut launcher["spec"]);
        let response = valid("CREATE", &launcher, &Value::Null);
        assert_eq!(message(&response), "allowed", "{nth}");
    }
}

#[test]
fn a_launcher_that_others_have_changed_is_refused_with_its_field() {
    let changes: [Change; 11] = [
        (
            |pod| pod["spec"]["containers"][0]["image"] = json!("virtlet.cloud/cirros"),
            "spec.containers[0].image",
        ),
        (
            |pod| pod["spec"]["containers"][0]["command"] = json!(["sh"]),
            "spec.containers[0].command[0]",
        ),
        (
            |pod| pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]),
            "spec.containers[0].env",
        ),
        (
            |pod| pod["spec"]["containers"][0]["securityContext"]["privileged"] = json!(true),
            "spec.containers[0].securityContext.privileged",
        ),
        (
            |pod| pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("64Mi"),
            "spec.containers[0].resources.limits.memory",
        ),
        (
            |pod| pod["spec"]["securityContext"]["runAsUser"] = json!(0),
            "spec.securityContext.runAsUser",
        ),
        (
            |pod| pod["spec"]["runtimeClassName"] = json!("kata"),
            "spec.runtimeClassName",
        ),
        (
            |pod| pod["spec"]["readinessGates"] = json!([]),
            "spec.readinessGates[0]",
        ),
        (
            |pod| pod["metadata"]["finalizers"] = json!(["example.com/mine"]),
            "metadata.finalizers",
        ),
        (
            |pod| {
                pod["spec"]["volumes"]
                    .as_array_mut()
                    .unwrap()
                    .retain(|it| it["name"] != "disklet");
            },
            "spec.volumes",
        ),
        (
            |pod| pod["spec"]["nodeSelector"]["extraRuntime"] = json!("none"),
            "spec.nodeSelector.extraRuntime",
        ),
    ];
    for (change, field) in changes {
        let mut launcher = filled_in(created_launcher());
        change(&mut launcher);
        let refused = valid("CREATE", &launcher, &Value::Null);
        assert_eq!(message(&refused), format!("{field}: {CHANGED}"));
    }
}

/// They have made of it what a plan refuses, so it is refused as a plan would.
#[test]
fn what_others_have_added_is_refused_with_the_words_of_a_plan() {
    let added = json!([{"name": "proxy", "image": "example.com/proxy"}]);
    let mut launcher = filled_in(created_launcher());
    launcher["spec"]["initContainers"] = added.clone();
    let refused = valid("CREATE", &launcher, &Value::Null);
    let told = "spec.initContainers: a VM pod has one container and no initContainers";
    assert_eq!(message(&refused), told);
    let mut launcher = filled_in(created_launcher());
    let containers = launcher["spec"]["containers"].as_array_mut().unwrap();
    containers.push(added[0].clone());
    let refused = valid("CREATE", &launcher, &Value::Null);
    assert!(
        message(&refused).starts_with("spec.containers"),
        "{refused}"
    );
    let mut launcher = filled_in(created_launcher());
    let volume = json!({"name": "logs", "emptyDir": {}});
    launcher["spec"]["volumes"]
        .as_array_mut()
        .unwrap()
        .push(volume);
    let refused = valid("CREATE", &launcher, &Value::Null);
    assert!(
        message(&refused).starts_with("spec.volumes[1].emptyDir: "),
        "{refused}"
    );
    let mut launcher = filled_in(created_launcher());
    launcher["metadata"]["annotations"]["VirtletVCPUCount"] = json!("none");
    let refused = valid("CREATE", &launcher, &Value::Null);
    let field = "metadata.annotations.VirtletVCPUCount: ";
    assert!(message(&refused).starts_with(field), "{refused}");
    launcher["metadata"]["annotations"][SAVED] = json!("{");
    let refused = valid("CREATE", &launcher, &Value::Null);
    assert!(message(&refused).starts_with(DAMAGED), "{refused}");
}

#[test]
fn an_update_leaves_a_launcher_and_its_vm_as_they_are() {
    let old = filled_in(created_launcher());
    let harmless: [fn(&mut Value); 4] = [
        |pod| pod["metadata"]["labels"]["app"] = json!("a"),
        |pod| pod["metadata"]["annotations"]["example.com/seen"] = json!("a"),
        |pod| pod["metadata"]["finalizers"] = json!([]),
        |pod| pod["spec"]["activeDeadlineSeconds"] = json!(5),
    ];
    for change in harmless {
        let mut new = old.clone();
        change(&mut new);
        assert_eq!(message(&valid("UPDATE", &new, &old)), "allowed");
    }
    let others: [Change; 6] = [
        (
            |pod| pod["spec"]["containers"][0]["image"] = json!("example.com/other"),
            "spec.containers[0].image",
        ),
        (
            |pod| pod["metadata"]["labels"] = json!({}),
            "metadata.labels.disklet.io/vm",
        ),
        (
            |pod| pod["metadata"]["annotations"]["VirtletVCPUCount"] = json!("2"),
            "metadata.annotations.VirtletVCPUCount",
        ),
        (
            |pod| pod["metadata"]["annotations"][SAVED] = json!("{}"),
            "metadata.annotations.disklet.io/vm-pod",
        ),
        (
            |pod| {
                drop(
                    pod["metadata"]["annotations"]
                        .as_object_mut()
                        .unwrap()
                        .remove("kubernetes.io/target-runtime"),
                );
            },
            "metadata.annotations.kubernetes.io/target-runtime",
        ),
        (
            |pod| pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("1Mi"),
            "spec.containers[0].resources.limits.memory",
        ),
    ];
    for (change, field) in others {
        let mut new = old.clone();
        change(&mut new);
        let refused = valid_of("resize", "UPDATE", &new, &old);
        assert_eq!(message(&refused), format!("{field}: {STAYS}"));
        // What goes is not held up.
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(valid("UPDATE", &new, &old)["allowed"], true);
    }
}

#[test]
fn an_update_is_refused_for_what_it_brings() {
    let old = filled_in(created_launcher());
    let mut new = old.clone();
    new["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "busybox"}]);
    let refused = valid_of("ephemeralcontainers", "UPDATE", &new, &old);
    let told = "spec.ephemeralContainers: a VM pod has one container and no ephemeralContainers";
    assert_eq!(message(&refused), told);
    // What somebody has got past us before is nobody else's fault.
    let mut newer = new.clone();
    newer["metadata"]["labels"]["app"] = json!("a");
    assert_eq!(message(&valid("UPDATE", &newer, &new)), "allowed");
    let mut new = old.clone();
    new["metadata"]["annotations"]["VirtletVCPUCuont"] = json!("2");
    let refused = valid("UPDATE", &new, &old);
    assert!(
        message(&refused).contains("did you mean \"VirtletVCPUCount\"?"),
        "{refused}"
    );
}

/// Launchers of VM objects have the same label, and pods of the cluster itself are let
/// through whatever they are.
#[test]
fn other_pods_are_let_through() {
    let pod = json!({
        "metadata": {"name": "db", "labels": {"disklet.io/vm": "db"}},
        "spec": {"containers": [{"name": "vm", "image": "x"}, {"name": "more", "image": "y"}]},
    });
    for (operation, old) in [("CREATE", &Value::Null), ("UPDATE", &pod), ("DELETE", &pod)] {
        let response = valid(operation, &pod, old);
        assert_eq!(
            response,
            json!({"uid": "1", "allowed": true}),
            "{operation}"
        );
    }
}
