//! What we have written and not yet seen come back.
//!
//! A watch tells of our own writes a little later. Whoever decides in between
//! by what the watch has told would do everything twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Resource;

use super::objects::Key;

/// Longer than any watch lags behind; after that the watch is right. Who has
/// believed us looks again then.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(10);

/// Objects of one kind, newer than the cache has them.
#[derive(Debug)]
pub(super) struct Fresh<K>(Mutex<HashMap<Key, Newer<K>>>);

#[derive(Debug)]
struct Newer<K> {
    /// The versions that were there before our writes; absent: it was not there.
    before: Vec<Option<String>>,
    /// What is there since; absent: it is gone.
    object: Option<Arc<K>>,
    at: Instant,
}

impl<K> Default for Fresh<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

fn version<K: Resource>(object: Option<&Arc<K>>) -> Option<String> {
    object.and_then(|object| object.meta().resource_version.clone())
}

impl<K: Resource> Fresh<K> {
    /// What a write has made of an object.
    pub(super) fn wrote(&self, key: &Key, before: Option<&Arc<K>>, now: Option<Arc<K>>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = all.entry(key.clone()).or_insert_with(|| Newer {
            before: Vec::new(),
            object: None,
            at: Instant::now(),
        });
        newer.before.push(version(before));
        newer.object = now;
        newer.at = Instant::now();
    }

    /// An object as it is: as the cache has it, or as we left it if the cache
    /// has not followed.
    pub(super) fn newest(&self, key: &Key, cached: Option<Arc<K>>) -> Option<Arc<K>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(newer) = all.get(key) else {
            return cached;
        };
        let is_behind = newer.before.contains(&version(cached.as_ref()));
        if is_behind && newer.at.elapsed() < BELIEVED_FOR {
            return newer.object.clone();
        }
        all.remove(key);
        cached
    }

    /// Whether the cache has not followed yet.
    pub(super) fn is_ahead(&self, key: &Key) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.contains_key(key)
    }

    /// The object is gone for good.
    pub(super) fn forget(&self, key: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(version: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.resource_version = Some(version.to_owned());
        Arc::new(pod)
    }

    fn seen(fresh: &Fresh<Pod>, cached: Option<Arc<Pod>>) -> Option<String> {
        version(fresh.newest(&Key::new("n", "vm"), cached).as_ref())
    }

    #[test]
    fn our_own_writes_count_until_the_watch_has_told_of_them() {
        let fresh = Fresh::default();
        let key = Key::new("n", "vm");
        assert_eq!(seen(&fresh, None), None);
        fresh.wrote(&key, None, Some(pod("5")));
        fresh.wrote(&key, Some(&pod("5")), Some(pod("6")));
        assert_eq!(seen(&fresh, None).as_deref(), Some("6"));
        assert_eq!(seen(&fresh, Some(pod("5"))).as_deref(), Some("6"));
        assert!(fresh.is_ahead(&key));
        assert_eq!(seen(&fresh, Some(pod("6"))).as_deref(), Some("6"));
        assert!(!fresh.is_ahead(&key));
        // Now the watch is ahead, so that what it says later is true.
        assert_eq!(seen(&fresh, None), None);
    }

    #[test]
    fn what_we_have_deleted_is_gone() {
        let fresh = Fresh::default();
        fresh.wrote(&Key::new("n", "vm"), Some(&pod("7")), None);
        assert_eq!(seen(&fresh, Some(pod("7"))), None);
        assert_eq!(seen(&fresh, Some(pod("9"))).as_deref(), Some("9"));
    }
}
