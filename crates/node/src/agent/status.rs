//! What the agent writes into a VM's status.

use std::fs;
use std::os::unix::fs::MetadataExt;

use disklet_core::launch::vm_pod::RUNNING;
use disklet_core::plan::{Copy, Plan, PlannedDisk, Source};
use serde_json::{Value, json};

use super::machine::servers::SERVER_LOST;
use super::pod::LauncherPod;

/// How a VM is, in the words of its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Running,
    /// It starts when something is different.
    Waiting(&'static str, String),
    /// The guest stands still.
    Paused(&'static str, String),
    /// It has ended well.
    Ended(String),
    /// It could not be started, or crashed.
    Failed(&'static str, String),
}

impl Standing {
    fn phase(&self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Waiting(..) => "Pending",
            Self::Paused(..) => "Paused",
            Self::Ended(_) => "Stopped",
            Self::Failed(..) => "Failed",
        }
    }

    /// Whether QEMU has its disks open.
    pub(super) fn has_disks(&self) -> bool {
        matches!(self, Self::Running | Self::Paused(..))
    }

    /// `answers` is what became of the readiness probe, if there is one.
    fn ready(&self, answers: Option<bool>) -> (&'static str, &'static str, &str) {
        match self {
            Self::Running if answers == Some(false) => (
                "False",
                "NotAnswering",
                "the guest runs, but does not answer its readiness probe",
            ),
            Self::Running => ("True", "Running", "the guest runs"),
            Self::Waiting(reason, why) | Self::Paused(reason, why) => ("False", reason, why),
            Self::Ended(why) => ("False", "Ended", why),
            Self::Failed(reason, why) => ("False", reason, why),
        }
    }
}

/// The agent's part of the status.
pub(super) fn status(
    pod: &LauncherPod,
    node: &str,
    generation: Option<i64>,
    plan: Option<&Plan>,
    standing: &Standing,
    now: &str,
) -> Value {
    let (ready, reason, message) = standing.ready(pod.answers);
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": shortened(message),
            "observedGeneration": generation,
            "lastTransitionTime": now,
        })
    };
    let disks_ready = match standing {
        Standing::Running | Standing::Paused(..) => {
            condition("DisksReady", "True", "Prepared", "all disks are attached")
        }
        Standing::Waiting(reason, why) | Standing::Failed(reason, why) => {
            condition("DisksReady", "False", reason, why)
        }
        Standing::Ended(_) => condition("DisksReady", "False", "Released", "no disk is attached"),
    };
    let disks = plan.filter(|_| standing.has_disks());
    let disks = disks.map_or(&[][..], |plan| &plan.disks);
    without_nulls(json!({
        "phase": standing.phase(),
        "observedGeneration": generation,
        "node": node,
        "podIP": pod.address,
        "conditions": [condition("Ready", ready, reason, message), disks_ready],
        "disks": disks.iter().map(disk).collect::<Vec<_>>(),
    }))
}

/// What a guest waits for, or has errors from, though it runs.
pub(super) fn say_lost(status: &mut Value, why: &str) {
    let mut conditions = status["conditions"].as_array_mut().into_iter().flatten();
    let disks = conditions.find(|it| it["type"] == "DisksReady" && it["status"] == "True");
    if let Some(disks) = disks {
        let message = format!("{why}; until that is mended, the guest waits for it or has errors");
        disks["status"] = "False".into();
        disks["reason"] = SERVER_LOST.into();
        disks["message"] = shortened(&message).into();
    }
}

/// What of the object only the next start can do, once there is or was such.
pub(super) fn add_left(status: &mut Value, left: &[String], before: &Value, now: &str) {
    const KIND: &str = "RestartRequired";
    let mut said = before["conditions"].as_array().into_iter().flatten();
    if left.is_empty() && !said.any(|condition| condition["type"] == KIND) {
        return;
    }
    let message = format!("takes effect at the next start: {}", left.join("; "));
    let (is, reason, message) = match left.is_empty() {
        true => ("False", "UpToDate", "the guest has what its object says"),
        false => ("True", "SpecChanged", message.as_str()),
    };
    let mut condition = json!({
        "type": KIND,
        "status": is,
        "reason": reason,
        "message": shortened(message),
        "lastTransitionTime": now,
    });
    if let Some(generation) = status["observedGeneration"].as_i64() {
        condition["observedGeneration"] = generation.into();
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.push(condition);
    }
}

/// The agent's part of a VM pod's status: one condition. The kubelet has the rest.
pub(super) fn pod_status(standing: &Standing, now: &str) -> Value {
    // What a probe says is another condition.
    let (running, reason, message) = standing.ready(None);
    json!({
        "conditions": [{
            "type": RUNNING,
            "status": running,
            "reason": reason,
            "message": shortened(message),
            "lastTransitionTime": now,
        }],
    })
}

/// Whether a status says that a guest is there.
pub(super) fn says_alive(pod: &LauncherPod, status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let mut is_true = |of: &str| conditions.any(|it| it["type"] == of && it["status"] == "True");
    if pod.is_vm_pod() {
        return is_true(RUNNING);
    }
    matches!(status["phase"].as_str(), Some("Running" | "Paused")) || is_true("Ready")
}

/// What has to be written; nothing if the status says it already. A condition
/// that is as it was is so since then.
pub(super) fn news(mut wanted: Value, before: &Value) -> Option<Value> {
    let old = before["conditions"].as_array().map_or(&[][..], |all| all);
    for condition in wanted["conditions"].as_array_mut().into_iter().flatten() {
        let is_it = |other: &&Value| {
            (&other["type"], &other["status"]) == (&condition["type"], &condition["status"])
        };
        if let Some(since) = old.iter().find(is_it) {
            condition["lastTransitionTime"] = since["lastTransitionTime"].clone();
        }
    }
    let is_said = |(key, value): (&String, &Value)| match (key.as_str(), value) {
        ("conditions", Value::Array(all)) => all.iter().all(|condition| old.contains(condition)),
        _ => before[key.as_str()] == *value,
    };
    let all_is_said = wanted.as_object()?.iter().all(is_said);
    (!all_is_said).then_some(wanted)
}

/// What is not known is not said: the API server takes no nulls.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let known = fields.into_iter().filter(|(_, value)| !value.is_null());
            let known = known.map(|(key, value)| (key, without_nulls(value)));
            Value::Object(known.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// A condition's message has at most 32 KiB; nobody reads that much.
fn shortened(message: &str) -> &str {
    &message[..message.floor_char_boundary(4 << 10)]
}

fn disk(disk: &PlannedDisk) -> Value {
    json!({
        "name": disk.name,
        "target": disk.target.name(),
        "source": disk.origin_in_words(),
        "size": disk.size.known().map(|size| size.as_bytes().to_string()),
        "allocation": allocation(disk).map(|bytes| bytes.to_string()),
        "access": disk.access.name(),
    })
}

/// What it really takes on this node.
fn allocation(disk: &PlannedDisk) -> Option<u64> {
    let meta = fs::metadata(file_of(disk)?).ok()?;
    Some(meta.blocks() * 512)
}

/// The file on this node that a disk is written to, if it is one.
pub(super) fn file_of(disk: &PlannedDisk) -> Option<&str> {
    let file = match (&disk.copy, &disk.source) {
        (Copy::OnWrite(file) | Copy::OnRead(file) | Copy::Clone(file), _) => &file.path,
        (Copy::None, Source::NewVolume(volume)) => &volume.path,
        (Copy::None, Source::DiskImage { file, .. }) => &file.exposed,
        _ => return None,
    };
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ready: &str, at: &str) -> Value {
        json!({
            "phase": "Running",
            "disks": [{"name": "root"}],
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at}],
        })
    }

    #[test]
    fn what_a_status_says_is_not_written_again() {
        let mut before = said("True", "then");
        let others = json!({"type": "Accepted", "status": "True"});
        before["conditions"].as_array_mut().unwrap().push(others);
        before["restarts"] = json!(3);
        assert_eq!(news(said("True", "now"), &before), None);
        assert_eq!(
            news(said("True", "now"), &Value::Null),
            Some(said("True", "now"))
        );
    }

    #[test]
    fn what_waits_for_the_next_start_is_said_and_unsaid() {
        let with = |left: &[&str], before: &Value| {
            let left: Vec<_> = left.iter().map(|it| (*it).to_owned()).collect();
            let mut status = said("True", "now");
            add_left(&mut status, &left, before, "now");
            status
        };
        let none = said("True", "then");
        assert_eq!(with(&[], &none), said("True", "now"));
        let waits = with(&["memory", "disk a"], &none);
        let condition = &waits["conditions"][1];
        assert_eq!(condition["status"], "True");
        assert_eq!(
            condition["message"],
            "takes effect at the next start: memory; disk a"
        );
        assert!(news(waits.clone(), &none).is_some());
        let over = with(&[], &waits);
        assert_eq!(over["conditions"][1]["status"], "False");
        assert!(news(over.clone(), &waits).is_some());
        assert_eq!(news(with(&[], &over), &over), None);
    }

    #[test]
    fn disks_whose_server_is_lost_are_not_ready_though_the_guest_runs() {
        let mut status = said("True", "now");
        status["conditions"].as_array_mut().unwrap().push(
            json!({"type": "DisksReady", "status": "True", "reason": "Prepared", "message": "all"}),
        );
        say_lost(&mut status, "disk a: nbd server b:1 does not answer");
        let [ready, disks] = status["conditions"].as_array().unwrap().as_slice() else {
            panic!("{status}");
        };
        assert_eq!(ready["status"], "True");
        assert_eq!(
            (&disks["status"], &disks["reason"]),
            (&json!("False"), &json!("ServerLost"))
        );
        let message = disks["message"].as_str().unwrap();
        assert!(message.starts_with("disk a: nbd server b:1 does not answer; until"));
        // What has ended is released, whatever its server does.
        disks_released(&mut status);
        say_lost(&mut status, "x");
        assert_eq!(status["conditions"][1]["reason"], "Released");
    }

    fn disks_released(status: &mut Value) {
        let disks = &mut status["conditions"][1];
        (disks["status"], disks["reason"]) = (json!("False"), json!("Released"));
    }

    #[test]
    fn a_condition_has_the_time_of_its_change() {
        let changed = news(said("False", "now"), &said("True", "then"));
        assert_eq!(changed, Some(said("False", "now")));
        let mut wanted = said("True", "now");
        wanted["phase"] = json!("Paused");
        let mut expected = said("True", "then");
        expected["phase"] = json!("Paused");
        assert_eq!(news(wanted, &said("True", "then")), Some(expected));
    }
}
