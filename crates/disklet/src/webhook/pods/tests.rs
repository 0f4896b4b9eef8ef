use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use disklet_core::launch::vm_pod::SAVED;
use disklet_core::units::ByteSize;

use super::super::claims::Unknown;
use super::super::review::{Outcome, Question, answer};
use super::*;

pub(super) fn settings() -> Settings {
    Settings {
        image: "example.com/disklet:1".to_owned(),
        pull_policy: None,
        default_memory: ByteSize::from_bytes(1 << 30),
        low_ports: false,
        seccomp_profile: None,
    }
}

pub(super) fn vm_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "vm",
            "namespace": "prod",
            "annotations": {"kubernetes.io/target-runtime": "virtlet.cloud"},
        },
        "spec": {
            "containers": [{"name": "vm", "image": "virtlet.cloud/cirros"}],
            "volumes": [
                {"name": "disk", "flexVolume": {"driver": "virtlet/flexvolume_driver", "options": {"type": "qcow2"}}},
            ],
        },
    })
}

pub(super) fn asked(operation: &str, object: &Value, old: &Value) -> Value {
    asked_in("prod", operation, object, old)
}

fn asked_in(namespace: &str, operation: &str, object: &Value, old: &Value) -> Value {
    let (review, claims) = (review(namespace, operation, object, old), Claims::default());
    responded(&review, &claims)
}

fn review(namespace: &str, operation: &str, object: &Value, old: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": namespace,
            "operation": operation,
            "object": object,
            "oldObject": old,
        },
    })
}

fn responded(review: &Value, claims: &Claims) -> Value {
    let settings = settings();
    let question = Question::Changed(&settings, claims);
    let (bytes, outcome) = answer(review.to_string().as_bytes(), question).unwrap();
    let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
    let response = answer["response"].take();
    assert_eq!(response["allowed"], outcome == Outcome::Allowed);
    response
}

/// As the API server would.
pub(super) fn patched(object: &Value, response: &Value) -> Value {
    assert_eq!(response["patchType"], "JSONPatch", "{response}");
    let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap());
    let patch: Vec<Value> = serde_json::from_slice(&patch.unwrap()).unwrap();
    let mut object = object.clone();
    for step in patch {
        let path: Vec<_> = step["path"].as_str().unwrap().split('/').collect();
        let [_, part, key] = path[..] else {
            panic!("{step}");
        };
        let map = object[part].as_object_mut().unwrap();
        match step["op"].as_str().unwrap() {
            "add" => map.insert(key.to_owned(), step["value"].clone()),
            _ => Some(map.remove(key).unwrap()),
        };
    }
    object
}

pub(super) fn message(response: &Value) -> &str {
    response["status"]["message"].as_str().unwrap_or("allowed")
}

#[test]
fn a_vm_pod_becomes_a_launcher_and_stays_one() {
    let pod = vm_pod();
    let launcher = patched(&pod, &asked("CREATE", &pod, &Value::Null));
    let container = &launcher["spec"]["containers"][0];
    assert_eq!(container["image"], "example.com/disklet:1");
    assert_eq!(original(&launcher), Some(pod));
    // Asked again, or created from a backup, there is nothing to do.
    let again = asked("CREATE", &launcher, &Value::Null);
    assert_eq!(again.get("patch"), None, "{again}");
    assert_eq!(again["allowed"], true);
}

#[test]
fn a_launcher_that_somebody_else_wrote_is_made_anew() {
    let pod = vm_pod();
    let launcher = patched(&pod, &asked("CREATE", &pod, &Value::Null));
    let mut forged = launcher.clone();
    let container = &mut forged["spec"]["containers"][0];
    container["image"] = json!("example.com/mine");
    container["securityContext"] = json!({"privileged": true});
    assert_eq!(
        patched(&forged, &asked("CREATE", &forged, &Value::Null)),
        launcher
    );
    forged["metadata"]["annotations"][SAVED] = json!("{}");
    let refused = asked("CREATE", &forged, &Value::Null);
    assert!(message(&refused).contains(SAVED), "{refused}");
}

#[test]
fn other_pods_are_not_touched() {
    let mut pod = vm_pod();
    pod["metadata"]["annotations"] = json!({"kubernetes.io/target-runtime": "docker"});
    pod["spec"]["hostNetwork"] = json!(true);
    for (operation, old) in [("CREATE", &Value::Null), ("UPDATE", &pod), ("DELETE", &pod)] {
        let response = asked(operation, &pod, old);
        assert_eq!(
            response,
            json!({"uid": "1", "allowed": true}),
            "{operation}"
        );
    }
}

#[test]
fn what_a_plan_refuses_is_refused_with_its_field() {
    let mut pod = vm_pod();
    pod["spec"]["volumes"][0]["flexVolume"]["options"] =
        json!({"type": "qcow2", "capasity": "1Gi"});
    pod["spec"]["hostNetwork"] = json!(true);
    let response = asked("CREATE", &pod, &Value::Null);
    assert_eq!(response["allowed"], false);
    assert_eq!(response.get("patch"), None);
    let told = message(&response);
    for words in ["2 problems", "capasity", "capacity", "spec.hostNetwork"] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn a_launcher_is_updated_as_its_vm_pod_allows() {
    let pod = vm_pod();
    let launcher = patched(&pod, &asked("CREATE", &pod, &Value::Null));
    let mut again = launcher.clone();
    again["spec"]["containers"][0]["image"] = json!("virtlet.cloud/cirros");
    assert_eq!(
        patched(&again, &asked("UPDATE", &again, &launcher)),
        launcher
    );
    again["spec"]["containers"][0]["image"] = json!("virtlet.cloud/other");
    let refused = asked("UPDATE", &again, &launcher);
    assert!(
        message(&refused).starts_with("spec.containers[0].image: "),
        "{refused}"
    );
    // What goes is not held up.
    again["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(asked("UPDATE", &again, &launcher)["allowed"], true);
}

/// Which devices a node gives to VMs, and what its links lead to, it knows itself.
#[test]
fn a_device_is_the_nodes_to_judge() {
    let mut pod = vm_pod();
    let options = json!({"type": "raw", "path": "/dev/mapper/vm_pool-a"});
    pod["spec"]["volumes"][0]["flexVolume"]["options"] = options;
    let response = asked("CREATE", &pod, &Value::Null);
    assert_eq!(response["allowed"], true, "{response}");
    pod["spec"]["volumes"][0]["flexVolume"]["options"]["path"] = json!("/etc/passwd");
    let response = asked("CREATE", &pod, &Value::Null);
    assert_eq!(response["allowed"], false, "{response}");
}

/// Nobody but an API server knows what it sends.
#[test]
fn what_is_of_another_kind_is_refused() {
    for (path, field) in [
        ("/metadata/labels", "metadata.labels"),
        ("/spec/nodeSelector", "spec.nodeSelector"),
        (
            "/spec/containers/0/resources",
            "spec.containers[0].resources",
        ),
    ] {
        let mut pod = vm_pod();
        let (parent, key) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = json!("text");
        let refused = asked("CREATE", &pod, &Value::Null);
        assert_eq!(message(&refused), format!("{field}: not a mapping"));
    }
    let mut pod = vm_pod();
    pod["spec"]["containers"][0]["resources"] = json!({"limits": ["memory"]});
    let refused = asked("CREATE", &pod, &Value::Null);
    assert!(message(&refused).contains("resources.limits"), "{refused}");
    let mut pod = vm_pod();
    pod["spec"]["runtimeClassName"] = json!("disklet");
    for (field, value) in [("metadata", json!("text")), ("metadata", json!([1]))] {
        pod[field] = value;
        assert_eq!(asked("CREATE", &pod, &Value::Null)["allowed"], false);
    }
    let launcher = patched(&vm_pod(), &asked("CREATE", &vm_pod(), &Value::Null));
    for (pointer, key) in [
        ("/metadata", "annotations"),
        ("/metadata", "labels"),
        ("", "spec"),
    ] {
        let mut new = launcher.clone();
        new.pointer_mut(pointer).unwrap()[key] = json!(1);
        let refused = asked("UPDATE", &new, &launcher);
        assert!(message(&refused).ends_with(": not a mapping"), "{refused}");
    }
}

#[test]
fn what_a_launcher_has_no_room_for_is_refused() {
    let mut pod = vm_pod();
    let text = "x".repeat(MOST_ANNOTATIONS);
    pod["spec"]["containers"][0]["env"] = json!([{"name": "TEXT", "value": text}]);
    let refused = asked("CREATE", &pod, &Value::Null);
    let told = message(&refused);
    assert!(
        told.starts_with("metadata.annotations: too large"),
        "{}",
        &told[..200]
    );
}

/// A launcher in its place would be another pod than the kubelet runs.
#[test]
fn what_a_kubelet_runs_of_its_own_is_not_touched() {
    let mut pod = vm_pod();
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("1");
    let response = asked("CREATE", &pod, &Value::Null);
    assert_eq!(response, json!({"uid": "1", "allowed": true}));
    // Nobody makes a launcher of their own in this way.
    let mut forged = patched(&vm_pod(), &asked("CREATE", &vm_pod(), &Value::Null));
    forged["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("1");
    forged["spec"]["containers"][0]["image"] = json!("example.com/mine");
    assert!(asked("CREATE", &forged, &Value::Null)["patch"].is_string());
}

#[test]
fn who_only_asks_learns_that_we_are_there() {
    let mut pod = vm_pod();
    pod["metadata"]["annotations"][ASKS] = json!("true");
    let mut review = review("prod", "CREATE", &pod, &Value::Null);
    // To one that is really created, it is an annotation that nobody knows.
    let response = responded(&review, &Claims::default());
    assert!(
        message(&response).contains("unknown annotation"),
        "{response}"
    );
    review["request"]["dryRun"] = json!(true);
    assert_eq!(message(&responded(&review, &Claims::default())), ASKED);
    review["request"]["object"] = vm_pod();
    assert_eq!(responded(&review, &Claims::default())["allowed"], true);
}

#[test]
fn who_names_a_claim_that_is_not_there_is_warned() {
    let mut pod = vm_pod();
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.extend(["data", "slow", "there"].map(claim));
    let review = review("prod", "CREATE", &pod, &Value::Null);
    let claims = Claims {
        blocks: ["there".to_owned()].into(),
        unknown: [
            ("data".to_owned(), Unknown::Missing),
            ("slow".to_owned(), Unknown::Unanswered),
        ]
        .into(),
    };
    let response = responded(&review, &claims);
    assert_eq!(response["allowed"], true);
    let warnings: Vec<_> = response["warnings"].as_array().unwrap().iter().collect();
    let [missing, unanswered] = warnings[..] else {
        panic!("{warnings:?}");
    };
    let help =
        "(help: of a device, name the volume in volumeDevices, or create the claim before the pod)";
    let at = |index| format!("spec.volumes[{index}].persistentVolumeClaim.claimName");
    assert_eq!(
        *missing,
        format!(
            "{}: there is no claim \"data\" yet, so it is taken for a filesystem {help}",
            at(1)
        )
    );
    assert!(
        unanswered.as_str().unwrap().starts_with(&at(2)),
        "{unanswered}"
    );
    assert_eq!(responded(&review, &Claims::default()).get("warnings"), None);
}

/// Older API servers ask about them as well.
#[test]
fn pods_of_the_cluster_itself_are_not_touched() {
    let pod = vm_pod();
    let response = asked_in("kube-system", "CREATE", &pod, &Value::Null);
    assert_eq!(response, json!({"uid": "1", "allowed": true}));
}
