//! Which nodes have an agent, and what may be let go of where there is none.
//!
//! Only an agent starts guests, so on a node that has none nothing is to be freed. But an
//! agent that is being replaced is there, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};

use disklet_core::launch::pod::NODE_LABEL;

/// By which the pods of agents are found in their namespace.
const AGENTS: &str = "disklet.io/component=agent";
/// How long no agent has to be seen. An old one's pod is there until it has ended, and a new
/// one's as soon as it is made, which takes a DaemonSet a moment.
const AWAY_FOR: Duration = Duration::from_secs(20);

/// The nodes that have an agent, or are about to.
#[derive(Debug, Default)]
pub struct Agents(BTreeSet<String>);

impl Agents {
    /// Those of the installation in this namespace, in whatever state they are.
    pub async fn list(client: &Client, namespace: &str) -> Result<Self, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let pods = pods.list(&ListParams::default().labels(AGENTS)).await?;
        Ok(Self::of(&pods.items))
    }

    fn of(pods: &[Pod]) -> Self {
        Self(pods.iter().flat_map(nodes_of).collect())
    }

    /// Whether a node has one, or has the label that every agent puts on its node, and that
    /// stays there.
    #[must_use]
    pub fn are_on(&self, node: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        let label = labels.and_then(|labels| labels.get(NODE_LABEL.0));
        label.is_some_and(|value| value == NODE_LABEL.1) || self.0.contains(node)
    }
}

/// Where an agent's pod is, or where its DaemonSet wants it to be.
fn nodes_of(pod: &Pod) -> BTreeSet<String> {
    let Some(spec) = &pod.spec else {
        return BTreeSet::new();
    };
    let affinity = spec.affinity.as_ref();
    let affinity = affinity.and_then(|it| it.node_affinity.as_ref());
    let required = affinity
        .and_then(|it| {
            it.required_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .map(|it| it.node_selector_terms.as_slice());
    let terms = required.unwrap_or_default().iter();
    let fields = terms.flat_map(|term| term.match_fields.iter().flatten());
    let wanted = fields
        .filter(|field| field.key == "metadata.name")
        .flat_map(|field| field.values.iter().flatten());
    wanted.chain(&spec.node_name).cloned().collect()
}

/// Whether the kubelet says that nothing of a pod runs, or has never said that anything did.
/// Of each container it is given whether it waits or has ended.
pub fn nothing_runs(phase: Option<&str>, at_rest: impl IntoIterator<Item = bool>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed")) || at_rest.into_iter().all(|it| it)
}

/// Since when pods, by UID, have had no agent.
#[derive(Debug, Default)]
pub struct Absences(BTreeMap<String, Instant>);

impl Absences {
    /// Those of the pods without an agent that have had none for long enough. Who had one in
    /// between begins anew.
    pub fn lasting(&mut self, without: BTreeSet<String>, now: Instant) -> BTreeSet<String> {
        self.0.retain(|uid, _| without.contains(uid));
        for uid in without {
            self.0.entry(uid).or_insert(now);
        }
        let lasting = self.0.iter().filter(|(_, since)| now >= **since + AWAY_FOR);
        lasting.map(|(uid, _)| uid.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_agent_that_is_being_replaced_is_there() {
        let pods = json!([
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"containers": [], "nodeName": "old"}},
            {"spec": {"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["new"]}]}],
            }}}}},
            {"spec": {"containers": []}},
        ]);
        let pods: Vec<Pod> = serde_json::from_value(pods).unwrap();
        let agents = Agents::of(&pods);
        let labels = |value: &str| BTreeMap::from([(NODE_LABEL.0.to_owned(), value.to_owned())]);
        assert!(agents.are_on("old", None));
        assert!(agents.are_on("new", None));
        assert!(agents.are_on("other", Some(&labels("virtlet"))));
        assert!(!agents.are_on("other", Some(&labels("another"))));
        assert!(!agents.are_on("other", None));
    }

    #[test]
    fn what_may_run_runs() {
        assert!(nothing_runs(None, []));
        assert!(nothing_runs(Some("Pending"), [true]));
        assert!(nothing_runs(Some("Running"), [true, true]));
        assert!(nothing_runs(Some("Failed"), [false]));
        assert!(!nothing_runs(Some("Running"), [true, false]));
    }

    #[test]
    fn an_agent_has_to_be_away_for_long() {
        let set = |uids: &[&str]| -> BTreeSet<String> {
            uids.iter().map(|uid| (*uid).to_owned()).collect()
        };
        let (mut absences, begun) = (Absences::default(), Instant::now());
        let mut after =
            |seconds, uids| absences.lasting(set(uids), begun + Duration::from_secs(seconds));
        assert_eq!(after(0, &["a", "b"]), set(&[]));
        assert_eq!(after(19, &["a"]), set(&[]));
        assert_eq!(after(20, &["a", "b"]), set(&["a"]));
        assert_eq!(after(39, &["a", "b"]), set(&["a"]));
        assert_eq!(after(40, &["a", "b"]), set(&["a", "b"]));
    }
}
