//! A VM object's launcher pod, as a value.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::manifest::{Ask, Objects, Probe, RestartPolicy, VmObject};
use crate::names::PoolName;
use crate::units::ByteSize;

pub use super::claims::Unready;
use super::claims::{PodClaim, Used, pod_claims};
use super::overhead::pod_mebibytes;
use super::ports::Ports;
use super::protocol::{DIRECTORY, VOLUME};

/// What the cluster's administrator decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The image with `disklet` and `passt`.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`; absent: as Kubernetes decides.
    pub pull_policy: Option<String>,
    /// Memory of VMs that ask for none.
    pub default_memory: ByteSize,
    /// Guests are reached at ports below 1024, too, by a capability.
    pub low_ports: bool,
    /// The seccomp profile below the kubelet's `seccomp` directory; absent:
    /// none, since that of container runtimes keeps passt from shutting itself in.
    pub seccomp_profile: Option<String>,
}

/// The label by which a VM's pod is found; see [`label_value`].
pub const VM_LABEL: &str = "disklet.io/vm";
/// The pod's container.
pub const CONTAINER: &str = "vm";
/// Where our profile is, below the kubelet's `seccomp` directory.
pub const SECCOMP_PROFILE: &str = "disklet/launcher.json";
/// What it says. The agent puts it there.
pub const SECCOMP_PROFILE_TEXT: &str = include_str!("seccomp.json");

/// Holds a launcher pod until the agent of its node has freed all that it made
/// for it.
pub const AGENT_FINALIZER: &str = "disklet.io/agent";

/// A node that has an agent has this label.
pub const NODE_LABEL: (&str, &str) = ("extraRuntime", "virtlet");
/// Before the name of a pool: a node that has it has this label, with this value.
pub const POOL_LABEL: (&str, &str) = ("storage.disklet.io/", "yes");
/// `nobody`: it owns nothing.
const USER: u32 = 65534;

/// The pod; or the claims that it has to wait for.
pub fn pod(vm: &VmObject, objects: &Objects, settings: &Settings) -> Result<Value, Vec<Unready>> {
    let claims = pod_claims(vm, objects)?;
    let mut volumes = vec![own_volume()];
    volumes.extend(claims.iter().enumerate().map(volume));
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(vm),
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "containers": [container(vm, &claims, settings)],
            "nodeSelector": node_selector(vm),
            "restartPolicy": match vm.restart {
                RestartPolicy::Always => "Always",
                RestartPolicy::OnFailure => "OnFailure",
                RestartPolicy::Never => "Never",
            },
            "securityContext": pod_security(settings),
            "terminationGracePeriodSeconds": vm.grace,
            "volumes": volumes,
        },
    }))
}

/// The key of the label that nodes with a pool have.
#[must_use]
pub fn pool_label(pool: &PoolName) -> String {
    format!("{}{pool}", POOL_LABEL.0)
}

/// Nodes with an agent, and with the pools that the VM's copies are to be in. Every
/// node has the one of volumes.
fn node_selector(vm: &VmObject) -> Value {
    let mut labels = Map::new();
    labels.insert(NODE_LABEL.0.to_owned(), json!(NODE_LABEL.1));
    let copies = vm.disks.iter().filter_map(|disk| disk.copy.as_ref());
    let usage = copies.filter_map(|copy| copy.usage.as_ref());
    for pool in usage.filter(|pool| pool.value.as_str() != Config::VOLUMES) {
        labels.insert(pool_label(&pool.value), json!(POOL_LABEL.1));
    }
    Value::Object(labels)
}

/// Where launcher and agent meet.
pub(super) fn own_volume() -> Value {
    json!({
        "name": VOLUME,
        // There are only sockets in it.
        "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"},
    })
}

fn metadata(vm: &VmObject) -> Value {
    let meta = &vm.meta;
    // The VM's own labels are the pod's, so that Services select it.
    let mut labels: Map<String, Value> = meta
        .labels
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    labels.insert("app.kubernetes.io/managed-by".to_owned(), json!("disklet"));
    labels.insert(VM_LABEL.to_owned(), json!(label_value(meta.name.as_str())));
    let mut metadata = json!({
        "name": meta.name.as_str(),
        "namespace": meta.namespace.as_str(),
        "labels": labels,
    });
    if let Some(uid) = &meta.uid {
        metadata["ownerReferences"] = json!([{
            "apiVersion": "disklet.io/v1alpha1",
            "kind": "VM",
            "name": meta.name.as_str(),
            "uid": uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
    }
    metadata
}

/// A VM's name as the value of a label, which has at most 63 characters: as it
/// is, or its beginning and a hash.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= 63 {
        return name.to_owned();
    }
    let hash = Sha256::digest(name.as_bytes());
    let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let beginning = name.chars().take(46).collect::<String>();
    format!("{beginning}-{hash}")
}

fn container(vm: &VmObject, claims: &[PodClaim], settings: &Settings) -> Value {
    let network = vm.interfaces.as_ref().is_none_or(|all| !all.is_empty());
    let (tcp, udp) = ports(vm, network);
    let memory = vm
        .memory
        .as_ref()
        .map_or(settings.default_memory, |it| it.value);
    // The last one is for cloud-init.
    let disks = vm.disks.len() + 1;
    let memory = pod_mebibytes(memory.as_bytes(), vm.cpu.count, disks, &tcp, &udp);
    let memory = format!("{memory}Mi");
    let mut mounts = vec![json!({"name": VOLUME, "mountPath": DIRECTORY})];
    let mut devices = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let name = volume_name(index);
        match claim.used {
            Used::Bound => {}
            Used::Mounted => mounts.push(json!({
                "name": name,
                "mountPath": format!("/run/disklet-volumes/{index}"),
                "readOnly": claim.read_only,
            })),
            Used::Mapped => devices.push(json!({
                "name": name,
                "devicePath": format!("/dev/disklet/{index}"),
            })),
        }
    }
    let ports = network.then_some((&tcp, &udp));
    let mut container = program(CONTAINER, i64::from(vm.grace), ports, settings);
    container["resources"] = json!({
        "requests": {"cpu": share(vm.cpu.count), "memory": memory},
        "limits": {"memory": memory},
    });
    container["volumeMounts"] = json!(mounts);
    for (field, probe) in vm.probes.named() {
        container[field] = in_pod(&probe.value);
    }
    if !devices.is_empty() {
        container["volumeDevices"] = json!(devices);
    }
    container
}

/// Each virtual CPU has a share; more than that is for who is idle.
pub(super) fn share(cpus: u32) -> String {
    format!("{}m", 100 * cpus)
}

/// The launcher as a container, without what depends on the VM's disks and size.
pub(super) fn program(
    name: &str,
    grace: i64,
    ports: Option<(&Ports, &Ports)>,
    settings: &Settings,
) -> Value {
    let mut args = vec!["--grace".to_owned(), grace.to_string()];
    match ports {
        Some((tcp, udp)) => {
            args.extend([format!("--tcp-ports={tcp}"), format!("--udp-ports={udp}")]);
        }
        None => args.push("--no-network".to_owned()),
    }
    let mut container = json!({
        "name": name,
        "image": settings.image,
        "command": ["disklet", "launch"],
        "args": args,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": capabilities(settings),
            "readOnlyRootFilesystem": true,
        },
        // `kubectl attach -it` is the console, key by key.
        "stdin": true,
        "tty": true,
    });
    if let Some(policy) = &settings.pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    container
}

/// A probe, as a container of a Pod has it.
fn in_pod(probe: &Probe) -> Value {
    let mut written = match &probe.ask {
        Ask::Tcp { port } => json!({"tcpSocket": {"port": port}}),
        Ask::Http {
            port,
            path,
            tls,
            headers,
        } => {
            let scheme = if *tls { "HTTPS" } else { "HTTP" };
            let mut get = json!({"port": port, "path": path, "scheme": scheme});
            if !headers.is_empty() {
                let headers = headers.iter();
                let headers = headers.map(|(name, value)| json!({"name": name, "value": value}));
                get["httpHeaders"] = headers.collect();
            }
            json!({"httpGet": get})
        }
    };
    for (field, number) in &probe.times {
        written[field] = json!(number);
    }
    written
}

/// Those that the VM's interface names, else the usual ones; and those at which the kubelet
/// asks the guest.
fn ports(vm: &VmObject, network: bool) -> (Ports, Ports) {
    if !network {
        return Default::default();
    }
    let interface = vm.interfaces.iter().flatten().next();
    let named = interface.and_then(|interface| interface.ports.clone());
    let named = named.map(|ports| (ports.tcp, ports.udp));
    let (mut tcp, udp) = named.unwrap_or_else(Ports::usual);
    for (_, probe) in vm.probes.named() {
        let (Ask::Tcp { port } | Ask::Http { port, .. }) = probe.value.ask;
        tcp.add(port, port);
    }
    (tcp, udp)
}

pub(super) fn pod_security(settings: &Settings) -> Value {
    let seccomp = match &settings.seccomp_profile {
        Some(profile) => json!({"type": "Localhost", "localhostProfile": profile}),
        None => json!({"type": "Unconfined"}),
    };
    // The guest may ping.
    let sysctls = [json!({"name": "net.ipv4.ping_group_range", "value": "0 2147483647"})];
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": seccomp,
        "sysctls": sysctls,
    })
}

/// One may be had by Pod Security's `restricted`. The sysctl that would do instead
/// is not taken by kubelets before 1.22.
fn capabilities(settings: &Settings) -> Value {
    match settings.low_ports {
        true => json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
        false => json!({"drop": ["ALL"]}),
    }
}

fn volume((index, claim): (usize, &PodClaim)) -> Value {
    json!({
        "name": volume_name(index),
        "persistentVolumeClaim": {
            "claimName": claim.name.as_str(),
            "readOnly": claim.read_only,
        },
    })
}

fn volume_name(index: usize) -> String {
    format!("claim-{index}")
}
