use serde_json::{Value, json};

use super::super::course::NOTHING;
use super::*;

const VM_IMAGE: &str = "virtlet.cloud/cirros";

fn pod(name: &str, version: u64, image: &str, more: &Value) -> AnyPod {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "mine", "uid": name, "resourceVersion": version.to_string(),
            "annotations": {"kubernetes.io/target-runtime": "virtlet.cloud"},
        },
        "spec": {"containers": [{"name": "a", "image": image}]},
    });
    for (key, value) in more.as_object().unwrap() {
        pod["metadata"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn of_set() -> Value {
    json!({"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true,
    }]})
}

fn labelled(mut more: Value) -> Value {
    more["labels"] = json!({"disklet.io/vm": "it"});
    more
}

fn after(begun: Instant, seconds: u64) -> Instant {
    begun + Duration::from_secs(seconds)
}

#[test]
fn a_pod_is_stopped_once_whatever_the_watch_still_shows() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    let one = json!({});
    let begun = memory.see(pod("a", 5, VM_IMAGE, &one), now).unwrap();
    assert_eq!(begun.course, Course::Stop);
    assert!(begun.is_quick);
    // Somebody is at it.
    assert!(memory.see(pod("a", 6, VM_IMAGE, &one), now).is_none());
    assert!(memory.due(now).is_empty());
    assert!(memory.ended("a", Outcome::Done(Some(9)), now).is_none());
    // The watch is behind.
    assert!(memory.see(pod("a", 7, VM_IMAGE, &one), now).is_none());
    assert!(memory.due(after(now, 60)).is_empty());
    assert!(memory.see(pod("a", 9, NOTHING, &one), now).is_none());
    assert!(memory.pods.is_empty());
    // Somebody has applied the manifest again.
    assert!(memory.see(pod("a", 10, VM_IMAGE, &one), now).is_some());
}

#[test]
fn what_came_while_somebody_was_at_it_is_not_lost() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    let one = json!({});
    memory.see(pod("a", 5, VM_IMAGE, &one), now).unwrap();
    assert!(memory.see(pod("a", 12, VM_IMAGE, &one), now).is_none());
    assert!(memory.ended("a", Outcome::Done(Some(9)), now).is_some());
}

/// Nobody is asked before it is stopped, and all of a namespace are asked for at once.
#[test]
fn it_is_asked_once_for_all_pods_of_a_namespace() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    for name in ["a", "b"] {
        let begun = memory.see(pod(name, 5, VM_IMAGE, &of_set()), now).unwrap();
        assert_eq!(begun.course, Course::Stop);
    }
    assert!(memory.questions(now).is_empty());
    for name in ["a", "b"] {
        memory.ended(name, Outcome::Done(Some(6)), now);
        memory.see(pod(name, 6, NOTHING, &of_set()), now);
    }
    let questions = memory.questions(now);
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0].namespace, "mine");
    // It is being asked, however long that takes.
    assert!(memory.questions(after(now, 60)).is_empty());
    assert!(memory.answered("mine", false, now).is_empty());
    assert!(memory.questions(after(now, 9)).is_empty());
    assert_eq!(memory.questions(after(now, 10)).len(), 1);
    let tries = memory.answered("mine", true, after(now, 11));
    let courses: Vec<_> = tries.iter().map(|it| &it.course).collect();
    let replaced = Course::Replace("ReplicaSet web".to_owned());
    assert_eq!(courses, [&replaced, &replaced]);
}

#[test]
fn what_fails_is_tried_again_with_growing_pauses_and_out_of_the_way() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    let first = memory.see(pod("a", 5, VM_IMAGE, &json!({})), now).unwrap();
    assert!(first.is_quick && first.refused.is_none());
    let refused = (Course::Stop, 500);
    let mut at = now;
    for wait in [1, 2, 4, 8, 16, 30, 30] {
        let failed = Outcome::Failed(Some(refused.clone()));
        assert!(memory.ended("a", failed, at).is_none());
        // The kubelet keeps telling.
        let again = pod("a", 6, VM_IMAGE, &json!({}));
        assert!(memory.see(again, at).is_none());
        assert!(memory.due(after(at, wait - 1)).is_empty());
        at = after(at, wait);
        let again = memory.due(at);
        assert_eq!(again.len(), 1);
        assert!(!again[0].is_quick);
        assert_eq!(again[0].refused.as_ref(), Some(&refused));
    }
}

#[test]
fn who_cannot_be_stopped_is_replaced_once_somebody_answers() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    memory.see(pod("a", 5, VM_IMAGE, &of_set()), now).unwrap();
    memory.ended("a", Outcome::Failed(None), now);
    assert_eq!(memory.questions(now).len(), 1);
    assert_eq!(memory.answered("mine", true, now).len(), 1);
}

/// Who knows its pods by the label makes others when they lose it, and these would slip past
/// as well, and again.
#[test]
fn who_lets_go_of_a_pod_for_its_label_keeps_the_others() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    let mine = pod("a", 5, VM_IMAGE, &labelled(of_set()));
    let begun = memory.see(mine, now).unwrap();
    assert_eq!(begun.course, Course::StopUnlabelled);
    assert!(begun.is_quick);
    // It is let go, in the midst of that.
    assert!(memory.see(pod("a", 7, VM_IMAGE, &json!({})), now).is_none());
    let next = memory.see(pod("b", 8, VM_IMAGE, &labelled(of_set())), now);
    let next = next.unwrap();
    assert_eq!(next.course, Course::Stop);
    assert!(!next.is_quick);
    let others = pod("c", 9, VM_IMAGE, &labelled(json!({})));
    let others = memory.see(others, now).unwrap();
    assert_eq!(others.course, Course::StopUnlabelled);
}

#[test]
fn what_is_gone_is_forgotten() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    for name in ["a", "b", "c", "d"] {
        memory.see(pod(name, 5, VM_IMAGE, &json!({})), now).unwrap();
    }
    memory.forget(&pod("a", 6, VM_IMAGE, &json!({})));
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert!(memory.see(pod("b", 6, VM_IMAGE, &going), now).is_none());
    memory.begin_list();
    assert!(memory.see(pod("c", 5, VM_IMAGE, &json!({})), now).is_none());
    memory.end_list();
    assert_eq!(memory.pods.keys().collect::<Vec<_>>(), ["c"]);
    assert!(memory.ended("c", Outcome::Left, now).is_none());
    assert!(memory.pods.is_empty());
}
