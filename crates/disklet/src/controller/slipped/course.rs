//! What is to be done about a pod that is written as a VM and has no launcher in its
//! place. This decides; it asks nobody.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;

use disklet_core::launch::vm_pod::{SAVED, is_written_as_vm};

use crate::controller::objects::{AnyPod, is_going};

/// The image of a pod that is not to run. It is no name of an image, so that no
/// registry is asked for it, and it tells what to do.
pub(super) const NOTHING: &str = "NOT-A-VM:delete-this-pod-and-create-it-again";
/// On pods that a kubelet has made itself; nobody asked about them.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Whose controllers make a pod anew that is deleted.
const MAKERS: [(&str, &str); 5] = [
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
];

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Course {
    /// Nothing.
    Leave,
    /// Its containers get an image that nobody can run.
    Stop,
    /// It is deleted, and this one makes it anew.
    Replace(String),
}

/// Whether a pod is no launcher and would have become one. Whether anybody was asked
/// about it is another question.
pub(super) fn is_unlaunched(pod: &AnyPod) -> bool {
    let class = pod.spec.runtime_class_name.as_deref();
    let is_over = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    is_written_as_vm(|key| pod.annotation(key), class)
        && pod.annotation(SAVED).is_none()
        && pod.annotation(MIRROR).is_none()
        && !is_going(pod)
        && !is_over
}

/// Whether it was there before anybody could have asked: as a VM of another system, or as
/// a container whose author meant nothing by the annotation.
pub(super) fn is_older(pod: &AnyPod, than: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.is_some_and(|created| created.0 < than)
}

/// Who makes it anew if it is deleted, in words.
pub(super) fn maker(pod: &AnyPod) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let makes = |owner: &&OwnerReference| {
        let group = owner.api_version.rsplit_once('/').map_or("", |it| it.0);
        owner.controller == Some(true) && MAKERS.contains(&(group, owner.kind.as_str()))
    };
    let maker = owners.find(makes)?;
    Some(format!("{} {}", maker.kind, maker.name))
}

/// Whether no container of it can run any more.
pub(super) fn is_stopped(pod: &AnyPod) -> bool {
    pod.all_containers()
        .all(|container| container.image == NOTHING)
}

/// What is to be done about one that has slipped past. As long as nobody `answers`, what is
/// made anew would slip past as well, and again.
pub(super) fn course(pod: &AnyPod, answers: bool) -> Course {
    match maker(pod) {
        Some(maker) if answers => Course::Replace(maker),
        _ if is_stopped(pod) => Course::Leave,
        _ => Course::Stop,
    }
}

impl Course {
    /// What people are told.
    pub(super) fn in_words(&self) -> Option<String> {
        const WHY: &str = "this is a VM pod, and was created when Disklet's webhook did not answer: no launcher took its place";
        match self {
            Self::Leave => None,
            Self::Stop => Some(format!(
                "{WHY}, and it is kept from running as a container; delete it, and create it again"
            )),
            Self::Replace(maker) => {
                Some(format!("{WHY}; it is deleted, and {maker} makes it anew"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> AnyPod {
        let mut pod = json!({
            "metadata": {
                "name": "vm", "namespace": "mine", "uid": "u", "creationTimestamp": "2026-01-01T00:00:10Z",
                "annotations": {"kubernetes.io/target-runtime": "virtlet.cloud"},
            },
            "spec": {"containers": [{"name": "a", "image": "virtlet.cloud/cirros"}]},
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn owned(version: &str, kind: &str) -> AnyPod {
        pod(|pod| {
            pod["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "1"},
                {"apiVersion": version, "kind": kind, "name": "web", "uid": "2", "controller": true},
            ]);
        })
    }

    #[test]
    fn what_is_written_as_a_vm_and_is_no_launcher_is_found() {
        assert!(is_unlaunched(&pod(|_| {})));
        assert!(is_unlaunched(&pod(|pod| {
            pod["metadata"]["annotations"] = json!({});
            pod["spec"]["runtimeClassName"] = json!("disklet");
        })));
    }

    #[test]
    fn others_are_left_alone() {
        let changes: [fn(&mut Value); 7] = [
            |pod| {
                pod["metadata"]["annotations"] = json!({"kubernetes.io/target-runtime": "docker"});
            },
            |pod| pod["metadata"] = json!({"name": "vm"}),
            |pod| pod["metadata"]["annotations"][SAVED] = json!("{}"),
            |pod| pod["metadata"]["annotations"][MIRROR] = json!("x"),
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |pod| pod["status"]["phase"] = json!("Succeeded"),
            |pod| pod["status"]["phase"] = json!("Failed"),
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            assert!(!is_unlaunched(&pod(change)), "{nth}");
        }
    }

    #[test]
    fn a_pod_that_was_there_before_us_did_not_slip_past() {
        let at = |text: &str| text.parse().unwrap();
        assert!(is_older(&pod(|_| {}), at("2026-01-01T00:00:11Z")));
        assert!(!is_older(&pod(|_| {}), at("2026-01-01T00:00:10Z")));
        assert!(!is_older(&pod(|_| {}), at("2026-01-01T00:00:09Z")));
    }

    #[test]
    fn a_pod_that_nobody_makes_anew_is_stopped_and_never_deleted() {
        let others = [
            pod(|_| {}),
            owned("example.com/v1", "ReplicaSet"),
            owned("v1", "Node"),
            owned("disklet.io/v1alpha1", "VM"),
        ];
        for pod in others {
            for answers in [false, true] {
                assert_eq!(course(&pod, answers), Course::Stop);
            }
        }
    }

    #[test]
    fn a_pod_that_is_made_anew_is_deleted_once_somebody_answers() {
        for (version, kind) in [
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "DaemonSet"),
            ("batch/v1", "Job"),
            ("v1", "ReplicationController"),
        ] {
            let pod = owned(version, kind);
            assert_eq!(course(&pod, false), Course::Stop);
            assert_eq!(course(&pod, true), Course::Replace(format!("{kind} web")));
        }
    }

    #[test]
    fn what_is_stopped_is_told_once() {
        let both = |first: &str, second: &str| {
            pod(|pod| {
                pod["spec"]["initContainers"] = json!([{"name": "b", "image": first}]);
                pod["spec"]["containers"][0]["image"] = json!(second);
            })
        };
        assert_eq!(course(&both(NOTHING, NOTHING), false), Course::Leave);
        // Somebody has applied the manifest again.
        assert_eq!(
            course(&both(NOTHING, "virtlet.cloud/cirros"), false),
            Course::Stop
        );
        assert_eq!(course(&both("busybox", NOTHING), true), Course::Stop);
        assert_eq!(Course::Leave.in_words(), None);
        let told = Course::Stop.in_words().unwrap();
        assert!(told.ends_with("delete it, and create it again"), "{told}");
    }
}
