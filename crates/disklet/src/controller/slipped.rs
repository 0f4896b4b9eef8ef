//! VM pods that slipped past the webhook: it did not answer when they were created, so no
//! launcher took their place. They must not run as something else.
//!
//! ```text
//!   pods that are no launchers --watch--> course (pure) --> event, and an image that nobody
//!                                              \                 can run, or deletion
//!   whose maker would make them past us again --> looked at later
//! ```

mod course;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::core::{Selector, SelectorExt};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use disklet_core::launch::pod::VM_LABEL;
use disklet_core::launch::vm_pod::{RUNTIME, RUNTIME_ANNOTATION, SAVED};

use self::course::{Course, NOTHING, course, is_older, is_stopped, is_unlaunched, maker};
use super::act::{self, Failure};
use super::context::Context;
use super::objects::{AnyPod, Key};
use crate::webhook::THE_CLUSTERS;

/// How often those are looked at of which something is still to be done.
const AGAIN: Duration = Duration::from_secs(10);
/// The webhook that launchers come from.
const VM_PODS: &str = "vm-pods.disklet.io";

/// What remains to be done about a pod.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// It is to be looked at again.
    Something,
}

/// Looks at every pod that is no launcher, until the watch ends.
pub(super) async fn forever(context: &Arc<Context>, configuration: &str) {
    let config = watcher::Config::default()
        .labels(&format!("!{VM_LABEL}"))
        .fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods = watch(Api::<AnyPod>::all(context.client.clone()), config).default_backoff();
    let mut pods = pin!(pods);
    let mut ticks = interval(AGAIN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let slips = Slips {
        context,
        configuration,
    };
    let mut later = BTreeMap::new();
    loop {
        tokio::select! {
            event = pods.next() => match event {
                Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => slips.see(&pod, &mut later).await,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    context.metrics.watch_failed("pods");
                    warn!(%error, "the watch of pods that are no launchers is begun again");
                }
                None => return,
            },
            _ = ticks.tick() => slips.look_again(&mut later).await,
        }
    }
}

/// Pods to be looked at again, by their UIDs.
type Later = BTreeMap<Key, String>;

struct Slips<'s> {
    context: &'s Context,
    configuration: &'s str,
}

impl Slips<'_> {
    async fn see(&self, pod: &AnyPod, later: &mut Later) {
        if !is_unlaunched(pod) {
            return;
        }
        // Of those that are stopped the kubelet keeps telling.
        let rest = match (is_stopped(pod), maker(pod)) {
            (true, None) => Rest::Nothing,
            (true, Some(_)) => Rest::Something,
            (false, _) => self.attend(pod).await,
        };
        if rest == Rest::Something {
            later.insert(Key::of(pod), pod.uid().unwrap_or_default());
        }
    }

    async fn look_again(&self, later: &mut Later) {
        for (key, uid) in std::mem::take(later) {
            let pods: Api<AnyPod> = Api::namespaced(self.context.client.clone(), &key.namespace);
            let rest = match act::in_time(pods.get_opt(&key.name)).await {
                Ok(Some(pod)) if pod.uid().as_ref() == Some(&uid) && is_unlaunched(&pod) => {
                    self.attend(&pod).await
                }
                Ok(_) => Rest::Nothing,
                Err(_) => Rest::Something,
            };
            if rest == Rest::Something {
                later.insert(key, uid);
            }
        }
    }

    async fn attend(&self, pod: &AnyPod) -> Rest {
        let attended = self.try_to_attend(pod).await;
        attended.unwrap_or_else(|failure| {
            warn!(pod = %Key::of(pod), %failure, "tried again later");
            Rest::Something
        })
    }

    async fn try_to_attend(&self, pod: &AnyPod) -> Result<Rest, Failure> {
        let Some(installed) = self.asked_since(pod).await? else {
            return Ok(Rest::Nothing);
        };
        if is_older(pod, installed) {
            return Ok(Rest::Nothing);
        }
        let is_made_anew = maker(pod).is_some();
        let answers = is_made_anew && self.answers(&Key::of(pod).namespace).await;
        let course = course(pod, answers);
        match &course {
            Course::Leave => {}
            Course::Stop => self.stop(pod).await?,
            Course::Replace(_) => {
                let uid = pod.uid().unwrap_or_default();
                act::delete_by_uid(self.context, &Key::of(pod), &uid).await?;
            }
        }
        if let Some(words) = course.in_words() {
            info!(pod = %Key::of(pod), ?course, "a VM pod has slipped past the webhook");
            self.tell(pod, &words).await;
        }
        Ok(match is_made_anew && !answers {
            true => Rest::Something,
            false => Rest::Nothing,
        })
    }

    /// Since when we are asked about pods of its namespace, if we are.
    async fn asked_since(&self, pod: &AnyPod) -> Result<Option<Timestamp>, Failure> {
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

    /// Whether a VM pod that was created now would have a launcher in its place.
    async fn answers(&self, namespace: &str) -> bool {
        let pod = json!({
            "metadata": {
                "generateName": "disklet-asks-",
                "annotations": {RUNTIME_ANNOTATION: RUNTIME},
            },
            "spec": {"containers": [{"name": "vm", "image": "virtlet.cloud/none"}]},
        });
        let Ok(pod) = serde_json::from_value(pod) else {
            return false;
        };
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace);
        let only_asking = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let made = act::in_time(pods.create(&only_asking, &pod)).await;
        made.is_ok_and(|pod| pod.annotations().contains_key(SAVED))
    }

    async fn stop(&self, pod: &AnyPod) -> Result<(), Failure> {
        let images = |containers: &[super::objects::SeenContainer]| {
            let containers = containers.iter();
            let images = containers.map(|it| json!({"name": it.name, "image": NOTHING}));
            json!(images.collect::<Vec<_>>())
        };
        let patch = json!({
            // Not of another pod that has come under the name since.
            "metadata": {"uid": pod.uid()},
            "spec": {
                "containers": images(&pod.spec.containers),
                "initContainers": images(&pod.spec.init_containers),
            },
        });
        act::patch_pod(self.context, &Key::of(pod), &patch).await
    }

    /// That an event could not be told is no reason to do anything again.
    async fn tell(&self, pod: &AnyPod, words: &str) {
        let about = pod.object_ref(&());
        let telling = self.context.teller.tell(about, true, "NotLaunched", words);
        if let Err(error) = act::in_time(telling).await {
            warn!(pod = %Key::of(pod), %error, "an event was not told");
        }
    }
}
