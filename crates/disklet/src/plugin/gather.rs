//! Has what plans look for come from the cluster, until nothing new is asked for.

use std::collections::{BTreeMap, BTreeSet};

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostics, Origin};
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::resolve::{Reference, Unseen, resolve_seeing};
use serde_json::Value;

use super::cluster::{Answer, Cluster};
use crate::refusal::Refusal;

/// What is known, and what is not.
pub(super) struct Known<'k> {
    pub(super) cluster: &'k Cluster,
    pub(super) objects: Objects,
    pub(super) config: Config,
    pub(super) facts: Facts,
    /// What reading has found.
    pub(super) diags: Diagnostics,
    /// The nodes' configuration could not be had.
    pub(super) without_config: bool,
    /// What may not be read, or is not yet there to be read, and why.
    pub(super) hidden: BTreeMap<Reference, String>,
    /// What will be there, and is judged then.
    pub(super) coming: BTreeSet<Reference>,
}

impl Known<'_> {
    /// Reads an object of the cluster.
    pub(super) fn read(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let input = Input {
            name: Origin::object(format!("{kind} {name}")),
            text: object.to_string(),
        };
        let namespace = &self.cluster.namespace;
        self.objects.read(&input, namespace, &mut self.diags);
    }

    pub(super) fn unseen(&self) -> Unseen {
        let mut unseen = Unseen::objects(self.hidden.keys().cloned().collect());
        unseen.configuration = self.without_config;
        unseen
    }

    /// Fetches until nothing new is asked for.
    pub(super) async fn gather(&mut self) -> Result<(), Refusal> {
        let mut asked = BTreeSet::new();
        loop {
            let mut trial = Diagnostics::default();
            let unseen = self.unseen();
            let resolved = resolve_seeing(
                &self.objects,
                &self.config,
                &self.facts,
                &unseen,
                &mut trial,
            );
            let new: Vec<_> = resolved.missing.difference(&asked).cloned().collect();
            if new.is_empty() {
                return Ok(());
            }
            for wanted in new {
                self.fetch(&wanted).await?;
                asked.insert(wanted);
            }
        }
    }

    async fn fetch(&mut self, wanted: &Reference) -> Result<(), Refusal> {
        match self.cluster.get(wanted).await? {
            Answer::Found(object) if self.waits_for_launch(wanted, &object).await? => {
                let why = "bound when the VM is launched".to_owned();
                self.hidden.insert(wanted.clone(), why);
            }
            Answer::Found(object) => self.read(&object),
            Answer::Absent if self.coming.contains(wanted) => {
                let why = "it is not in the cluster yet".to_owned();
                self.hidden.insert(wanted.clone(), why);
            }
            Answer::Absent => {}
            Answer::Forbidden(_) => {
                let why = "you may not read it".to_owned();
                self.hidden.insert(wanted.clone(), why);
            }
        }
        Ok(())
    }

    /// A claim that the launcher's pod has bound is no problem before.
    async fn waits_for_launch(&self, wanted: &Reference, claim: &Value) -> Result<bool, Refusal> {
        let is_pending = claim["status"]["phase"] == "Pending";
        let class = claim["spec"]["storageClassName"].as_str();
        match class.filter(|_| is_pending && matches!(wanted, Reference::Claim(_))) {
            Some(class) if !class.is_empty() => self.cluster.waits_for_pod(class).await,
            _ => Ok(false),
        }
    }
}
