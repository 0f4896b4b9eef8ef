//! Removing what is ours, and nothing else.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cluster::{Cluster, failed, is_absent};
use super::ours::{ALL, BINDING, DEFINITION, Ours, is_agent, is_made_at_run_time};
use super::{Refusal, tell};
use crate::install::NODE_OF;

const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "disklet");
/// The label of the controllers' pods.
const CONTROLLERS: &str = "disklet.io/component=controller";
const INSTALLED: (&str, &str) = ("disklet.io/installed", "true");

impl Cluster {
    /// What belongs to no namespace serves one: that of another is not ours to remove.
    pub(super) async fn demand_our_namespace(&self) -> Result<(), Refusal> {
        let found = self.api(&BINDING).get_opt(BINDING.name).await;
        let found = found.map_err(|error| failed("the installation", &error))?;
        match found.and_then(|binding| elsewhere(&binding.data, &self.namespace)) {
            None => Ok(()),
            Some(there) => Err(Refusal::new(format!(
                "Disklet is installed in namespace {there}, not in {}",
                self.namespace
            ))
            .help(format!("disklet uninstall --namespace {there}"))),
        }
    }

    /// Removes it all; the definition of VM objects not if they are to stay.
    pub(super) async fn remove_all(
        &self,
        keeps_vms: bool,
        patience: Duration,
    ) -> Result<(), Refusal> {
        let definition = (!keeps_vms).then_some(DEFINITION);
        let mut removed = 0;
        for object in definition.iter().chain(&ALL) {
            if is_agent(object) {
                if !self.dry_run {
                    self.demand_that_none_came(patience).await?;
                }
                removed += self.remove_of_nodes().await?;
            }
            removed += usize::from(self.remove(object).await?);
        }
        removed += usize::from(self.remove_namespace().await?);
        if removed == 0 {
            tell(&format!(
                "nothing of Disklet is in namespace {}",
                self.namespace
            ));
        }
        Ok(())
    }

    /// A VM may have come to a node since it was looked. When no controller is there any
    /// more, none comes.
    async fn demand_that_none_came(&self, patience: Duration) -> Result<(), Refusal> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let controllers = ListParams::default().labels(CONTROLLERS);
        let begun = Instant::now();
        loop {
            let left = api.list(&controllers).await;
            let left = left.map_err(|error| failed("controllers cannot be listed", &error))?;
            if left.items.is_empty() {
                break;
            }
            if begun.elapsed() > patience {
                let why = "the controllers still end, so agents were not removed";
                return Err(Refusal::new(why).help("say this again when they have ended"));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        self.vms().await?.demand_none_on_nodes().map_err(|refusal| {
            refusal.help("they came meanwhile, and agents were not removed: apply once more what disklet install prints, delete these VMs, and say this again")
        })
    }

    /// Agents and libvirts of nodes that have one of their own, in the order of names:
    /// agents first. How many there were.
    async fn remove_of_nodes(&self) -> Result<usize, Refusal> {
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let (label, value) = PART_OF;
        let ours = ListParams::default().labels(&format!("{label}={value},{NODE_OF}"));
        let found = api.list(&ours).await;
        let found = found.map_err(|error| failed("DaemonSets cannot be listed", &error))?;
        let mut removed = 0;
        for set in found {
            let what = format!("DaemonSet {}/{}", self.namespace, set.name_any());
            removed += usize::from(self.delete(&what, &api, &set).await?);
        }
        Ok(removed)
    }

    /// Whether there was something to remove.
    pub(super) async fn remove(&self, object: &Ours) -> Result<bool, Refusal> {
        let what = match object.is_namespaced {
            true => format!("{} {}/{}", object.kind, self.namespace, object.name),
            false => format!("{} {}", object.kind, object.name),
        };
        let api = self.api(object);
        let found = match api.get_opt(object.name).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            Err(error) => return Err(failed(&what, &error)),
        };
        let (label, value) = PART_OF;
        let labelled = found
            .labels()
            .get(label)
            .is_some_and(|found| found == value);
        if !labelled && !is_made_at_run_time(object) {
            tell(&format!(
                "{what} stays: it has not the label {label}={value}"
            ));
            return Ok(false);
        }
        self.delete(&what, &api, &found).await
    }

    /// The namespace goes with all that is left in it, if it was made by us.
    async fn remove_namespace(&self) -> Result<bool, Refusal> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let what = format!("Namespace {}", self.namespace);
        let found = match api.get_opt(&self.namespace).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            Err(error) => return Err(failed(&what, &error)),
        };
        let (label, value) = INSTALLED;
        if found.labels().get(label).is_none_or(|found| found != value) {
            tell(&format!(
                "{what} stays: it has not the label {label}={value}"
            ));
            return Ok(false);
        }
        self.delete(&what, &api, &found).await
    }

    /// Deletes what was looked at, not another one that has come in its place.
    async fn delete<K>(&self, what: &str, api: &Api<K>, found: &K) -> Result<bool, Refusal>
    where
        K: ResourceExt + Clone + DeserializeOwned + Debug,
    {
        let params = DeleteParams {
            dry_run: self.dry_run,
            preconditions: Some(Preconditions {
                uid: found.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(&found.name_any(), &params).await {
            Ok(_) if self.dry_run => tell(&format!("{what} would be removed")),
            Ok(_) => tell(&format!("{what} is removed")),
            Err(error) if is_absent(&error) => return Ok(false),
            Err(error) => return Err(failed(what, &error)),
        }
        Ok(true)
    }

    /// Waits until the namespace is gone, so that a new installation finds none
    /// that is about to go.
    pub(super) async fn wait_for_end(&self, patience: Duration) -> Result<(), Refusal> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let begun = Instant::now();
        loop {
            let found = api.get_opt(&self.namespace).await;
            let found = found.map_err(|error| failed("the namespace", &error))?;
            let goes = found.is_some_and(|found| found.metadata.deletion_timestamp.is_some());
            if !goes {
                return Ok(());
            }
            if begun.elapsed() > patience {
                let why = format!("Namespace {} is still being removed", self.namespace);
                return Err(Refusal::new(why).help("its status says what it waits for"));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

/// Whose account a binding serves, if that is in another namespace.
fn elsewhere(binding: &Value, namespace: &str) -> Option<String> {
    let subjects = binding["subjects"].as_array()?.iter();
    let mut served = subjects.filter_map(|subject| subject["namespace"].as_str());
    let first = served.next()?;
    let is_ours = first == namespace || served.any(|other| other == namespace);
    (!is_ours).then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn another_namespaces_installation_is_known_by_its_account() {
        let account = |namespace: &str| json!({"kind": "ServiceAccount", "name": "disklet-controller", "namespace": namespace});
        let binding = json!({"subjects": [account("disklet")]});
        assert_eq!(elsewhere(&binding, "disklet"), None);
        assert_eq!(elsewhere(&binding, "wrong").as_deref(), Some("disklet"));
        let both = json!({"subjects": [account("disklet"), account("second")]});
        assert_eq!(elsewhere(&both, "second"), None);
        assert_eq!(elsewhere(&json!({}), "disklet"), None);
    }
}
