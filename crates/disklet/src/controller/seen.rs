//! What the controller sees of one VM when it decides: no client, no clock.

use disklet::cluster::names;
use disklet_core::manifest::RestartPolicy;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::objects::{
    ContainerState, ContainerStatus, LauncherPod, Terminated, Vm, VmStatus, is_going, is_held,
};

/// A VM and all that it depends on, at one moment.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) now: Timestamp,
    pub(super) name: String,
    pub(super) generation: i64,
    pub(super) is_going: bool,
    /// Our finalizer is on it.
    pub(super) is_held: bool,
    pub(super) running: bool,
    pub(super) policy: RestartPolicy,
    /// Why the reader of manifests refuses it.
    pub(super) refusal: Option<String>,
    pub(super) status: VmStatus,
    pub(super) pod: Option<PodSeen>,
    pub(super) claims: Vec<ClaimSeen>,
    /// Claims that were bound when the pod was there already, to volumes that it
    /// was not made for: the kubelet opens what QEMU shall, or does not what it
    /// should.
    pub(super) misplaced: Vec<String>,
    /// Why the API server did not take the VM's pod when it was last tried.
    pub(super) rebuff: Option<String>,
    /// How long a VM that has ended waits before it is started again.
    pub(super) patience: SignedDuration,
}

/// The pod of the VM's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodSeen {
    pub(super) uid: String,
    pub(super) is_ours: bool,
    pub(super) is_going: bool,
    /// The agent's finalizer is on it.
    pub(super) is_held: bool,
    /// No agent will ever take its finalizer away: it is on no node, or on one
    /// that is gone.
    pub(super) is_forsaken: bool,
    /// The generation of the VM that it was made of.
    pub(super) generation: i64,
    /// The generation that its agent knows of.
    pub(super) wanted: i64,
    /// How often the VM was started again, by now.
    pub(super) restarts: u32,
    pub(super) stage: Stage,
}

/// How far a launcher is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// It does not run yet, perhaps for a reason that people should know.
    Starting(Option<Obstacle>),
    Running,
    /// It has ended, and the kubelet starts it again.
    Looping(End),
    /// It has ended, and the kubelet has nothing more to do with it.
    Ended(End),
}

/// Why a launcher does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) reason: String,
    pub(super) message: String,
}

/// How a launcher has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// The exit code; there is none if the pod was evicted before it ran.
    pub(super) code: Option<i32>,
    pub(super) why: String,
    pub(super) at: Option<Timestamp>,
    /// How long it ran.
    pub(super) ran: SignedDuration,
}

/// A claim that one of the VM's disks names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimSeen {
    pub(super) name: String,
    pub(super) state: ClaimState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClaimState {
    Missing,
    /// Somebody has deleted it.
    Going,
    /// Its phase, such as Pending or Lost.
    NotBound(String),
    /// No pod can be made with it, for this reason.
    Unready(String),
    /// Its class waits for the pod that uses it, so the launcher carries it.
    Awaits,
    /// Bound, but we have not seen its volume yet.
    VolumeUnseen,
    /// The kubelet mounts or maps it.
    Kubelet,
    /// QEMU opens it; whether our finalizer is on it.
    Direct {
        is_held: bool,
    },
}

impl ClaimState {
    /// Whether a launcher can be made with it.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self, Self::Awaits | Self::Kubelet | Self::Direct { .. })
    }
}

impl PodSeen {
    pub(super) fn of(pod: &LauncherPod, vm: &Vm, is_node_lost: bool) -> Self {
        let number = |key| pod.annotation(key).and_then(|text| text.parse().ok());
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            is_ours: pod.is_of(vm),
            is_going: is_going(pod),
            is_held: is_held(pod, names::POD_FINALIZER),
            is_forsaken: pod.spec.node_name.is_none() || is_node_lost,
            generation: number(names::GENERATION).unwrap_or_default(),
            wanted: number(names::WANTED)
                .or_else(|| number(names::GENERATION))
                .unwrap_or_default(),
            restarts: number(names::RESTARTS)
                .and_then(|restarts| u32::try_from(restarts).ok())
                .unwrap_or_default()
                .saturating_add(pod.container().map_or(0, |it| it.restart_count)),
            stage: Stage::of(pod),
        }
    }
}

impl Stage {
    fn of(pod: &LauncherPod) -> Self {
        match pod.status.phase.as_deref() {
            Some("Succeeded" | "Failed") => Self::Ended(End::of(pod)),
            Some("Running") => match pod.container() {
                Some(ContainerStatus {
                    state:
                        ContainerState {
                            waiting: Some(_), ..
                        },
                    last_state:
                        ContainerState {
                            terminated: Some(ended),
                            ..
                        },
                    ..
                }) => Self::Looping(End::of_container(pod, ended)),
                _ => Self::Running,
            },
            _ => Self::Starting(Obstacle::of(pod)),
        }
    }
}

/// What a container waits for in the ordinary course of things.
const ORDINARY: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

impl Obstacle {
    fn of(pod: &LauncherPod) -> Option<Self> {
        let scheduling = pod.status.conditions.iter().find(|condition| {
            condition.kind == "PodScheduled"
                && condition.status == "False"
                && !condition.reason.is_empty()
        });
        if let Some(condition) = scheduling {
            return Some(Self {
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            });
        }
        let waiting = pod.container()?.state.waiting.as_ref();
        let waiting = waiting.filter(|waiting| !ORDINARY.contains(&waiting.reason.as_str()))?;
        Some(Self {
            reason: waiting.reason.clone(),
            message: waiting.message.clone(),
        })
    }
}

/// The exit code of a launcher whose VM could not be started.
const NOT_STARTED: i32 = 70;

impl End {
    fn of(pod: &LauncherPod) -> Self {
        let container = pod.container();
        match container.and_then(|container| container.state.terminated.as_ref()) {
            Some(ended) => Self::of_container(pod, ended),
            None => Self::without_container(pod),
        }
    }

    fn of_container(pod: &LauncherPod, ended: &Terminated) -> Self {
        // A kubelet that is killed when it has made a container, and not started
        // it, says later that the container has ended well.
        if ended.started_at.is_none() && ended.exit_code == 0 {
            return Self {
                code: Some(NOT_STARTED),
                why: "its node has lost the launcher before it ran".to_owned(),
                at: None,
                ran: SignedDuration::ZERO,
            };
        }
        Self {
            code: Some(ended.exit_code),
            why: reason_of(pod, ended),
            at: ended.finished_at.as_ref().map(|time| time.0),
            ran: match (&ended.started_at, &ended.finished_at) {
                (Some(from), Some(to)) => to.0.duration_since(from.0),
                _ => SignedDuration::ZERO,
            },
        }
    }

    /// It was evicted, or its node was drained or lost, and nobody has said how
    /// its container ended.
    fn without_container(pod: &LauncherPod) -> Self {
        let times = pod.status.conditions.iter();
        let times = times.filter_map(|condition| condition.last_transition_time.as_ref());
        let (reason, message) = (&pod.status.reason, &pod.status.message);
        let told: Vec<_> = [reason, message]
            .into_iter()
            .flatten()
            .filter(|text| !text.is_empty())
            .map(String::as_str)
            .collect();
        Self {
            code: None,
            why: told.join(": "),
            at: times.map(|time| time.0).max(),
            ran: SignedDuration::ZERO,
        }
    }

    /// The guest has switched itself off.
    pub(super) fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// In one word, as docs/formats/launcher.md has the exit codes.
    pub(super) fn word(&self) -> &'static str {
        match self.code {
            Some(0) => "SwitchedOff",
            Some(1) => "Crashed",
            Some(64) => "Refused",
            Some(NOT_STARTED) => "NotStarted",
            Some(137) => "Killed",
            Some(_) => "Ended",
            None => "Evicted",
        }
    }

    /// In a sentence.
    pub(super) fn sentence(&self) -> String {
        let what = match self.code {
            Some(0) => "the guest has switched itself off".to_owned(),
            Some(1) => "the VM has crashed".to_owned(),
            Some(64) => "the VM was refused".to_owned(),
            Some(NOT_STARTED) => "the VM could not be started".to_owned(),
            Some(137) => "the VM was ended by force".to_owned(),
            Some(code) => format!("the launcher has ended with exit code {code}"),
            None => "the launcher pod has failed".to_owned(),
        };
        match self.why.trim() {
            "" => what,
            why => format!("{what}: {why}"),
        }
    }
}

/// The launcher's own words, else the kubelet's.
fn reason_of(pod: &LauncherPod, ended: &Terminated) -> String {
    let word = match ended.reason.as_str() {
        "Error" | "Completed" => "",
        word => word,
    };
    let candidates = [
        ended.message.as_str(),
        pod.status.message.as_deref().unwrap_or_default(),
        word,
    ];
    let told = candidates.into_iter().find(|text| !text.trim().is_empty());
    told.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended(started_at: Option<&str>) -> End {
        let terminated = json!({"exitCode": 0, "startedAt": started_at, "finishedAt": started_at});
        let pod = json!({
            "metadata": {"name": "vm"},
            "spec": {},
            "status": {
                "phase": "Succeeded",
                "containerStatuses": [{"name": "vm", "restartCount": 0, "state": {"terminated": terminated}}],
            },
        });
        let pod: LauncherPod = serde_json::from_value(pod).unwrap();
        match Stage::of(&pod) {
            Stage::Ended(end) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_launcher_that_never_ran_has_not_ended_well() {
        assert!(ended(Some("2026-01-01T00:00:00Z")).is_success());
        let lost = ended(None);
        assert!(!lost.is_success());
        assert_eq!(lost.word(), "NotStarted");
        assert!(
            lost.sentence().contains("lost the launcher"),
            "{}",
            lost.sentence()
        );
    }
}
