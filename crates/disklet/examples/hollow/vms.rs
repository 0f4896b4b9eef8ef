//! The VM objects, as tenants make and delete them.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams,
};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;

use crate::Error;

/// How many requests are under way at once, as from several tenants.
const AT_ONCE: usize = 8;

/// Makes VMs; the seconds from the first request to the last VM's readiness.
pub(crate) async fn run(
    client: &Client,
    namespace: &str,
    count: usize,
    image: &str,
) -> Result<f64, Error> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let namespaces = Api::<Namespace>::all(client.clone());
    let object = serde_json::from_value(object)?;
    namespaces.create(&PostParams::default(), &object).await?;
    let vms = vms(client, namespace);
    let begin = Instant::now();
    let make = |number| {
        let vms = &vms;
        async move {
            let name = format!("vm-{number}");
            let vm = serde_json::from_value(vm(&name, image))?;
            vms.create(&PostParams::default(), &vm).await?;
            Ok::<_, Error>(())
        }
    };
    let made = stream::iter((0..count).map(make)).buffer_unordered(AT_ONCE);
    let made = made.try_collect::<Vec<_>>();
    let (made, ready) = tokio::join!(made, all_ready(&vms, count));
    made?;
    ready?;
    Ok(begin.elapsed().as_secs_f64())
}

async fn all_ready(vms: &Api<DynamicObject>, count: usize) -> Result<(), Error> {
    let stream = watcher(vms.clone(), watcher::Config::default()).default_backoff();
    let mut stream = pin!(stream.applied_objects());
    let mut ready = HashSet::new();
    while ready.len() < count {
        let Some(vm) = stream.next().await else {
            return Err("the watch has ended".into());
        };
        let Ok(vm) = vm else { continue };
        let name = vm.metadata.name.clone().unwrap_or_default();
        match is_ready(&vm) {
            true => ready.insert(name),
            false => ready.remove(&name),
        };
    }
    Ok(())
}

fn is_ready(vm: &DynamicObject) -> bool {
    let conditions = vm.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Deletes all; the seconds until the last is gone.
pub(crate) async fn delete(client: &Client, namespace: &str) -> Result<f64, Error> {
    let vms = vms(client, namespace);
    let left = vms.list(&ListParams::default()).await?;
    let names = left.items.iter().filter_map(|vm| vm.metadata.name.clone());
    let mut left: HashSet<_> = names.collect();
    let begin = Instant::now();
    let stream = watcher(vms.clone(), watcher::Config::default()).default_backoff();
    let gone = async {
        let mut stream = pin!(stream);
        let mut listed = HashSet::new();
        while !left.is_empty() {
            match stream.next().await {
                Some(Ok(Event::InitApply(vm))) => listed.extend(vm.metadata.name),
                Some(Ok(Event::InitDone)) => left.retain(|name| listed.contains(name)),
                Some(Ok(Event::Delete(vm))) => {
                    let _ = left.remove(&vm.metadata.name.unwrap_or_default());
                }
                Some(_) => {}
                None => return Err::<_, Error>("the watch has ended".into()),
            }
        }
        Ok(())
    };
    let how = DeleteParams::default();
    let everything = ListParams::default();
    let (gone, deleted) = tokio::join!(gone, vms.delete_collection(&how, &everything));
    deleted?;
    gone?;
    Ok(begin.elapsed().as_secs_f64())
}

fn vms(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("disklet.io", "v1alpha1", "VM");
    let kind = ApiResource::from_gvk_with_plural(&kind, "vms");
    Api::namespaced_with(client.clone(), namespace, &kind)
}

fn vm(name: &str, image: &str) -> serde_json::Value {
    json!({
        "apiVersion": "disklet.io/v1alpha1", "kind": "VM", "metadata": {"name": name},
        "spec": {"domain": {"memory": "64Mi", "devices": {"disks": [
            {"source": {"image": {"name": image}}},
        ]}}},
    })
}
