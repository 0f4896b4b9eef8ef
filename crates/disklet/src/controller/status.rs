//! The part of a VM's status that the controller writes.
//!
//! The agent writes the rest, and the phase of a VM whose launcher runs. Both
//! use server-side apply: what the controller leaves out of its part goes away
//! only if nobody else has written it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::objects::VmStatus;

/// Whether a VM can be launched at all.
pub(super) const ACCEPTED: &str = "Accepted";
/// Whether its launcher runs.
pub(super) const LAUNCHED: &str = "Launched";

/// The phases that the controller knows; all others are the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Phase {
    /// It shall run, and its launcher does not yet.
    Pending,
    /// It has ended, and is started again.
    Restarting,
    /// It shall not run.
    Stopped,
    /// It has switched itself off, and stays so.
    Succeeded,
    /// It has ended otherwise, and stays so.
    Failed,
}

impl Phase {
    pub(super) const ALL: [Self; 5] = [
        Self::Pending,
        Self::Restarting,
        Self::Stopped,
        Self::Succeeded,
        Self::Failed,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Restarting => "Restarting",
            Self::Stopped => "Stopped",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// The phase of a status, if it is one that the controller writes.
    pub(super) fn of(status: &VmStatus) -> Option<Self> {
        let phase = status.phase.as_deref()?;
        Self::ALL.into_iter().find(|known| known.name() == phase)
    }
}

/// One condition, as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) holds: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Wanted {
    pub(super) fn is(reason: &str, message: &str) -> Self {
        Self {
            holds: true,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    pub(super) fn is_not(reason: &str, message: impl Into<String>) -> Self {
        Self {
            holds: false,
            reason: word(reason),
            message: short(&message.into()),
        }
    }

    fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }

    fn says(&self, condition: &Condition) -> bool {
        condition.status == self.status()
            && condition.reason == self.reason
            && condition.message == self.message
    }

    fn condition(
        &self,
        of: &str,
        before: Option<&Condition>,
        generation: i64,
        now: Timestamp,
    ) -> Condition {
        let since = before.filter(|before| before.status == self.status());
        Condition {
            type_: of.to_owned(),
            status: self.status().to_owned(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            observed_generation: Some(generation),
            last_transition_time: since
                .map_or(Time(now), |since| since.last_transition_time.clone()),
        }
    }
}

/// More than this buries what matters.
const LONGEST_MESSAGE: usize = 2000;

fn short(message: &str) -> String {
    let mut out: String = message.chars().take(LONGEST_MESSAGE).collect();
    if message.chars().nth(LONGEST_MESSAGE).is_some() {
        out.push('…');
    }
    out
}

/// `metav1.Condition` wants a word that begins with a letter.
fn word(reason: &str) -> String {
    let word: String = reason
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .take(128)
        .collect();
    match word.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => word,
        false => "Unknown".to_owned(),
    }
}

/// What the controller wants a VM's status to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedStatus {
    /// Absent: it is the agent's now, or stays as it is.
    pub(super) phase: Option<Phase>,
    pub(super) accepted: Wanted,
    /// Absent: stays as it is.
    pub(super) launched: Option<Wanted>,
    pub(super) restarts: u32,
}

/// The part of the status as it is applied, always whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct OwnStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<Phase>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) restarts: u32,
    pub(super) conditions: Vec<Condition>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it by reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl WantedStatus {
    /// What has to be applied; nothing if the status says it already. That all is
    /// well is not worth a write: absent means the same.
    pub(super) fn missing_in(
        &self,
        status: &VmStatus,
        generation: i64,
        now: Timestamp,
    ) -> Option<OwnStatus> {
        let parts = [
            (ACCEPTED, Some(&self.accepted)),
            (LAUNCHED, self.launched.as_ref()),
        ];
        let phase_differs = match (self.phase, status.phase.as_deref()) {
            (None, _) | (Some(Phase::Pending), None) => false,
            (Some(wanted), is) => is != Some(wanted.name()),
        };
        let conditions_differ =
            parts
                .iter()
                .any(|(of, wanted)| match (wanted, status.condition(of)) {
                    (None, _) => false,
                    (Some(wanted), None) => !wanted.holds,
                    (Some(wanted), Some(is)) => {
                        !wanted.says(is) || is.observed_generation != Some(generation)
                    }
                });
        if !phase_differs && !conditions_differ && self.restarts == status.restarts {
            return None;
        }
        let conditions = parts.into_iter().filter_map(|(of, wanted)| {
            let before = status.condition(of);
            match wanted {
                Some(wanted) => Some(wanted.condition(of, before, generation, now)),
                None => before.cloned(),
            }
        });
        Some(OwnStatus {
            // What we wrote and leave out would vanish.
            phase: self.phase.or_else(|| Phase::of(status)),
            restarts: self.restarts,
            conditions: conditions.collect(),
        })
    }
}
