//! Every state of a VM with every state of its pod.

use super::lives::settle;
use super::*;
use crate::controller::objects::VmStatus;
use crate::controller::seen::Obstacle;

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub(super) fn vm() -> Seen {
    Seen {
        now: now(),
        name: "vm".to_owned(),
        generation: 3,
        is_going: false,
        is_held: true,
        running: true,
        policy: RestartPolicy::Always,
        refusal: None,
        status: VmStatus::default(),
        pod: None,
        claims: Vec::new(),
        misplaced: Vec::new(),
        rebuff: None,
        patience: SignedDuration::from_secs(10),
    }
}

pub(super) fn pod(stage: Stage) -> PodSeen {
    PodSeen {
        uid: "pod-1".to_owned(),
        is_ours: true,
        is_going: false,
        is_held: true,
        is_forsaken: false,
        generation: 3,
        wanted: 3,
        restarts: 0,
        stage,
    }
}

pub(super) fn end(code: i32, seconds_ago: i64) -> Stage {
    Stage::Ended(End {
        code: Some(code),
        why: "because".to_owned(),
        at: Some(now() - SignedDuration::from_secs(seconds_ago)),
        ran: SignedDuration::from_secs(1),
    })
}

pub(super) fn claim(name: &str, state: ClaimState) -> ClaimSeen {
    let name = name.to_owned();
    ClaimSeen { name, state }
}

/// A decision in a few words.
fn words(decision: &Decision) -> String {
    let mut out: Vec<_> = decision.actions.iter().map(word).collect();
    if let Some(again) = decision.again {
        out.push(format!("again in {}s", again.as_secs()));
    }
    out.join(", ")
}

fn word(action: &Action) -> String {
    match action {
        Action::AddFinalizer => "hold".to_owned(),
        Action::RemoveFinalizer => "let go".to_owned(),
        Action::HoldClaim(name) => format!("hold claim {name}"),
        Action::CreatePod { restarts: 0 } => "create".to_owned(),
        Action::CreatePod { restarts } => format!("create (restart {restarts})"),
        Action::DeletePod { .. } => "delete".to_owned(),
        Action::TellPod { generation } => format!("tell pod of {generation}"),
        Action::ReleasePod { .. } => "release".to_owned(),
        Action::ApplyStatus(status) => format!("status {}", in_short(status)),
        Action::Tell(told) => format!("tell {}", told.reason),
    }
}

fn in_short(status: &OwnStatus) -> String {
    let phase = status.phase.map_or("-", Phase::name);
    let conditions = status.conditions.iter();
    let conditions: Vec<_> = conditions
        .map(|it| format!("{}={}/{}", it.type_, it.status, it.reason))
        .collect();
    format!("[{phase} {}]", conditions.join(" "))
}

fn decided(change: impl FnOnce(&mut Seen)) -> String {
    let mut seen = vm();
    change(&mut seen);
    words(&decide(&seen))
}

fn running() -> PodSeen {
    pod(Stage::Running)
}

fn starting() -> PodSeen {
    pod(Stage::Starting(None))
}

fn going(stage: Stage) -> PodSeen {
    PodSeen {
        is_going: true,
        ..pod(stage)
    }
}

fn stranger() -> PodSeen {
    PodSeen {
        is_ours: false,
        ..running()
    }
}

/// A name, how it differs from a VM that is to be launched, and what is done.
type Case = (&'static str, fn(&mut Seen), &'static str);

#[test]
fn the_table_of_what_is_done() {
    let cases: [Case; 20] = [
        (
            "new",
            |vm| vm.is_held = false,
            "hold, create, tell Launching",
        ),
        ("held already", |_| {}, "create, tell Launching"),
        ("starting", |vm| vm.pod = Some(starting()), ""),
        ("running", |vm| vm.pod = Some(running()), ""),
        (
            "pod deleted by somebody",
            |vm| vm.pod = Some(going(Stage::Running)),
            "",
        ),
        (
            "pod deleted before it had a node",
            |vm| {
                vm.pod = Some(PodSeen {
                    is_forsaken: true,
                    ..going(Stage::Starting(None))
                });
            },
            "release",
        ),
        (
            "somebody else's pod",
            |vm| vm.pod = Some(stranger()),
            "status [Pending Accepted=False/NameTaken], tell NameTaken",
        ),
        (
            "refused",
            |vm| vm.refusal = Some("spec: no".to_owned()),
            "status [Pending Accepted=False/Refused], tell Refused",
        ),
        (
            "refused while it runs",
            |vm| {
                vm.refusal = Some("spec: no".to_owned());
                vm.pod = Some(running());
            },
            "status [- Accepted=False/Refused Launched=True/Running], tell Refused",
        ),
        (
            "never to run",
            |vm| (vm.running, vm.is_held) = (false, false),
            "status [Stopped Accepted=True/Accepted Launched=False/Stopped]",
        ),
        (
            "to be stopped",
            |vm| {
                vm.running = false;
                vm.pod = Some(running());
            },
            "delete",
        ),
        (
            "stopped",
            |vm| {
                vm.running = false;
                vm.status.phase = Some("Running".to_owned());
            },
            "status [Stopped Accepted=True/Accepted Launched=False/Stopped], tell Stopped",
        ),
        (
            "stopped while another's pod has its name",
            |vm| {
                vm.running = false;
                vm.pod = Some(stranger());
            },
            "status [Stopped Accepted=False/NameTaken], tell NameTaken",
        ),
        (
            "deleted while it runs",
            |vm| {
                vm.is_going = true;
                vm.pod = Some(running());
            },
            "delete",
        ),
        (
            "deleted, pod going",
            |vm| {
                vm.is_going = true;
                vm.pod = Some(going(Stage::Running));
            },
            "",
        ),
        (
            "deleted, pod going on a lost node",
            |vm| {
                vm.is_going = true;
                vm.pod = Some(PodSeen {
                    is_forsaken: true,
                    ..going(Stage::Running)
                });
            },
            "release",
        ),
        ("deleted, pod gone", |vm| vm.is_going = true, "let go"),
        (
            "deleted, never held",
            |vm| (vm.is_going, vm.is_held) = (true, false),
            "",
        ),
        (
            "deleted, another's pod has its name",
            |vm| {
                vm.is_going = true;
                vm.pod = Some(stranger());
            },
            "let go",
        ),
        (
            "deleted and refused",
            |vm| {
                vm.is_going = true;
                vm.refusal = Some("no".to_owned());
            },
            "let go",
        ),
    ];
    for (name, change, expected) in cases {
        assert_eq!(decided(change), expected, "{name}");
    }
}

#[test]
fn claims_are_waited_for_and_held() {
    let with = |states: Vec<ClaimSeen>| decided(|vm| vm.claims = states);
    let launched = "create, tell Launching";
    assert_eq!(
        with(vec![
            claim("a", ClaimState::Kubelet),
            claim("b", ClaimState::Awaits)
        ]),
        launched
    );
    assert_eq!(
        with(vec![claim("a", ClaimState::Direct { is_held: true })]),
        launched
    );
    assert_eq!(
        with(vec![claim("a", ClaimState::Direct { is_held: false })]),
        "hold claim a, create, tell Launching"
    );
    // The watch will tell.
    assert_eq!(with(vec![claim("a", ClaimState::VolumeUnseen)]), "");
    let refused = "status [Pending Accepted=False/ClaimNotBound], tell ClaimNotBound";
    for state in [
        ClaimState::Missing,
        ClaimState::Going,
        ClaimState::NotBound("Pending".to_owned()),
        ClaimState::NotBound("Lost".to_owned()),
    ] {
        assert_eq!(
            with(vec![claim("a", ClaimState::Kubelet), claim("b", state)]),
            refused
        );
    }
}

#[test]
fn a_launcher_that_does_not_fit_its_bound_claim_is_made_anew() {
    let misplaced = |stage| {
        decided(|seen| {
            seen.pod = Some(pod(stage));
            seen.misplaced = vec!["disk".to_owned()];
        })
    };
    let replaced = "status [Pending Accepted=True/Accepted Launched=False/ClaimBound], delete, tell ClaimBound";
    assert_eq!(misplaced(Stage::Starting(None)), replaced);
    let Stage::Ended(refused) = end(64, 0) else {
        panic!("it has not ended");
    };
    assert_eq!(misplaced(Stage::Looping(refused)), replaced);
    // A guest that runs is left alone: somebody has changed its VM object.
    assert!(!misplaced(Stage::Running).contains("delete"));
}

#[test]
fn the_message_names_every_claim_that_lacks() {
    let mut seen = vm();
    seen.claims = vec![
        claim("disk-1", ClaimState::Missing),
        claim("disk-2", ClaimState::NotBound("Pending".to_owned())),
        claim("disk-3", ClaimState::Kubelet),
    ];
    let decision = decide(&seen);
    let Some(Action::Tell(told)) = decision.actions.last() else {
        panic!("{decision:?}");
    };
    assert_eq!(
        told.message,
        "the claim disk-1 is missing: create it, or correct its name; the claim disk-2 is Pending, not \
         Bound: the VM is launched when it is, see kubectl describe pvc disk-2"
    );
}

#[test]
fn a_claim_that_binds_launches_the_vm_and_mends_its_condition() {
    let mut seen = vm();
    seen.claims = vec![claim("a", ClaimState::Missing)];
    settle(&mut seen);
    seen.claims = vec![claim("a", ClaimState::Kubelet)];
    assert_eq!(
        words(&decide(&seen)),
        "status [Pending Accepted=True/Accepted], create, tell Launching"
    );
}

#[test]
fn an_end_is_followed_as_the_policy_says() {
    let after = |policy, code, seconds_ago| {
        decided(|vm| {
            vm.policy = policy;
            vm.pod = Some(pod(end(code, seconds_ago)));
        })
    };
    use RestartPolicy::{Always, Never, OnFailure};
    let restart = |word| {
        format!(
            "status [Restarting Accepted=True/Accepted Launched=False/{word}], tell {word}, again in 7s"
        )
    };
    let last = |phase, word| {
        format!("status [{phase} Accepted=True/Accepted Launched=False/{word}], tell {word}")
    };
    assert_eq!(after(Always, 0, 3), restart("SwitchedOff"));
    assert_eq!(after(Always, 64, 3), restart("Refused"));
    assert_eq!(after(OnFailure, 1, 3), restart("Crashed"));
    assert_eq!(after(OnFailure, 0, 3), last("Succeeded", "SwitchedOff"));
    assert_eq!(after(Never, 0, 300), last("Succeeded", "SwitchedOff"));
    assert_eq!(after(Never, 137, 300), last("Failed", "Killed"));
    assert_eq!(
        after(Always, 70, 11),
        "status [Restarting Accepted=True/Accepted Launched=False/NotStarted], delete, tell NotStarted"
    );
}

#[test]
fn a_changed_spec_does_not_wait() {
    let told = decided(|vm| {
        vm.generation = 4;
        vm.pod = Some(pod(end(64, 1)));
    });
    assert!(told.contains(", delete, "), "{told}");
}

#[test]
fn a_running_guest_is_told_of_a_changed_spec() {
    let mut seen = vm();
    seen.pod = Some(running());
    settle(&mut seen);
    seen.generation += 1;
    assert!(words(&decide(&seen)).contains("tell pod of 4"));
    // Not of one that cannot be followed.
    let mut unbound = seen.clone();
    unbound.claims = vec![claim("data", ClaimState::NotBound("Pending".to_owned()))];
    assert!(!words(&decide(&unbound)).contains("tell pod"));
    let mut refused = seen.clone();
    refused.refusal = Some("no".to_owned());
    assert!(!words(&decide(&refused)).contains("tell pod"));
    // Once it was told, that is all.
    seen.pod = Some(PodSeen {
        wanted: seen.generation,
        ..running()
    });
    settle(&mut seen);
    assert_eq!(words(&decide(&seen)), "");
}

#[test]
fn what_the_kubelet_starts_again_is_told_once_and_left_alone() {
    let Stage::Ended(crash) = end(1, 2) else {
        unreachable!()
    };
    let mut seen = vm();
    seen.pod = Some(PodSeen {
        restarts: 1,
        ..pod(Stage::Looping(crash))
    });
    // The agent has said before that it runs, and then that it does not.
    seen.status.phase = Some("Failed".to_owned());
    assert_eq!(
        words(&decide(&seen)),
        "status [Restarting Accepted=True/Accepted Launched=False/Crashed], tell Crashed"
    );
    settle(&mut seen);
    assert_eq!(seen.status.restarts, 1);
    assert_eq!(words(&decide(&seen)), "");
    // The kubelet's word comes later than the agent's.
    seen.status.phase = Some("Running".to_owned());
    assert_eq!(words(&decide(&seen)), "");
    seen.generation += 1;
    assert!(words(&decide(&seen)).contains("delete"));
}

#[test]
fn a_clock_that_is_ahead_makes_nobody_wait_longer() {
    let told = decided(|vm| vm.pod = Some(pod(end(1, -3600))));
    assert!(told.ends_with("again in 10s"), "{told}");
}

#[test]
fn restarts_are_counted_once() {
    let mut seen = vm();
    seen.status.restarts = 4;
    seen.pod = Some(PodSeen {
        restarts: 4,
        ..pod(end(1, 1))
    });
    settle(&mut seen);
    assert_eq!(seen.status.restarts, 5);
    seen.status.phase = Some("Running".to_owned());
    settle(&mut seen);
    assert_eq!(seen.status.restarts, 5, "the agent has spoken late");
    seen.pod = None;
    let told = words(&decide(&seen));
    assert!(told.contains("create (restart 5)"), "{told}");
}

#[test]
fn what_a_launcher_waits_for_is_told_once() {
    let mut seen = vm();
    let obstacle = |message: &str| {
        let (reason, message) = ("Unschedulable".to_owned(), message.to_owned());
        Some(pod(Stage::Starting(Some(Obstacle { reason, message }))))
    };
    seen.pod = obstacle("0/1 nodes");
    assert_eq!(
        words(&decide(&seen)),
        "status [Pending Accepted=True/Accepted Launched=False/Unschedulable], tell Unschedulable"
    );
    settle(&mut seen);
    seen.pod = obstacle("0/2 nodes");
    assert_eq!(
        words(&decide(&seen)),
        "status [Pending Accepted=True/Accepted Launched=False/Unschedulable]"
    );
    settle(&mut seen);
    seen.pod = Some(pod(Stage::Running));
    assert_eq!(
        words(&decide(&seen)),
        "status [Pending Accepted=True/Accepted Launched=True/Running]"
    );
}

#[test]
fn the_agents_phase_is_not_overwritten_by_a_late_look() {
    let mut seen = vm();
    seen.status.phase = Some("Running".to_owned());
    seen.pod = Some(pod(Stage::Starting(None)));
    assert_eq!(words(&decide(&seen)), "");
    seen.pod = Some(pod(Stage::Running));
    assert_eq!(words(&decide(&seen)), "");
}

#[test]
fn a_pod_that_the_cluster_does_not_take_is_told_and_tried_again() {
    let told = decided(|vm| vm.rebuff = Some("exceeded quota".to_owned()));
    assert_eq!(
        told,
        "status [Pending Accepted=True/Accepted Launched=False/PodRefused], create, tell Launching"
    );
}

#[test]
fn times_change_when_a_condition_turns_and_not_before() {
    let mut seen = vm();
    seen.refusal = Some("first".to_owned());
    settle(&mut seen);
    let since = |seen: &Seen| seen.status.conditions[0].last_transition_time.0;
    seen.now += SignedDuration::from_secs(60);
    seen.refusal = Some("second".to_owned());
    seen.generation += 1;
    settle(&mut seen);
    assert_eq!(since(&seen), now());
    assert_eq!(seen.status.conditions[0].message, "second");
    assert_eq!(seen.status.conditions[0].observed_generation, Some(4));
    seen.refusal = None;
    settle(&mut seen);
    assert_eq!(since(&seen), now() + SignedDuration::from_secs(60));
}
