//! What is to be done about a pod that is written as a VM and has no launcher in its
//! place. This decides; it asks nobody.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;

use disklet_core::launch::pod::VM_LABEL;
use disklet_core::launch::vm_pod::{MIRROR, SAVED, is_written_as_vm, label_of};

use disklet::cluster::names::POD_FINALIZER;

use crate::controller::objects::{AnyPod, is_going, is_held};

/// The image of a pod that is not to run. It is no name of an image, so that no
/// registry is asked for it, and it tells what to do.
pub(super) const NOTHING: &str = "NOT-A-VM:delete-this-pod-and-create-it-again";
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
    /// The same, and before that it loses a launcher's label, by which API servers would
    /// ask us about the change, and refuse it as long as nobody answers.
    StopUnlabelled,
    /// It is deleted, and this one makes it anew.
    Replace(String),
    /// It is a launcher, and gets this label again, by which it is protected from updates.
    Label(String),
}

/// Whether a pod would have become a launcher and is none, or is one that has lost its
/// label. Whether anybody was asked about it is another question.
pub(super) fn has_slipped(pod: &AnyPod) -> bool {
    let class = pod.spec.runtime_class_name.as_deref();
    let is_over = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let is_vm = is_written_as_vm(|key| pod.annotation(key), class);
    let is_slip = match is_launcher(pod) {
        true => !is_labelled(pod),
        false => is_vm && pod.annotation(MIRROR).is_none(),
    };
    is_slip && !is_going(pod) && !is_over
}

fn is_launcher(pod: &AnyPod) -> bool {
    pod.annotation(SAVED).is_some()
}

/// Anybody can write it, so it says nothing of a pod that is no launcher.
fn is_labelled(pod: &AnyPod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(VM_LABEL))
}

/// Whether it was there before anybody could have asked: as a VM of another system, or as
/// a container whose author meant nothing by the annotation.
pub(super) fn is_older(pod: &AnyPod, than: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.is_some_and(|created| created.0 < than)
}

/// Who makes it anew if it is deleted, in words. Launchers are not deleted.
pub(super) fn maker(pod: &AnyPod) -> Option<String> {
    if is_launcher(pod) {
        return None;
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let makes = |owner: &&OwnerReference| {
        let group = owner.api_version.rsplit_once('/').map_or("", |it| it.0);
        owner.controller == Some(true) && MAKERS.contains(&(group, owner.kind.as_str()))
    };
    let maker = owners.find(makes)?;
    Some(format!("{} {}", maker.kind, maker.name))
}

/// The UID of who has it in the cluster, and may know it by its labels.
pub(super) fn chooser(pod: &AnyPod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some(&owner.uid)
}

/// Whether API servers ask us whether it may be changed in this way, and so may refuse it
/// after a long while.
pub(super) fn is_guarded(pod: &AnyPod, course: &Course) -> bool {
    match course {
        Course::Label(_) => true,
        Course::Stop => is_labelled(pod),
        Course::Leave | Course::StopUnlabelled | Course::Replace(_) => false,
    }
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
        _ if is_launcher(pod) => Course::Label(label(pod)),
        _ if is_stopped(pod) => Course::Leave,
        // Who frees what our finalizer holds finds it by the label.
        _ if is_labelled(pod) && !is_held(pod, POD_FINALIZER) => Course::StopUnlabelled,
        _ => Course::Stop,
    }
}

fn label(pod: &AnyPod) -> String {
    label_of(pod.metadata.name.as_deref().unwrap_or_default())
}

/// What happened to those that are no launchers.
const WHY: &str = "this is a VM pod, and no launcher took its place: Disklet's webhook did not answer when it was created, or it was made a VM pod later, by an annotation";

impl Course {
    /// What people are told when it was taken.
    pub(super) fn in_words(&self) -> Option<String> {
        match self {
            Self::Leave | Self::Label(_) => None,
            Self::Stop | Self::StopUnlabelled => Some(format!(
                "{WHY}; it is kept from running as a container: delete it, and create it again"
            )),
            Self::Replace(maker) => {
                Some(format!("{WHY}; it is deleted, and {maker} makes it anew"))
            }
        }
    }

    /// What people are told when the API server, or who has a say there, does not let us.
    pub(super) fn refused_in_words(&self, why: &str) -> Option<String> {
        match self {
            Self::Leave => None,
            Self::Stop | Self::StopUnlabelled => Some(format!(
                "{WHY}; it could not be kept from running as a container: {why}; delete it, and create it again"
            )),
            Self::Replace(maker) => Some(format!(
                "{WHY}; it could not be deleted: {why}; delete it, so that {maker} makes it anew"
            )),
            Self::Label(_) => Some(format!(
                "this launcher of a VM pod has lost the label {VM_LABEL}, by which it is protected, and could not have it again: {why}; have other webhooks leave that label alone"
            )),
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
        assert!(has_slipped(&pod(|_| {})));
        assert!(has_slipped(&pod(|pod| {
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
            |pod| {
                pod["metadata"]["annotations"][SAVED] = json!("{}");
                pod["metadata"]["labels"] = json!({VM_LABEL: "vm"});
            },
            |pod| pod["metadata"]["annotations"][MIRROR] = json!("x"),
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |pod| pod["status"]["phase"] = json!("Succeeded"),
            |pod| pod["status"]["phase"] = json!("Failed"),
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            assert!(!has_slipped(&pod(change)), "{nth}");
        }
    }

    /// Whoever writes the label, as to have other webhooks leave the pod alone, is not past us
    /// by that.
    #[test]
    fn a_label_makes_no_launcher() {
        let labelled = pod(|pod| pod["metadata"]["labels"] = json!({VM_LABEL: "vm"}));
        assert!(has_slipped(&labelled));
        assert_eq!(course(&labelled, true), Course::StopUnlabelled);
        assert!(!is_guarded(&labelled, &Course::StopUnlabelled));
        assert!(is_guarded(&labelled, &Course::Stop));
        assert!(!is_guarded(&pod(|_| {}), &Course::Stop));
        let held = pod(|pod| {
            pod["metadata"]["labels"] = json!({VM_LABEL: "vm"});
            pod["metadata"]["finalizers"] = json!([POD_FINALIZER]);
        });
        assert_eq!(course(&held, true), Course::Stop);
    }

    /// A container that runs can be annotated, too.
    #[test]
    fn what_is_told_is_true_of_pods_that_were_annotated_later() {
        for course in [Course::Stop, Course::Replace("Job web".to_owned())] {
            let told = course.in_words().unwrap();
            assert!(told.contains(", or it was made a VM pod later"), "{told}");
        }
    }

    #[test]
    fn a_launcher_that_has_lost_its_label_has_it_again() {
        let bare = pod(|pod| pod["metadata"]["annotations"][SAVED] = json!("{}"));
        assert!(has_slipped(&bare));
        for answers in [false, true] {
            assert_eq!(course(&bare, answers), Course::Label("vm".to_owned()));
        }
        assert_eq!(course(&bare, true).in_words(), None);
        let gone = pod(|pod| {
            pod["metadata"]["annotations"][SAVED] = json!("{}");
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        assert!(!has_slipped(&gone));
    }

    #[test]
    fn what_others_refuse_is_told_with_their_words() {
        let why = "admission webhook \"images.example.com\" denied the request: no";
        for (course, remedy) in [
            (Course::Stop, "delete it, and create it again"),
            (
                Course::Replace("ReplicaSet web".to_owned()),
                "ReplicaSet web makes it anew",
            ),
            (Course::Label("vm".to_owned()), "leave that label alone"),
        ] {
            let told = course.refused_in_words(why).unwrap();
            assert!(told.contains(why) && told.ends_with(remedy), "{told}");
        }
        assert_eq!(Course::Leave.refused_in_words(why), None);
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
