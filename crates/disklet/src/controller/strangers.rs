//! What our watches do not show: pods of others that have a VM's name, and pods
//! that the API server did not take.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::api::Api;
use kube::runtime::wait::{await_condition, conditions};
use tracing::{info, warn};

use super::act::Failure;
use super::context::Context;
use super::objects::{Key, LauncherPod};

/// Anybody can make many; a watch of each would be paid by all.
const MOST_WATCHED: usize = 64;
/// When a VM is looked at again that there is no watch for.
const LATER: Duration = Duration::from_secs(60);

/// Pods of others. Each is watched until it is gone, if they are few.
#[derive(Debug, Default)]
pub(super) struct Strangers(Arc<Mutex<HashMap<Key, Arc<LauncherPod>>>>);

impl Strangers {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<LauncherPod>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).cloned()
    }

    /// Somebody else's pod stands where a launcher should be. The VM is looked
    /// at again when it is gone.
    pub(super) fn found(&self, context: &Context, key: &Key, pod: Arc<LauncherPod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let (before, number) = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (all.insert(key.clone(), pod), all.len())
        };
        if before.is_some() {
            return;
        }
        info!(vm = %key, pod = uid, "another pod has the VM's name");
        let pods: Api<LauncherPod> = Api::namespaced(context.client.clone(), &key.namespace);
        let (all, queues, key) = (Arc::clone(&self.0), context.queues.clone(), key.clone());
        tokio::spawn(async move {
            if number > MOST_WATCHED {
                tokio::time::sleep(LATER).await;
            } else {
                let gone = conditions::is_deleted(&uid);
                if let Err(error) = await_condition(pods, &key.name, gone).await {
                    warn!(vm = %key, %error, "the other pod is no longer watched");
                }
            }
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.remove(&key);
            drop(all);
            queues.vm(&key);
        });
    }
}

/// Why pods were not taken.
#[derive(Debug, Default)]
pub(super) struct Rebuffs(Mutex<HashMap<Key, String>>);

impl Rebuffs {
    pub(super) fn get(&self, key: &Key) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).cloned()
    }

    /// Only what the API server has said is worth telling: that it did not answer
    /// is not the VM's fault.
    pub(super) fn note(&self, key: &Key, failure: &Failure) {
        let Failure::Api(error) = failure else { return };
        if let kube::Error::Api(status) = &**error
            && (400..500).contains(&status.code)
        {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(key.clone(), status.message.clone());
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
    }
}
