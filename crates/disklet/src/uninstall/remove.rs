//! Removing what is ours, and nothing else.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions};
use serde::de::DeserializeOwned;

use super::cluster::{Cluster, failed, is_absent};
use super::ours::{ALL, DEFINITION, Ours, is_made_at_run_time};
use super::{Refusal, tell};

const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "disklet");
const INSTALLED: (&str, &str) = ("disklet.io/installed", "true");

impl Cluster {
    /// Removes it all; the definition of VM objects not if they are to stay.
    pub(super) async fn remove_all(&self, keeps_vms: bool) -> Result<(), Refusal> {
        let definition = (!keeps_vms).then_some(DEFINITION);
        let mut removed = 0;
        for object in definition.iter().chain(&ALL) {
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

    /// Whether there was something to remove.
    async fn remove(&self, object: &Ours) -> Result<bool, Refusal> {
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
