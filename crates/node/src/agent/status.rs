//! What the agent writes into a VM's status.

use std::fs;
use std::os::unix::fs::MetadataExt;

use disklet_core::plan::{Copy, Plan, PlannedDisk, Source};
use serde_json::{Value, json};

use super::pod::LauncherPod;

/// How a VM is, in the words of its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Running,
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
            Self::Paused(..) => "Paused",
            Self::Ended(_) => "Stopped",
            Self::Failed(..) => "Failed",
        }
    }

    fn ready(&self) -> (&'static str, &'static str, &str) {
        match self {
            Self::Running => ("True", "Running", "the guest runs"),
            Self::Paused(reason, why) => ("False", reason, why),
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
    let (ready, reason, message) = standing.ready();
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
    let disks_ready = match (plan, standing) {
        (Some(_), Standing::Running | Standing::Paused(..)) => {
            condition("DisksReady", "True", "Prepared", "all disks are attached")
        }
        (_, Standing::Failed(reason, why)) => condition("DisksReady", "False", reason, why),
        _ => condition("DisksReady", "False", "Released", "no disk is attached"),
    };
    let disks = plan.filter(|_| matches!(standing, Standing::Running | Standing::Paused(..)));
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
    let file = match (&disk.copy, &disk.source) {
        (Copy::OnWrite(file) | Copy::OnRead(file) | Copy::Clone(file), _) => &file.path,
        (Copy::None, Source::NewVolume(volume)) => &volume.path,
        (Copy::None, Source::DiskImage { file, .. }) => &file.exposed,
        _ => return None,
    };
    let meta = fs::metadata(file).ok()?;
    Some(meta.blocks() * 512)
}
