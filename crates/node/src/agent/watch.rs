//! The node's pods, as the API server tells of them.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::mpsc::Sender;

use disklet::cluster::health::Hold;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};

use super::News;
use super::pod::uid_of;
use crate::failure::{Failure, Result};

/// By the pod's own account, or by the usual file.
pub(super) async fn client() -> Result<kube::Client> {
    disklet::cluster::client::connect("disklet-agent")
        .await
        .map_err(|error| {
            Failure::new("there is no way to the API server")
                .because(error)
                .help("the agent runs in a pod, or with KUBECONFIG")
        })
}

/// Tells of every change, and after a lost connection of what there is then. All
/// pods are watched: of one whose label is taken away nobody would hear again.
/// Until they were listed once, the agent is held.
pub(super) async fn pods(client: kube::Client, node: String, news: Sender<News>, held: Hold) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let stream = watcher(Api::<Pod>::all(client), config).default_backoff();
    let mut stream = pin!(stream);
    let mut listed = HashSet::new();
    let mut held = Some(held);
    while let Some(event) = stream.next().await {
        let told = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                None
            }
            Ok(watcher::Event::InitApply(pod)) => {
                listed.extend(uid_of(&pod));
                Some(News::Pod(Box::new(pod)))
            }
            Ok(watcher::Event::InitDone) => {
                drop(held.take());
                Some(News::Listed(std::mem::take(&mut listed)))
            }
            Ok(watcher::Event::Apply(pod)) => Some(News::Pod(Box::new(pod))),
            Ok(watcher::Event::Delete(pod)) => uid_of(&pod).map(News::Gone),
            Err(error) => {
                tracing::warn!(%error, "the API server does not tell of pods");
                None
            }
        };
        if told.is_some_and(|told| news.send(told).is_err()) {
            return;
        }
    }
}
