//! The cluster as its user may see it.

use std::time::Duration;

use disklet_core::names::{Namespace, ObjectName};
use disklet_core::resolve::Reference;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, Error};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use disklet::cluster::client::client_of;

use super::flags::KubeArgs;
use crate::refusal::Refusal;

/// A connection, and where the user is.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: Namespace,
    patience: Duration,
}

/// What the API server says to a question.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Found(T),
    Absent,
    /// The user may not know; in the API server's words.
    Forbidden(String),
}

impl<T> Answer<T> {
    pub(super) fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent | Self::Forbidden(_) => None,
        }
    }
}

impl Cluster {
    pub(super) async fn connect(args: &KubeArgs) -> Result<Self, Refusal> {
        let config = args.configuration().await?;
        let of_context = || {
            Namespace::parse(&config.default_namespace).map_err(|rule| {
                Refusal::new("the namespace of the kubeconfig's context is none").help(rule.allowed)
            })
        };
        let namespace = args.namespace.clone().map_or_else(of_context, Ok)?;
        Ok(Self {
            client: client_of(config)?,
            namespace,
            patience: args.patience(),
        })
    }

    /// An answer, in time.
    pub(super) async fn ask<T>(
        &self,
        what: &str,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<Answer<T>, Refusal> {
        match timeout(self.patience, question).await {
            Ok(Ok(found)) => Ok(Answer::Found(found)),
            Ok(Err(Error::Api(status))) if status.code == 404 => Ok(Answer::Absent),
            Ok(Err(Error::Api(status))) if status.code == 403 => {
                Ok(Answer::Forbidden(status.message.clone()))
            }
            Ok(Err(error)) => Err(Refusal::of(what, &error)),
            Err(_) => Err(
                Refusal::new(format!("{what}: the API server does not answer"))
                    .help("--request-timeout says how long it is waited for"),
            ),
        }
    }

    pub(super) fn vms(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("disklet.io", "v1alpha1", "VM");
        let kind = ApiResource::from_gvk_with_plural(&kind, "vms");
        Api::namespaced_with(self.client.clone(), self.namespace.as_str(), &kind)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), self.namespace.as_str())
    }

    /// A VM object, which must be there.
    pub(super) async fn vm(&self, name: &ObjectName) -> Result<Value, Refusal> {
        let what = format!("VM {}/{name}", self.namespace);
        match self.ask(&what, self.vms().get(name.as_str())).await? {
            Answer::Found(vm) => Ok(as_file(&vm, "VM", "disklet.io/v1alpha1")),
            Answer::Absent => Err(Refusal::new(format!("{what}: there is no such VM"))
                .help(format!("kubectl get vms -n {} lists them", self.namespace))),
            Answer::Forbidden(why) => Err(forbidden(&what, &why)),
        }
    }

    /// The VM's launcher pod; another pod of its name is none.
    pub(super) async fn launcher(&self, vm: &Value) -> Result<Answer<Pod>, Refusal> {
        let name = vm["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("pod {}/{name}", self.namespace);
        let answer = self.ask(&what, self.pods().get(name)).await?;
        Ok(match answer {
            Answer::Found(pod) if !is_of(&pod, vm) => Answer::Absent,
            answer => answer,
        })
    }

    /// What happened to a VM and its pods, the oldest first.
    pub(super) async fn events(&self, vm: &Value) -> Result<Answer<Vec<Event>>, Refusal> {
        let name = vm["metadata"]["name"].as_str().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace.as_str());
        let how = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let answer = self.ask("its events", events.list(&how)).await?;
        Ok(match answer {
            Answer::Found(list) => {
                let is_its = |event: &Event| {
                    let about = event.involved_object.kind.as_deref();
                    matches!(about, Some("VM" | "Pod"))
                };
                let mut events: Vec<_> = list.items.into_iter().filter(is_its).collect();
                events.sort_by_key(last_seen);
                Answer::Found(events)
            }
            Answer::Absent => Answer::Absent,
            Answer::Forbidden(why) => Answer::Forbidden(why),
        })
    }

    /// The configuration that an installation gives to its nodes.
    pub(super) async fn configuration(
        &self,
        namespace: &Namespace,
    ) -> Result<Answer<String>, Refusal> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace.as_str());
        let answer = self
            .ask("the nodes' configuration", maps.get("disklet-config"))
            .await?;
        Ok(match answer {
            Answer::Found(map) => match map.data.and_then(|mut data| data.remove("config.yaml")) {
                Some(text) => Answer::Found(text),
                None => Answer::Absent,
            },
            Answer::Absent => Answer::Absent,
            Answer::Forbidden(why) => Answer::Forbidden(why),
        })
    }

    /// Whether a class binds claims only when a pod is there that uses them.
    pub(super) async fn waits_for_pod(&self, class: &str) -> Result<bool, Refusal> {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let found = self.ask("the class", classes.get(class)).await?.found();
        let mode = found.and_then(|class| class.volume_binding_mode);
        Ok(mode.as_deref() == Some("WaitForFirstConsumer"))
    }

    /// What a plan looked for.
    pub(super) async fn get(&self, wanted: &Reference) -> Result<Answer<Value>, Refusal> {
        let (kind, plural, namespace, name) = match wanted {
            Reference::Claim((namespace, name)) => {
                let kind = "PersistentVolumeClaim";
                (kind, "persistentvolumeclaims", Some(namespace), name)
            }
            Reference::Volume(name) => ("PersistentVolume", "persistentvolumes", None, name),
            Reference::ConfigMap((namespace, name)) => {
                ("ConfigMap", "configmaps", Some(namespace), name)
            }
            Reference::Secret((namespace, name)) => ("Secret", "secrets", Some(namespace), name),
            Reference::Endpoints((namespace, name)) => {
                ("Endpoints", "endpoints", Some(namespace), name)
            }
            Reference::ServiceAccount((namespace, name)) => {
                ("ServiceAccount", "serviceaccounts", Some(namespace), name)
            }
        };
        let resource = GroupVersionKind::gvk("", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&resource, plural);
        let client = self.client.clone();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace.as_str(), &resource),
            None => Api::all_with(client, &resource),
        };
        let answer = self
            .ask(&wanted.to_string(), api.get(name.as_str()))
            .await?;
        Ok(match answer {
            Answer::Found(found) => Answer::Found(as_file(&found, kind, "v1")),
            Answer::Absent => Answer::Absent,
            Answer::Forbidden(why) => Answer::Forbidden(why),
        })
    }
}

/// What somebody may not see.
pub(super) fn forbidden(what: &str, why: &str) -> Refusal {
    Refusal::new(format!("{what}: {why}")).help("an administrator of the cluster gives rights")
}

fn is_of(pod: &Pod, vm: &Value) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let uid = vm["metadata"]["uid"].as_str();
    owners
        .into_iter()
        .any(|owner| Some(owner.uid.as_str()) == uid)
}

/// When it was seen last, in whichever of its fields that stands.
pub(super) fn last_seen(event: &Event) -> Option<i64> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let once = event.event_time.as_ref().map(|time| time.0);
    let made = event
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0);
    last.or(once)
        .or(made)
        .map(k8s_openapi::jiff::Timestamp::as_second)
}

/// As a file would have it: answers leave the kind out.
fn as_file(object: &impl Serialize, kind: &str, version: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["kind"] = kind.into();
    value["apiVersion"] = version.into();
    if let Some(meta) = value["metadata"].as_object_mut() {
        meta.remove("managedFields");
        if let Some(Value::Object(annotations)) = meta.get_mut("annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    value
}
