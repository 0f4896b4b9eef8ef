//! Long lives of VMs in a small world.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;

use super::tests::{claim, end, pod, vm};
use super::*;
use crate::controller::objects::VmStatus;
use crate::controller::seen::Obstacle;

/// Does what is decided, as the API server would do it; how many writes it were.
fn apply(seen: &mut Seen, decision: &Decision) -> usize {
    let mut writes = 0;
    for action in &decision.actions {
        writes += 1;
        match action {
            Action::AddFinalizer => seen.is_held = true,
            Action::RemoveFinalizer => seen.is_held = false,
            Action::HoldClaim(name) => {
                for claim in &mut seen.claims {
                    if claim.name == *name {
                        claim.state = ClaimState::Direct { is_held: true };
                    }
                }
            }
            Action::CreatePod { restarts } => {
                assert!(seen.pod.is_none(), "two pods for one VM");
                assert!(seen.is_held, "a pod of a VM that nothing holds");
                seen.pod = Some(PodSeen {
                    generation: seen.generation,
                    wanted: seen.generation,
                    restarts: *restarts,
                    is_forsaken: true,
                    ..pod(Stage::Starting(None))
                });
            }
            Action::DeletePod { uid } => {
                let pod = seen.pod.as_mut().unwrap();
                assert!(pod.is_ours && pod.uid == *uid && !pod.is_going);
                pod.is_going = true;
                if !pod.is_held {
                    seen.pod = None;
                }
            }
            Action::ReleasePod { .. } => {
                let pod = seen.pod.as_mut().unwrap();
                assert!(pod.is_ours && pod.is_going && pod.is_forsaken);
                seen.pod = None;
            }
            Action::TellPod { generation } => {
                let pod = seen.pod.as_mut().unwrap();
                assert!(pod.is_ours && !pod.is_going && pod.wanted != *generation);
                pod.wanted = *generation;
            }
            Action::ApplyStatus(status) => merge(&mut seen.status, status),
            Action::Tell(_) => {}
        }
    }
    writes
}

/// Server-side apply, as far as it matters here.
fn merge(status: &mut VmStatus, own: &OwnStatus) {
    if let Some(phase) = own.phase {
        status.phase = Some(phase.name().to_owned());
    }
    status.restarts = own.restarts;
    let theirs = |condition: &Condition| {
        own.conditions
            .iter()
            .all(|ours| ours.type_ != condition.type_)
    };
    status.conditions.retain(theirs);
    status.conditions.extend(own.conditions.iter().cloned());
}

/// Decides and applies until nothing is left to do.
pub(super) fn settle(seen: &mut Seen) {
    for _ in 0..10 {
        let mut decision = decide(seen);
        decision
            .actions
            .retain(|action| matches!(action, Action::ApplyStatus(_)));
        if apply(seen, &decision) == 0 {
            return;
        }
    }
    panic!("it never comes to rest: {seen:?}");
}

/// What happens around a VM.
#[derive(Debug, Clone)]
enum Happens {
    Scheduled,
    Runs,
    Ends(i32),
    Loops,
    Obstructed,
    AgentSays(&'static str),
    AgentLetsGo,
    SomebodyDeletesThePod,
    NodeIsLost,
    StrangerComes,
    StrangerGoes,
    Spec { running: bool, refused: bool },
    Claim(ClaimState),
    Deleted,
    TimePasses(i64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let claim = prop_oneof![
        Just(ClaimState::Missing),
        Just(ClaimState::NotBound("Pending".to_owned())),
        Just(ClaimState::Kubelet),
        Just(ClaimState::VolumeUnseen),
        Just(ClaimState::Direct { is_held: false }),
    ];
    prop_oneof![
        4 => Just(Happens::Scheduled),
        4 => Just(Happens::Runs),
        3 => prop_oneof![Just(0), Just(1), Just(64), Just(137)].prop_map(Happens::Ends),
        2 => Just(Happens::Loops),
        1 => Just(Happens::Obstructed),
        2 => prop_oneof![Just("Running"), Just("Paused")].prop_map(Happens::AgentSays),
        4 => Just(Happens::AgentLetsGo),
        1 => Just(Happens::SomebodyDeletesThePod),
        1 => Just(Happens::NodeIsLost),
        1 => Just(Happens::StrangerComes),
        1 => Just(Happens::StrangerGoes),
        2 => (any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(running, refused)| Happens::Spec { running, refused }),
        2 => claim.prop_map(Happens::Claim),
        1 => Just(Happens::Deleted),
        3 => (1_i64..400).prop_map(Happens::TimePasses),
    ]
}

fn change(seen: &mut Seen, happens: &Happens) {
    let now = seen.now;
    let pod_of_ours = seen.pod.as_mut().filter(|pod| pod.is_ours);
    match happens {
        Happens::Scheduled => {
            if let Some(pod) = pod_of_ours.filter(|pod| !pod.is_going) {
                pod.is_forsaken = false;
            }
        }
        Happens::Runs => {
            if let Some(pod) = pod_of_ours.filter(|pod| !pod.is_forsaken)
                && matches!(pod.stage, Stage::Starting(_))
            {
                pod.stage = Stage::Running;
            }
        }
        Happens::Ends(code) => {
            if let Some(pod) = pod_of_ours.filter(|pod| pod.stage == Stage::Running) {
                pod.stage = end(*code, 0);
                if let Stage::Ended(end) = &mut pod.stage {
                    end.at = Some(now);
                }
            }
        }
        Happens::Loops => {
            if let Some(pod) = pod_of_ours.filter(|pod| !pod.is_forsaken) {
                match (&pod.stage, end(1, 0)) {
                    (Stage::Running, Stage::Ended(end)) => {
                        pod.stage = Stage::Looping(end);
                        pod.restarts += 1;
                    }
                    (Stage::Looping(_), _) => pod.stage = Stage::Running,
                    _ => {}
                }
            }
        }
        Happens::Obstructed => {
            if let Some(pod) = pod_of_ours
                && pod.stage == Stage::Starting(None)
            {
                pod.stage = Stage::Starting(Some(Obstacle {
                    reason: "ErrImagePull".to_owned(),
                    message: "no such image".to_owned(),
                }));
            }
        }
        Happens::AgentSays(phase) => {
            if pod_of_ours.is_some_and(|pod| pod.stage == Stage::Running) {
                seen.status.phase = Some((*phase).to_owned());
            }
        }
        Happens::AgentLetsGo => {
            if let Some(pod) = pod_of_ours
                && !pod.is_forsaken
                && (pod.is_going || matches!(pod.stage, Stage::Ended(_)))
            {
                pod.is_held = false;
                if pod.is_going {
                    seen.pod = None;
                }
            }
        }
        Happens::SomebodyDeletesThePod => {
            if let Some(pod) = pod_of_ours {
                pod.is_going = true;
                if !pod.is_held {
                    seen.pod = None;
                }
            }
        }
        Happens::NodeIsLost => {
            if let Some(pod) = pod_of_ours {
                pod.is_forsaken = true;
            }
        }
        Happens::StrangerComes => {
            if seen.pod.is_none() {
                seen.pod = Some(PodSeen {
                    is_ours: false,
                    ..pod(Stage::Running)
                });
            }
        }
        Happens::StrangerGoes => {
            if seen.pod.as_ref().is_some_and(|pod| !pod.is_ours) {
                seen.pod = None;
            }
        }
        Happens::Spec { running, refused } => {
            seen.generation += 1;
            seen.running = *running;
            seen.refusal = refused.then(|| "spec: no".to_owned());
        }
        Happens::Claim(state) => seen.claims = vec![claim("disk", state.clone())],
        Happens::Deleted => seen.is_going = true,
        Happens::TimePasses(seconds) => seen.now += SignedDuration::from_secs(*seconds),
    }
}

proptest! {
    /// `apply` checks that there are never two pods, and none without a finalizer.
    #[test]
    fn a_vm_lives_as_it_should(
        policy in prop_oneof![
            Just(RestartPolicy::Always), Just(RestartPolicy::OnFailure), Just(RestartPolicy::Never)
        ],
        life in prop::collection::vec(happens(), 0..60),
        looks in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut seen = Seen { is_held: false, policy, ..vm() };
        for (happens, looks) in life.iter().zip(&looks) {
            change(&mut seen, happens);
            if seen.is_going && !seen.is_held {
                return Ok(());
            }
            // Sometimes much happens between two looks.
            if !looks {
                continue;
            }
            let had_pod = seen.pod.as_ref().is_some_and(|pod| pod.is_ours);
            let decision = decide(&seen);
            if decision.actions.contains(&Action::RemoveFinalizer) {
                prop_assert!(seen.is_going && !had_pod);
            }
            if seen.refusal.is_some() || !seen.running || seen.is_going {
                let mut actions = decision.actions.iter();
                let creates = actions.any(|action| matches!(action, Action::CreatePod { .. }));
                prop_assert!(!creates);
            }
            apply(&mut seen, &decision);
            // A second look at the same world finds nothing to write, except that a pod
            // that was deleted may be replaced.
            let again = decide(&seen);
            let replaced = had_pod && seen.pod.is_none();
            let released = matches!(again.actions[..], [Action::ReleasePod { .. }]);
            prop_assert!(
                again.actions.is_empty() || replaced || released || seen.is_going,
                "{:?} after {:?}: {:?}", happens, decision, again
            );
        }
    }

    /// Whatever has happened, a deleted VM goes once its agent has let go.
    #[test]
    fn every_vm_can_be_deleted(life in prop::collection::vec(happens(), 0..40)) {
        let mut seen = Seen { is_held: false, ..vm() };
        for happens in &life {
            change(&mut seen, happens);
            let decision = decide(&seen);
            apply(&mut seen, &decision);
        }
        change(&mut seen, &Happens::Deleted);
        for _ in 0..6 {
            let decision = decide(&seen);
            apply(&mut seen, &decision);
            change(&mut seen, &Happens::AgentLetsGo);
        }
        prop_assert!(!seen.is_held, "{:?}", seen);
        prop_assert!(seen.pod.is_none_or(|pod| !pod.is_ours));
    }
}
