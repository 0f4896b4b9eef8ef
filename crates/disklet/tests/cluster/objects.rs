//! Every object is what Kubernetes takes for one: no field is misspelled, none is
//! of another type, and what they say of each other is true.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PodSpec, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{INSTALLATIONS, printed, yaml};

/// The typed object, written again: fields that the type does not have are gone.
fn again<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(typed).unwrap()
}

fn as_typed(object: &Value) -> Value {
    match object["kind"].as_str().unwrap() {
        "Namespace" => again::<Namespace>(object),
        "CustomResourceDefinition" => again::<CustomResourceDefinition>(object),
        "ServiceAccount" => again::<ServiceAccount>(object),
        "ClusterRole" => again::<ClusterRole>(object),
        "ClusterRoleBinding" => again::<ClusterRoleBinding>(object),
        "Role" => again::<Role>(object),
        "RoleBinding" => again::<RoleBinding>(object),
        "ConfigMap" => again::<ConfigMap>(object),
        "DaemonSet" => again::<DaemonSet>(object),
        "Deployment" => again::<Deployment>(object),
        "Service" => again::<Service>(object),
        "ValidatingWebhookConfiguration" => again::<ValidatingWebhookConfiguration>(object),
        "MutatingWebhookConfiguration" => again::<MutatingWebhookConfiguration>(object),
        "RuntimeClass" => again::<RuntimeClass>(object),
        other => panic!("{other} is not looked at"),
    }
}

pub(crate) fn of(args: &[&str]) -> Vec<Value> {
    yaml::documents(&printed(args))
}

#[test]
fn no_field_is_unknown_to_kubernetes() {
    for (_, args) in INSTALLATIONS {
        for object in of(args) {
            assert_eq!(as_typed(&object), object);
        }
    }
}

/// Whose pods they are, and those.
fn pods(objects: &[Value]) -> Vec<(String, PodSpec)> {
    let with_pods = objects
        .iter()
        .filter(|object| !object["spec"]["template"].is_null());
    let pods = with_pods.map(|object| {
        let spec = object["spec"]["template"]["spec"].clone();
        let name = object["metadata"]["name"].as_str().unwrap();
        (name.to_owned(), serde_json::from_value(spec).unwrap())
    });
    pods.collect()
}

#[test]
fn pods_mount_what_they_have_and_each_place_once() {
    for (_, args) in INSTALLATIONS {
        for (name, pod) in pods(&of(args)) {
            let volumes: BTreeSet<_> = pod.volumes.iter().flatten().map(|v| &*v.name).collect();
            let all = pod
                .containers
                .iter()
                .chain(pod.init_containers.iter().flatten());
            let mut used = BTreeSet::new();
            for container in all {
                let mounts = container.volume_mounts.as_deref().unwrap_or_default();
                let places: BTreeSet<_> = mounts.iter().map(|mount| &mount.mount_path).collect();
                assert_eq!(places.len(), mounts.len(), "{name}/{}", container.name);
                used.extend(mounts.iter().map(|mount| &*mount.name));
            }
            assert_eq!(used, volumes, "{name}: {args:?}");
        }
    }
}

/// A running VM must not end with the pod of libvirt or of an agent.
#[test]
fn qemu_outlives_the_pods() {
    let objects = of(&["install"]);
    let libvirt = objects
        .iter()
        .find(|o| o["kind"] == "DaemonSet" && o["metadata"]["name"] == "disklet-libvirt");
    assert_eq!(
        libvirt.unwrap()["spec"]["updateStrategy"]["type"],
        "OnDelete"
    );
    for (name, pod) in pods(&objects) {
        let on_nodes = name != "disklet-controller";
        assert_eq!(pod.host_pid == Some(true), on_nodes, "{name}");
        assert_eq!(pod.host_network == Some(true), on_nodes, "{name}");
    }
}

#[test]
fn everything_of_ours_is_labelled_and_in_one_namespace() {
    for (_, args) in INSTALLATIONS {
        let namespace = match args.iter().position(|arg| *arg == "--namespace") {
            Some(at) => args[at + 1],
            None => "disklet",
        };
        for object in of(args) {
            let (kind, meta) = (&object["kind"], &object["metadata"]);
            assert_eq!(
                meta["labels"]["app.kubernetes.io/part-of"], "disklet",
                "{meta}"
            );
            let named = &meta["namespace"];
            assert!(named.is_null() || named == namespace, "{kind} {meta}");
        }
    }
}

/// The one of that kind.
fn the<'o>(kind: &str, objects: &'o [Value]) -> &'o Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let one = found.next().unwrap();
    assert!(found.next().is_none(), "{kind}");
    one
}

/// API servers find the controllers, and nobody waits for them.
#[test]
fn the_webhook_leads_to_the_controllers_and_is_in_nobodys_way() {
    for (_, args) in INSTALLATIONS {
        let objects = of(args);
        let deployment = the("Deployment", &objects);
        let service = the("Service", &objects);
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        for (key, value) in service["spec"]["selector"].as_object().unwrap() {
            assert_eq!(&labels[key], value);
        }
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let ports = container["ports"].as_array().unwrap();
        let port = ports
            .iter()
            .find(|port| port["name"] == service["spec"]["ports"][0]["targetPort"]);
        let listens = format!("0.0.0.0:{}", port.unwrap()["containerPort"]);
        let said = container["args"].as_array().unwrap();
        let at = said
            .iter()
            .position(|arg| arg == "--webhook-listen")
            .unwrap();
        assert_eq!(said[at + 1], listens.as_str());

        let webhooks = the("ValidatingWebhookConfiguration", &objects)["webhooks"]
            .as_array()
            .unwrap();
        for webhook in webhooks {
            let client = &webhook["clientConfig"];
            assert_eq!(client["service"]["name"], service["metadata"]["name"]);
            assert_eq!(
                client["service"]["namespace"],
                service["metadata"]["namespace"]
            );
            assert!(
                client["caBundle"].is_null(),
                "it is the controllers' to write"
            );
            assert_eq!(webhook["sideEffects"], "None");
            assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 10);
            // Of pods only launchers are sent, and nobody waits but who changes one.
            let launchers = serde_json::json!([{"key": "disklet.io/vm", "operator": "Exists"}]);
            let sends_launchers = webhook["objectSelector"]["matchExpressions"] == launchers;
            for rule in webhook["rules"].as_array().unwrap() {
                let is_ours = rule["apiGroups"] == serde_json::json!(["disklet.io"]);
                assert!(is_ours || sends_launchers, "others are not sent");
                let changes = rule["operations"] == serde_json::json!(["UPDATE"]);
                let policy = match sends_launchers && changes {
                    true => "Fail",
                    false => "Ignore",
                };
                assert_eq!(webhook["failurePolicy"], policy);
            }
        }
    }
}

/// Nobody's pods wait for us but launchers, which have a label.
#[test]
fn pods_are_created_without_us() {
    for (_, args) in INSTALLATIONS {
        let objects = of(args);
        let service = the("Service", &objects);
        let webhooks = the("MutatingWebhookConfiguration", &objects)["webhooks"]
            .as_array()
            .unwrap();
        for webhook in webhooks {
            let client = &webhook["clientConfig"];
            assert_eq!(client["service"]["name"], service["metadata"]["name"]);
            assert_eq!(client["service"]["path"], "/mutate");
            assert!(client["caBundle"].is_null());
            assert_eq!(webhook["sideEffects"], "None");
            let operations = &webhook["rules"][0]["operations"];
            let is_creation = *operations == serde_json::json!(["CREATE"]);
            // All pods are sent when they are created, and wait while nobody answers.
            let at_most = if is_creation { 5 } else { 10 };
            assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= at_most);
            assert_eq!(
                webhook["rules"][0]["resources"],
                serde_json::json!(["pods"])
            );
            match is_creation {
                true => assert_eq!(webhook["failurePolicy"], "Ignore"),
                false => {
                    assert_eq!(webhook["failurePolicy"], "Fail");
                    let chosen = &webhook["objectSelector"]["matchExpressions"][0];
                    assert_eq!(chosen["key"], "disklet.io/vm");
                }
            }
        }
        let namespace = the("Namespace", &objects);
        let label = &namespace["metadata"]["labels"]["disklet.io/installed"];
        assert_eq!(label, "true", "the webhook leaves our namespace out by it");
    }
}

#[test]
fn pools_and_directories_are_those_of_the_configuration() {
    let (_, args) = INSTALLATIONS[1];
    for (name, pod) in pods(&of(args)) {
        if name == "disklet-controller" {
            continue;
        }
        let mounts = pod
            .containers
            .last()
            .unwrap()
            .volume_mounts
            .clone()
            .unwrap();
        let places: BTreeSet<_> = mounts.iter().map(|mount| &*mount.mount_path).collect();
        // The agent sees all of the node.
        let kubelet = match name.as_str() {
            "disklet-agent" => "/host",
            _ => "/srv/kubelet",
        };
        for wanted in [
            "/srv/disklet",
            "/run/vms",
            kubelet,
            "/mnt/nvme",
            "/etc/disklet/images",
        ] {
            assert!(places.contains(wanted), "{name} lacks {wanted}");
        }
        assert!(
            !places.contains("/srv/disklet/slow"),
            "{name}: it is there already"
        );
    }
}
