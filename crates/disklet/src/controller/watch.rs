//! Caches of what the cluster has, and whom their changes concern.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedSender;
use kube::api::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::index::{Index, User};
use super::metrics::Metrics;
use super::objects::{
    ClaimObject, ClassObject, Key, LauncherPod, NodeObject, Vm, VolumeObject, is_going,
};
use super::read;

/// All caches.
#[derive(Debug, Clone)]
pub(super) struct Caches {
    pub(super) vms: Store<Vm>,
    pub(super) pods: Store<LauncherPod>,
    pub(super) claims: Store<ClaimObject>,
    pub(super) volumes: Store<VolumeObject>,
    pub(super) classes: Store<ClassObject>,
    pub(super) nodes: Store<NodeObject>,
    pub(super) index: Arc<Index>,
}

/// Where it is told that something should be looked at again.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    pub(super) vms: UnboundedSender<ObjectRef<Vm>>,
    pub(super) claims: UnboundedSender<ObjectRef<ClaimObject>>,
}

impl Queues {
    pub(super) fn vm(&self, key: &Key) {
        // That nobody listens means that the controller ends.
        let vm = ObjectRef::new(&key.name).within(&key.namespace);
        let _ = self.vms.unbounded_send(vm);
    }

    fn claim(&self, key: &Key) {
        let claim = ObjectRef::new(&key.name).within(&key.namespace);
        let _ = self.claims.unbounded_send(claim);
    }
}

/// By which launcher pods are found among all pods.
const LAUNCHERS: &str = disklet_core::launch::pod::VM_LABEL;

/// An object of a cache.
pub(super) fn get<K>(store: &Store<K>, key: &Key) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let wanted = ObjectRef::new(&key.name);
    store.get(&match key.namespace.as_str() {
        "" => wanted,
        namespace => wanted.within(namespace),
    })
}

/// Watches everything until the controller ends. The caches fill by and by.
pub(super) fn begin(client: &Client, queues: &Queues, metrics: &Arc<Metrics>) -> Caches {
    let vms = Writer::<Vm>::new(());
    let pods = Writer::<LauncherPod>::new(());
    let claims = Writer::<ClaimObject>::new(());
    let volumes = Writer::<VolumeObject>::new(());
    let classes = Writer::<ClassObject>::new(());
    let nodes = Writer::<NodeObject>::new(());
    let caches = Caches {
        vms: vms.as_reader(),
        pods: pods.as_reader(),
        claims: claims.as_reader(),
        volumes: volumes.as_reader(),
        classes: classes.as_reader(),
        nodes: nodes.as_reader(),
        index: Arc::default(),
    };
    let all = watcher::Config::default();
    let launchers = all.clone().labels(LAUNCHERS);
    let follower = Follower {
        client,
        caches: &caches,
        queues,
        metrics,
    };
    follower.follow(vms, all.clone(), vm_changed);
    follower.follow(pods, launchers, pod_changed);
    follower.follow(claims, all.clone(), claim_changed);
    follower.follow(volumes, all.clone(), volume_changed);
    follower.follow(classes, all.clone(), class_changed);
    follower.follow(nodes, all, node_changed);
    caches
}

impl Caches {
    /// Returns when all of them have been filled once.
    pub(super) async fn filled(&self) -> bool {
        let filled = tokio::try_join!(
            self.vms.wait_until_ready(),
            self.pods.wait_until_ready(),
            self.claims.wait_until_ready(),
            self.volumes.wait_until_ready(),
            self.classes.wait_until_ready(),
            self.nodes.wait_until_ready(),
        );
        filled.is_ok()
    }
}

struct Follower<'f> {
    client: &'f Client,
    caches: &'f Caches,
    queues: &'f Queues,
    metrics: &'f Arc<Metrics>,
}

impl Follower<'_> {
    fn follow<K>(
        &self,
        writer: Writer<K>,
        config: watcher::Config,
        changed: fn(&Key, &Caches, &Queues),
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let (caches, queues) = (self.caches.clone(), self.queues.clone());
        let metrics = Arc::clone(self.metrics);
        let mut following = Following(writer);
        tokio::spawn(async move {
            let mut events = watch(api, config).default_backoff().boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        for key in following.apply(&event) {
                            changed(&key, &caches, &queues);
                        }
                    }
                    Err(error) => {
                        let resource = K::plural(&());
                        metrics.watch_failed(&resource);
                        warn!(%error, %resource, "the watch is begun again");
                    }
                }
            }
        });
    }
}

/// A cache and its watch.
struct Following<K>(Writer<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static;

impl<K> Following<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// Brings the cache up to date; returns what is different in it, or may be.
    fn apply(&mut self, event: &Event<K>) -> BTreeSet<Key> {
        match event {
            Event::Apply(object) | Event::Delete(object) => {
                self.0.apply_watcher_event(event);
                BTreeSet::from([Key::of(object)])
            }
            Event::Init | Event::InitApply(_) => {
                self.0.apply_watcher_event(event);
                BTreeSet::new()
            }
            // What vanished while the watch was broken has changed as well.
            Event::InitDone => {
                let mut keys = self.keys();
                self.0.apply_watcher_event(event);
                keys.append(&mut self.keys());
                keys
            }
        }
    }

    fn keys(&self) -> BTreeSet<Key> {
        let objects = self.0.as_reader().state();
        objects.iter().map(|object| Key::of(&**object)).collect()
    }
}

fn vm_changed(key: &Key, caches: &Caches, queues: &Queues) {
    let vm = get(&caches.vms, key);
    let claims = vm.map_or_else(BTreeSet::new, |vm| read::claims_of(&vm));
    let dropped = caches.index.set(&User::Vm(key.clone()), &claims);
    dropped.iter().for_each(|claim| queues.claim(claim));
    queues.vm(key);
}

fn pod_changed(key: &Key, caches: &Caches, queues: &Queues) {
    let pod = get(&caches.pods, key);
    let claims = pod.map_or_else(BTreeSet::new, |pod| {
        let names = pod.direct_claims();
        names.map(|name| Key::new(&key.namespace, name)).collect()
    });
    let dropped = caches.index.set(&User::Pod(key.clone()), &claims);
    dropped.iter().for_each(|claim| queues.claim(claim));
    queues.vm(key);
}

fn claim_changed(key: &Key, caches: &Caches, queues: &Queues) {
    let vms = caches.index.vms_of(key);
    vms.iter().for_each(|vm| queues.vm(vm));
    queues.claim(key);
}

/// A claim may have waited for us to see its volume.
fn volume_changed(key: &Key, caches: &Caches, queues: &Queues) {
    let Some(volume) = get(&caches.volumes, key) else {
        return;
    };
    let claim = &volume.spec["claimRef"];
    let text = |field: &str| claim[field].as_str().unwrap_or_default();
    let claim = Key::new(text("namespace"), text("name"));
    let vms = caches.index.vms_of(&claim);
    vms.iter().for_each(|vm| queues.vm(vm));
}

/// Seldom, and of importance to every claim that is not bound.
fn class_changed(_: &Key, caches: &Caches, queues: &Queues) {
    let vms = caches.vms.state();
    vms.iter().for_each(|vm| queues.vm(&Key::of(&**vm)));
}

/// A node that is gone cannot let go of its pods.
fn node_changed(key: &Key, caches: &Caches, queues: &Queues) {
    let there = |pod: &LauncherPod| {
        is_going(pod) && pod.spec.node_name.as_deref() == Some(key.name.as_str())
    };
    let pods = caches.pods.state_filter(there);
    pods.iter().for_each(|pod| queues.vm(&Key::of(&**pod)));
}

/// Caches that a test fills.
#[cfg(test)]
pub(super) struct Filling {
    pub(super) caches: Caches,
    pub(super) vms: Writer<Vm>,
    pub(super) pods: Writer<LauncherPod>,
    pub(super) nodes: Writer<NodeObject>,
    /// A cache is never filled any more when its writer is gone.
    _others: (
        Writer<ClaimObject>,
        Writer<VolumeObject>,
        Writer<ClassObject>,
    ),
}

#[cfg(test)]
impl Filling {
    /// Only claims, volumes and classes have been listed: there are none.
    pub(super) fn new() -> Self {
        let (vms, pods, nodes) = (Writer::new(()), Writer::new(()), Writer::new(()));
        let mut others = (Writer::new(()), Writer::new(()), Writer::new(()));
        list(&mut others.0, []);
        list(&mut others.1, []);
        list(&mut others.2, []);
        let caches = Caches {
            vms: vms.as_reader(),
            pods: pods.as_reader(),
            claims: others.0.as_reader(),
            volumes: others.1.as_reader(),
            classes: others.2.as_reader(),
            nodes: nodes.as_reader(),
            index: Arc::default(),
        };
        Self {
            caches,
            vms,
            pods,
            nodes,
            _others: others,
        }
    }
}

/// The API server has answered with these objects.
#[cfg(test)]
pub(super) fn list<K, const N: usize>(writer: &mut Writer<K>, objects: [serde_json::Value; N])
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        let object = serde_json::from_value(object).unwrap();
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(name: &str) -> Vm {
        let vm = serde_json::json!({"metadata": {"name": name, "namespace": "n"}});
        serde_json::from_value(vm).unwrap()
    }

    fn names(keys: BTreeSet<Key>) -> Vec<String> {
        keys.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn what_vanished_while_the_watch_was_broken_has_changed() {
        let mut following = Following(Writer::<Vm>::new(()));
        let mut apply = |event| names(following.apply(&event));
        let nothing: [&str; 0] = [];
        assert_eq!(apply(Event::Init), nothing);
        assert_eq!(apply(Event::InitApply(vm("a"))), nothing);
        assert_eq!(apply(Event::InitApply(vm("b"))), nothing);
        assert_eq!(apply(Event::InitDone), ["a", "b"]);
        assert_eq!(apply(Event::Apply(vm("c"))), ["c"]);
        assert_eq!(apply(Event::Delete(vm("a"))), ["a"]);
        assert_eq!(apply(Event::Init), nothing);
        assert_eq!(apply(Event::InitApply(vm("b"))), nothing);
        assert_eq!(apply(Event::InitDone), ["b", "c"]);
    }
}
