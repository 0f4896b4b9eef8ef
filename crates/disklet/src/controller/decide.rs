//! What is to be done for a VM: a pure function of what is seen.
//!
//! | the VM | its pod | then |
//! |---|---|---|
//! | is deleted | is there | the pod is deleted |
//! | is deleted | is gone | our finalizer goes |
//! | shall not run | is there | the pod is deleted |
//! | shall not run | is gone | phase Stopped |
//! | shall run | is gone | a pod is made, unless something is in the way |
//! | shall run | waits | what it waits for is told |
//! | shall run | was made before a claim was bound, and does not fit its volume | the pod is deleted and made anew |
//! | shall run | runs | the rest is the agent's, which is told of a changed spec |
//! | shall run | ends and is started again by the kubelet | it is told; a changed spec gets a new pod |
//! | shall run | has ended | it is deleted after a while and made anew, or stays, as the restart policy says |
//! | any | is not ours | it is left alone, and told |

use disklet_core::manifest::RestartPolicy;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::seen::{ClaimSeen, ClaimState, End, PodSeen, Seen, Stage};
use super::status::{ACCEPTED, LAUNCHED, OwnStatus, Phase, Wanted, WantedStatus};

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    AddFinalizer,
    RemoveFinalizer,
    /// Put our finalizer on this claim.
    HoldClaim(String),
    CreatePod {
        restarts: u32,
    },
    DeletePod {
        uid: String,
    },
    /// Take the agent's finalizer away in its stead.
    ReleasePod {
        uid: String,
    },
    /// Have the agent see that the VM has this generation by now.
    TellPod {
        generation: i64,
    },
    ApplyStatus(OwnStatus),
    Tell(Told),
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) is_warning: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What is to be done now, in this order, and when to look again if nothing
/// changes before.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Decision {
    pub(super) actions: Vec<Action>,
    pub(super) again: Option<SignedDuration>,
}

pub(super) fn decide(seen: &Seen) -> Decision {
    let mut decision = Decision::default();
    if seen.is_going {
        decision.actions.extend(farewell(seen));
        return decision;
    }
    decision.actions.extend(claims_to_hold(seen));
    let mut tell = None;
    let wanted = match &seen.pod {
        Some(pod) if !pod.is_ours => name_taken(seen),
        Some(pod) => with_pod(seen, pod, &mut decision, &mut tell),
        None => without_pod(seen, &mut decision, &mut tell),
    };
    tell = refused_anew(seen, &wanted).or(tell);
    let status = wanted.missing_in(&seen.status, seen.generation, seen.now);
    let has_status = status.is_some();
    decision.actions.extend(status.map(Action::ApplyStatus));
    let made = decision
        .actions
        .iter()
        .any(|action| matches!(action, Action::CreatePod { .. }));
    // What was told with a status that is already there was told then.
    if has_status || made {
        decision.actions.extend(tell.map(Action::Tell));
    }
    decision.actions.sort_by_key(Action::turn);
    decision
}

impl Action {
    /// What holds comes before what it holds, and a count before what is counted.
    fn turn(&self) -> u8 {
        match self {
            Self::HoldClaim(_) => 0,
            Self::AddFinalizer => 1,
            Self::ApplyStatus(_) => 2,
            Self::CreatePod { .. } => 3,
            Self::DeletePod { .. } | Self::ReleasePod { .. } | Self::TellPod { .. } => 4,
            Self::RemoveFinalizer => 5,
            Self::Tell(_) => 6,
        }
    }
}

/// The VM goes after its pod.
fn farewell(seen: &Seen) -> Option<Action> {
    match &seen.pod {
        Some(pod) if pod.is_ours => going(pod),
        _ => seen.is_held.then_some(Action::RemoveFinalizer),
    }
}

/// What makes a pod go: being deleted, and then that nobody holds it who cannot
/// let go.
fn going(pod: &PodSeen) -> Option<Action> {
    let uid = pod.uid.clone();
    match pod.is_going {
        false => Some(Action::DeletePod { uid }),
        true if pod.is_held && pod.is_forsaken => Some(Action::ReleasePod { uid }),
        true => None,
    }
}

fn claims_to_hold(seen: &Seen) -> impl Iterator<Item = Action> {
    let loose = |claim: &&ClaimSeen| claim.state == ClaimState::Direct { is_held: false };
    let names = seen.claims.iter().filter(loose);
    names.map(|claim| Action::HoldClaim(claim.name.clone()))
}

const CAN_BE: &str = "the VM can be launched";

/// As long as nothing speaks against it.
fn acceptable(seen: &Seen) -> Wanted {
    match &seen.refusal {
        Some(why) => Wanted::is_not("Refused", why),
        None => Wanted::is("Accepted", CAN_BE),
    }
}

fn unchanged(seen: &Seen) -> WantedStatus {
    WantedStatus {
        phase: None,
        accepted: acceptable(seen),
        launched: None,
        restarts: seen.status.restarts,
    }
}

fn name_taken(seen: &Seen) -> WantedStatus {
    let message = format!(
        "the launcher pod of a VM has its name, and there is another pod {:?}: delete that pod, or give the VM another name",
        seen.name
    );
    WantedStatus {
        phase: Some(match seen.running {
            true => Phase::Pending,
            false => Phase::Stopped,
        }),
        accepted: Wanted::is_not("NameTaken", message),
        ..unchanged(seen)
    }
}

fn without_pod(seen: &Seen, decision: &mut Decision, tell: &mut Option<Told>) -> WantedStatus {
    if !seen.running {
        if seen.status.phase.is_some() {
            *tell = Some(Told::normal("Stopped", "the VM is stopped"));
        }
        return WantedStatus {
            phase: Some(Phase::Stopped),
            launched: Some(Wanted::is_not("Stopped", "spec.running is false")),
            ..unchanged(seen)
        };
    }
    let pending = WantedStatus {
        phase: Some(match Phase::of(&seen.status) {
            Some(Phase::Restarting) => Phase::Restarting,
            _ => Phase::Pending,
        }),
        ..unchanged(seen)
    };
    if seen.refusal.is_some() {
        return pending;
    }
    if let Some(why) = not_bound(&seen.claims) {
        return WantedStatus {
            accepted: Wanted::is_not("ClaimNotBound", why),
            ..pending
        };
    }
    if seen.claims.iter().all(|claim| claim.state.is_usable()) {
        if !seen.is_held {
            decision.actions.push(Action::AddFinalizer);
        }
        let restarts = seen.status.restarts;
        decision.actions.push(Action::CreatePod { restarts });
        let message = format!("made the launcher pod {}", seen.name);
        *tell = Some(Told::normal("Launching", message));
    }
    WantedStatus {
        launched: seen.rebuff.as_ref().map(|why| {
            let message = format!("the cluster does not take the launcher pod: {why}");
            Wanted::is_not("PodRefused", message)
        }),
        ..pending
    }
}

/// Why the VM cannot be launched with these claims; each has its sentence.
fn not_bound(claims: &[ClaimSeen]) -> Option<String> {
    let sentences: Vec<_> = claims
        .iter()
        .filter_map(|ClaimSeen { name, state }| match state {
            ClaimState::Missing => Some(format!(
                "the claim {name} is missing: create it, or correct its name"
            )),
            ClaimState::Going => Some(format!(
                "the claim {name} is being deleted: name another one"
            )),
            ClaimState::Unready(why) => Some(format!("the claim {name} cannot be used: {why}")),
            ClaimState::NotBound(phase) if phase == "Lost" => Some(format!(
                "the claim {name} has lost its volume: see kubectl describe pvc {name}"
            )),
            ClaimState::NotBound(phase) => Some(format!(
                "the claim {name} is {phase}, not Bound: the VM is launched when it is, see kubectl describe pvc {name}"
            )),
            _ => None,
        })
        .collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

fn with_pod(
    seen: &Seen,
    pod: &PodSeen,
    decision: &mut Decision,
    tell: &mut Option<Told>,
) -> WantedStatus {
    let unchanged = WantedStatus {
        restarts: pod.restarts.max(seen.status.restarts),
        ..unchanged(seen)
    };
    if pod.is_going || !seen.running {
        decision.actions.extend(going(pod));
        return unchanged;
    }
    if !seen.misplaced.is_empty() && matches!(pod.stage, Stage::Starting(_) | Stage::Looping(_)) {
        return replaced(seen, pod, decision, tell);
    }
    match &pod.stage {
        Stage::Running => {
            decision.actions.extend(changed(seen, pod));
            WantedStatus {
                launched: Some(Wanted::is("Running", "the launcher runs")),
                ..unchanged
            }
        }
        Stage::Looping(end) => looping(seen, pod, end, decision, tell),
        Stage::Starting(None) => unchanged,
        Stage::Starting(Some(obstacle)) => {
            let wanted = Wanted::is_not(&obstacle.reason, &obstacle.message);
            let before = seen.status.condition(LAUNCHED);
            if before.is_none_or(|before| before.reason != wanted.reason) {
                *tell = Some(Told::warning(&wanted.reason, &wanted.message));
            }
            WantedStatus {
                phase: unless_alive(seen, Phase::Pending),
                launched: Some(wanted),
                ..unchanged
            }
        }
        Stage::Ended(end) => ended(seen, pod, end, decision, tell),
    }
}

/// The agent has a running guest follow a changed spec, once that can be followed.
fn changed(seen: &Seen, pod: &PodSeen) -> Option<Action> {
    let can_be = seen.refusal.is_none() && not_bound(&seen.claims).is_none();
    let generation = seen.generation;
    (can_be && pod.wanted != generation).then_some(Action::TellPod { generation })
}

/// A claim was bound to another kind of volume than its launcher was made for.
fn replaced(
    seen: &Seen,
    pod: &PodSeen,
    decision: &mut Decision,
    tell: &mut Option<Told>,
) -> WantedStatus {
    decision.actions.extend(going(pod));
    let message = format!(
        "the launcher pod is made anew: when it was made, it was not known who opens the volume of {}",
        seen.misplaced.join(", ")
    );
    let launched = Wanted::is_not("ClaimBound", &message);
    if is_news(seen, LAUNCHED, &launched) {
        *tell = Some(Told::normal("ClaimBound", message));
    }
    WantedStatus {
        phase: unless_alive(seen, Phase::Pending),
        launched: Some(launched),
        restarts: pod.restarts.max(seen.status.restarts),
        ..unchanged(seen)
    }
}

/// What the agent says of a launcher that we have not seen run is newer.
fn unless_alive(seen: &Seen, phase: Phase) -> Option<Phase> {
    match seen.status.phase {
        Some(_) => Phase::of(&seen.status).map(|_| phase),
        None => Some(phase),
    }
}

/// The kubelet starts the launcher again by itself, with the VM's volumes. Only
/// what a changed spec asks for needs another pod.
fn looping(
    seen: &Seen,
    pod: &PodSeen,
    end: &End,
    decision: &mut Decision,
    tell: &mut Option<Told>,
) -> WantedStatus {
    let sentence = format!("{}; it is started again", end.sentence());
    let launched = Wanted::is_not(end.word(), &sentence);
    if is_news(seen, LAUNCHED, &launched) {
        *tell = Some(Told::of_end(end, sentence));
    }
    if pod.generation != seen.generation && seen.refusal.is_none() {
        decision.actions.extend(going(pod));
    }
    WantedStatus {
        phase: unless_alive(seen, Phase::Restarting),
        launched: Some(launched),
        restarts: pod.restarts,
        ..unchanged(seen)
    }
}

fn ended(
    seen: &Seen,
    pod: &PodSeen,
    end: &End,
    decision: &mut Decision,
    tell: &mut Option<Told>,
) -> WantedStatus {
    let starts_again = match seen.policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => !end.is_success(),
        RestartPolicy::Never => false,
    };
    let (phase, restarts) = match starts_again {
        true => (Phase::Restarting, pod.restarts.saturating_add(1)),
        false if end.is_success() => (Phase::Succeeded, pod.restarts),
        false => (Phase::Failed, pod.restarts),
    };
    let sentence = end.sentence();
    let launched = Wanted::is_not(end.word(), &sentence);
    if is_news(seen, LAUNCHED, &launched) {
        *tell = Some(match starts_again {
            true => Told::of_end(end, format!("{sentence}; it is started again")),
            false => Told::of_end(end, sentence),
        });
    }
    if starts_again {
        match rest(seen, pod, end) {
            Some(rest) => decision.again = Some(rest),
            None => decision.actions.extend(going(pod)),
        }
    }
    WantedStatus {
        phase: Some(phase),
        launched: Some(launched),
        restarts,
        ..unchanged(seen)
    }
}

/// How long it still has to wait; a changed spec is tried at once.
fn rest(seen: &Seen, pod: &PodSeen, end: &End) -> Option<SignedDuration> {
    if pod.generation != seen.generation {
        return None;
    }
    let since: Timestamp = end.at?;
    let rest = seen.patience - seen.now.duration_since(since);
    // A clock that is ahead of ours makes nobody wait for longer.
    Some(rest.min(seen.patience)).filter(SignedDuration::is_positive)
}

/// Refusals are told once each.
fn refused_anew(seen: &Seen, wanted: &WantedStatus) -> Option<Told> {
    if wanted.accepted.holds {
        return None;
    }
    let Wanted {
        reason, message, ..
    } = &wanted.accepted;
    is_news(seen, ACCEPTED, &wanted.accepted).then(|| Told::warning(reason, message))
}

/// Whether the status says something else.
fn is_news(seen: &Seen, of: &str, wanted: &Wanted) -> bool {
    let before = seen.status.condition(of);
    before.is_none_or(|before| before.reason != wanted.reason || before.message != wanted.message)
}

impl Told {
    fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self {
            is_warning: false,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    fn warning(reason: &str, message: &str) -> Self {
        Self {
            is_warning: true,
            ..Self::normal(reason, message)
        }
    }

    fn of_end(end: &End, message: String) -> Self {
        Self {
            is_warning: !end.is_success(),
            ..Self::normal(end.word(), message)
        }
    }
}

#[cfg(test)]
mod lives;
#[cfg(test)]
mod tests;
