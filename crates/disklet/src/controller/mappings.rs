//! Mappings of images' names: agents use them, and the controller tells their authors
//! whether they can. One program says so, as all of them would say the same.

use std::collections::BTreeMap;
use std::pin::pin;

use disklet::cluster::client::ANSWER_WITHIN;
use disklet::cluster::names::CONTROLLER;
use disklet::cluster::words::{sentence, shortened};
use disklet_core::crd::{MAPPING_KIND, MAPPING_PLURAL, VIRTLET_GROUP, VIRTLET_VERSION};
use disklet_core::images::{MappingObjects, Verdict};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::warn;

/// A condition's message has at most 32 KiB; nobody reads that much.
const LONGEST: usize = 4 << 10;

/// Judges the mappings of Disklet's own namespace until the controller ends.
pub(super) async fn forever(client: &Client, namespace: &str) {
    let kind = GroupVersionKind::gvk(VIRTLET_GROUP, VIRTLET_VERSION, MAPPING_KIND);
    let kind = ApiResource::from_gvk_with_plural(&kind, MAPPING_PLURAL);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let stream = watcher(api.clone(), watcher::Config::default()).default_backoff();
    let mut stream = pin!(stream);
    let mut known = BTreeMap::new();
    let mut is_listed = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => {
                known.clear();
                is_listed = false;
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                known.insert(object.name_any(), object);
            }
            Ok(Event::InitDone) => is_listed = true,
            Ok(Event::Delete(object)) => drop(known.remove(&object.name_any())),
            Err(error) => warn!(%error, "the API server does not tell of mappings of images"),
        }
        if is_listed {
            tell(&api, &mut known).await;
        }
    }
}

/// Writes what is not said yet.
async fn tell(api: &Api<DynamicObject>, known: &mut BTreeMap<String, DynamicObject>) {
    let texts = known
        .iter()
        .map(|(name, object)| (name.clone(), text_of(object)));
    let verdicts = MappingObjects::judge(&texts.collect());
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for (name, verdict) in verdicts {
        let Some(object) = known.get_mut(&name) else {
            continue;
        };
        let Some(status) = news(&verdict, object, &now) else {
            continue;
        };
        let patch = json!({
            "apiVersion": format!("{VIRTLET_GROUP}/{VIRTLET_VERSION}"),
            "kind": MAPPING_KIND,
            "metadata": {"name": name, "uid": object.uid()},
            "status": status,
        });
        let (how, patch) = (PatchParams::apply(CONTROLLER).force(), Patch::Apply(&patch));
        match timeout(ANSWER_WITHIN, api.patch_status(&name, &how, &patch)).await {
            Ok(Ok(written)) => *object = written,
            // Who is gone needs no status.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
            Ok(Err(error)) => warn!(name, %error, "a mapping's status was not taken"),
            Err(_) => warn!(name, "a mapping's status was not taken in time"),
        }
    }
}

/// As a file would have it.
fn text_of(object: &DynamicObject) -> String {
    let spec = object.data.get("spec");
    json!({"kind": MAPPING_KIND, "spec": spec}).to_string()
}

/// The status, unless the object has it.
fn news(verdict: &Verdict, object: &DynamicObject, now: &str) -> Option<Value> {
    let (status, reason, message) = in_words(verdict);
    let conditions = object.data["status"]["conditions"].as_array();
    let before = conditions.and_then(|all| all.iter().find(|it| it["type"] == "Accepted"));
    let since = before.filter(|it| it["status"] == status);
    let since = since.map_or_else(|| json!(now), |it| it["lastTransitionTime"].clone());
    let condition = json!({
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": object.metadata.generation,
        "lastTransitionTime": since,
    });
    (before != Some(&condition)).then(|| json!({"conditions": [condition]}))
}

fn in_words(verdict: &Verdict) -> (&'static str, &'static str, String) {
    let shortened = |lines: Vec<String>| shortened(&lines.join("\n"), LONGEST);
    match verdict {
        Verdict::Accepted => ("True", "Accepted", "all of it counts".to_owned()),
        Verdict::Overlapped(names) => {
            let names = names.iter();
            let lines = names.map(|(name, other)| {
                format!("{name:?} does not count: {other} maps it, and comes first by its name")
            });
            ("True", "Overlapped", shortened(lines.collect()))
        }
        Verdict::Refused(problems) => {
            let lines = problems.iter().map(sentence).collect();
            ("False", "Refused", shortened(lines))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(spec: &Value, status: &Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "virtlet.k8s/v1",
            "kind": MAPPING_KIND,
            "metadata": {"name": "primary", "generation": 2},
            "spec": spec,
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn judged(object: &DynamicObject) -> Verdict {
        let texts = BTreeMap::from([("primary".to_owned(), text_of(object))]);
        MappingObjects::judge(&texts).remove("primary").unwrap()
    }

    #[test]
    fn what_is_wrong_is_told_to_its_author_once() {
        let spec = json!({"translations": [{"name": "x", "url": "ftp://user:hunter2@host/x"}]});
        let wrong = object(&spec, &Value::Null);
        let told = news(&judged(&wrong), &wrong, "then").unwrap();
        let condition = &told["conditions"][0];
        assert_eq!(condition["status"], "False");
        let message = condition["message"].as_str().unwrap();
        assert!(
            message.starts_with("spec.translations[0].url: the address"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
        let told_before = object(&spec, &told);
        assert_eq!(news(&judged(&wrong), &told_before, "now"), None);
        // Another problem does not make it wrong anew.
        let other = json!({"translations": [{"name": "x"}]});
        let other = object(&other, &told);
        let told = news(&judged(&other), &other, "now").unwrap();
        assert_eq!(told["conditions"][0]["lastTransitionTime"], "then");
        let mended = json!({"translations": []});
        let mended = object(&mended, &told);
        let told = news(&judged(&mended), &mended, "now").unwrap();
        assert_eq!(told["conditions"][0]["status"], "True");
        assert_eq!(told["conditions"][0]["lastTransitionTime"], "now");
    }
}
