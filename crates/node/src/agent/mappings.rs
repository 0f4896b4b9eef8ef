//! Mappings of images' names that are objects of the cluster, as they are now.

use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};

use disklet_core::crd::{MAPPING_KIND, MAPPING_PLURAL, VIRTLET_GROUP, VIRTLET_VERSION};
use disklet_core::images::{ImageMapping, MappingObjects};
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};

use super::cluster::text_of;
use crate::failure::{Failure, Result};

/// What they say together; nothing until all of them have been seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Mappings(Arc<RwLock<Option<ImageMapping>>>);

impl Mappings {
    /// Without them a name might lead elsewhere.
    pub(super) fn now(&self) -> Result<ImageMapping> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.clone().ok_or_else(|| {
            Failure::new("the API server has not told yet where images come from").into_outage()
        })
    }

    fn set(&self, mapping: ImageMapping) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(mapping);
    }

    /// Follows the objects of Disklet's own namespace: what tenants write into
    /// theirs maps nothing.
    pub(super) async fn follow(self, client: kube::Client, namespace: Option<String>) {
        let Some(namespace) = namespace else {
            return self.set(ImageMapping::default());
        };
        let kind = GroupVersionKind::gvk(VIRTLET_GROUP, VIRTLET_VERSION, MAPPING_KIND);
        let kind = ApiResource::from_gvk_with_plural(&kind, MAPPING_PLURAL);
        let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &kind);
        let stream = watcher(api, watcher::Config::default()).default_backoff();
        let mut stream = pin!(stream);
        let mut seen = Seen::default();
        while let Some(event) = stream.next().await {
            if is_unknown(&event) {
                // A cluster whose API has no such kind has no such object.
                self.set(ImageMapping::default());
            }
            if let Some(mapping) = seen.after(event) {
                self.set(mapping);
            }
        }
    }
}

/// The objects, as far as they were told.
#[derive(Debug, Default)]
struct Seen {
    objects: MappingObjects,
    is_listed: bool,
}

impl Seen {
    /// What all of them say then; nothing while they are being listed: until then
    /// what was known before holds.
    fn after(&mut self, event: watcher::Result<Event<DynamicObject>>) -> Option<ImageMapping> {
        match event {
            Ok(Event::Init) => *self = Self::default(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => self.take(&object),
            Ok(Event::InitDone) => self.is_listed = true,
            Ok(Event::Delete(object)) => self.objects.remove(&object.name_any()),
            Err(error) => {
                tracing::warn!(%error, "the API server does not tell of mappings of images");
                return None;
            }
        }
        self.is_listed.then(|| self.objects.together())
    }

    fn take(&mut self, object: &DynamicObject) {
        let name = object.name_any();
        let text = text_of(object, MAPPING_KIND, "virtlet.k8s/v1").to_string();
        if let Err(problems) = self.objects.take(&name, text) {
            // Its author is told by the controller.
            let count = problems.len();
            tracing::warn!(name, count, "a mapping of images is wrong, and not used");
        }
    }
}

fn is_unknown(event: &watcher::Result<Event<DynamicObject>>) -> bool {
    matches!(event, Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use disklet_core::names::ImageName;
    use serde_json::json;

    use super::*;

    fn object(name: &str, host: &str) -> DynamicObject {
        let object = json!({
            "metadata": {"name": name},
            "spec": {"translations": [{"name": "cirros", "url": format!("https://{host}/x")}]},
        });
        serde_json::from_value(object).unwrap()
    }

    fn host(mapping: &ImageMapping) -> Option<String> {
        let cirros = ImageName::parse("virtlet.cloud/cirros").unwrap();
        let address = mapping.find(&cirros).ok()?;
        Some(address.url.host().to_owned())
    }

    #[test]
    fn names_lead_where_the_objects_say_now() {
        let mut seen = Seen::default();
        assert!(seen.after(Ok(Event::Init)).is_none());
        let listed = seen.after(Ok(Event::InitApply(object("b", "one"))));
        assert!(listed.is_none());
        let now = seen.after(Ok(Event::InitDone)).unwrap();
        assert_eq!(host(&now).as_deref(), Some("one"));
        let now = seen.after(Ok(Event::Apply(object("b", "two")))).unwrap();
        assert_eq!(host(&now).as_deref(), Some("two"));
        let now = seen.after(Ok(Event::Apply(object("a", "b c")))).unwrap();
        assert_eq!(host(&now).as_deref(), Some("two"));
        let now = seen.after(Ok(Event::Delete(object("b", "two")))).unwrap();
        assert_eq!(host(&now), None);
    }

    #[test]
    fn nobody_guesses_before_they_are_known() {
        let mappings = Mappings::default();
        assert!(mappings.now().unwrap_err().is_outage());
        mappings.set(ImageMapping::default());
        mappings.now().unwrap();
    }
}
