//! Whether API servers ask us: about the pods of a namespace at all, and now.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use kube::core::{Selector, SelectorExt};
use serde_json::json;

use disklet_core::launch::vm_pod::{RUNTIME, RUNTIME_ANNOTATION};

use super::Slips;
use super::memory::Question;
use crate::controller::act::{self, Failure};
use crate::controller::objects::{AnyPod, Key};
use crate::webhook::{ASKED, ASKS, THE_CLUSTERS};

/// The webhook that launchers come from.
const VM_PODS: &str = "vm-pods.disklet.io";

impl Slips<'_> {
    /// Since when we are asked about pods of its namespace, if we are.
    pub(super) async fn asked_since(&self, pod: &AnyPod) -> Result<Option<Timestamp>, Failure> {
        // Whatever API servers ask about them, they are let through.
        if Key::of(pod).namespace == THE_CLUSTERS {
            return Ok(None);
        }
        let client = &self.context.client;
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let asked = act::in_time(configurations.get_opt(self.configuration)).await?;
        let Some(asked) = asked else {
            return Ok(None);
        };
        let webhooks = asked.webhooks.iter().flatten();
        let mut launching = webhooks.filter(|webhook| webhook.name == VM_PODS);
        let Some(webhook) = launching.next() else {
            return Ok(None);
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = act::in_time(namespaces.get_opt(&Key::of(pod).namespace)).await?;
        let selector = webhook.namespace_selector.clone().unwrap_or_default();
        // Who writes what nobody can read is not asked about anything.
        let is_asked = namespace.is_some_and(|namespace| {
            Selector::try_from(selector).is_ok_and(|selector| selector.matches(namespace.labels()))
        });
        let since = asked.metadata.creation_timestamp.map(|since| since.0);
        Ok(since.filter(|_| is_asked))
    }

    pub(super) async fn ask(&self, question: Question) -> (String, bool) {
        // They are never closed.
        let _place = self.questions.acquire().await;
        let answers = self.answers(&question).await;
        (question.namespace, answers)
    }

    /// Whether API servers ask us about a VM pod that is created now. Whatever else they
    /// find wrong with this one, such as that a quota is used up, comes later.
    async fn answers(&self, question: &Question) -> bool {
        let pod = json!({
            "metadata": {
                "generateName": "disklet-asks-",
                "annotations": {RUNTIME_ANNOTATION: RUNTIME, ASKS: "true"},
            },
            "spec": {
                "containers": [{"name": "vm", "image": "virtlet.cloud/none"}],
                "serviceAccountName": question.account,
            },
        });
        let Ok(pod) = serde_json::from_value(pod) else {
            return false;
        };
        let client = self.context.client.clone();
        let pods: Api<Pod> = Api::namespaced(client, &question.namespace);
        let only_asking = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match act::in_time(pods.create(&only_asking, &pod)).await {
            Err(Failure::Api(error)) => {
                matches!(*error, kube::Error::Api(status) if status.message.contains(ASKED))
            }
            // Nobody has asked us.
            Ok(_) | Err(_) => false,
        }
    }
}
