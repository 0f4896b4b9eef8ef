//! The node's pools: those of the configuration, and those that annotations of the
//! agent's own pod name, as only that pod has their mounts. The node's labels say
//! which there are.

use std::collections::BTreeMap;
use std::fs;

use disklet_core::config::{Config, PoolAnnotation};
use disklet_core::launch::pod::{NODE_LABEL, POOL_LABEL, pool_label};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::cluster::answered;
use crate::failure::{Failure, Result};

/// The agent's own pod, by its name.
#[derive(Debug, Clone)]
pub(super) struct OwnPod {
    namespace: String,
    name: String,
    /// What its annotations said of pools.
    said: BTreeMap<String, String>,
}

impl OwnPod {
    /// Adds the pools that its annotations name.
    pub(super) async fn read(
        client: &kube::Client,
        namespace: &str,
        name: &str,
        config: &mut Config,
    ) -> Result<Self> {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let pod = answered(pods.get(name)).await;
        let pod = pod.map_err(|error| {
            Failure::new(format!(
                "the agent's own pod, {namespace}/{name}, cannot be read"
            ))
            .because(error)
            .help("POD_NAMESPACE and POD_NAME say which pod the agent is in")
        })?;
        let own = Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            said: said(&pod),
        };
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| Failure::new("this container's mounts are unknown").because(error))?;
        own.add_pools(&mounts, config)?;
        Ok(own)
    }

    fn add_pools(&self, mountinfo: &str, config: &mut Config) -> Result<()> {
        let said = self.said.iter();
        let said = said.map(|(key, value)| (key.as_str(), value.as_str()));
        let added = PoolAnnotation::read(said).map_err(|why| self.wrong(&why))?;
        let unmounted = unmounted(&added, mountinfo);
        if !unmounted.is_empty() {
            return Err(self.wrong(&unmounted));
        }
        config.add_pools(added).map_err(|why| self.wrong(&why))
    }

    /// Whether it is this pod, and says something else by now: only a new agent goes by it.
    pub(super) fn says_otherwise(&self, pod: &Pod) -> bool {
        let meta = &pod.metadata;
        meta.name.as_deref() == Some(&self.name)
            && meta.namespace.as_deref() == Some(&self.namespace)
            && said(pod) != self.said
    }

    fn wrong(&self, why: &[String]) -> Failure {
        let Self {
            namespace, name, ..
        } = self;
        Failure::new(format!("pod {namespace}/{name}: {}", why.join("; ")))
            .help("an annotation of the agent's pod says where its container has a volume mounted")
    }
}

fn said(pod: &Pod) -> BTreeMap<String, String> {
    let of_pools = [
        PoolAnnotation::PATH,
        PoolAnnotation::SHARED,
        PoolAnnotation::OVERCOMMIT,
    ];
    let all = pod.metadata.annotations.iter().flatten();
    let ours = all.filter(|(key, _)| of_pools.iter().any(|prefix| key.starts_with(prefix)));
    ours.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Without the mount it would be the container's own filesystem, and go with it.
fn unmounted(pools: &[PoolAnnotation], mountinfo: &str) -> Vec<String> {
    let mounts: Vec<_> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescaped)
        .collect();
    let lacking = pools.iter().filter(|it| !mounts.contains(&it.pool.path));
    lacking
        .map(|it| {
            format!(
                "pool {}: nothing is mounted at {} in the agent's container",
                it.name, it.pool.path
            )
        })
        .collect()
}

/// The kernel writes blanks and the like as `\\040`.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind
            .get(..3)
            .and_then(|digits| str::from_utf8(digits).ok());
        let octal = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// VMs come only to nodes that can run them, and that have their pools.
pub(super) async fn label_node(client: &kube::Client, node: &str, config: &Config) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let labels = labels_of(config);
    let labelled = patch_labels(&nodes, node, &labels).await?;
    let stale = stale_labels(&labelled, &labels);
    if !stale.is_empty() {
        patch_labels(&nodes, node, &stale).await?;
    }
    Ok(())
}

fn labels_of(config: &Config) -> Map<String, Value> {
    let pools = config.pools.keys();
    let pools = pools.map(|pool| (pool_label(pool), json!(POOL_LABEL.1)));
    let runs_vms = (NODE_LABEL.0.to_owned(), json!(NODE_LABEL.1));
    std::iter::once(runs_vms).chain(pools).collect()
}

/// Those of pools that the node does not have any more.
fn stale_labels(node: &Node, wanted: &Map<String, Value>) -> Map<String, Value> {
    let there = node.metadata.labels.iter().flatten().map(|(key, _)| key);
    let stale =
        there.filter(|key| key.starts_with(POOL_LABEL.0) && !wanted.contains_key(key.as_str()));
    stale.map(|key| (key.clone(), Value::Null)).collect()
}

async fn patch_labels(nodes: &Api<Node>, node: &str, labels: &Map<String, Value>) -> Result<Node> {
    let patch = json!({"metadata": {"labels": labels}});
    let params = PatchParams::default();
    let labelled = answered(nodes.patch(node, &params, &Patch::Merge(&patch))).await;
    labelled.map_err(|error| {
        Failure::new(format!("node {node} cannot be labelled"))
            .because(error)
            .help("--node is the node's name in the cluster")
    })
}

#[cfg(test)]
mod tests {
    use disklet_core::diag::{Diagnostics, Origin};
    use disklet_core::manifest::Input;
    use disklet_core::text::Reveal;
    use disklet_core::yaml::{self, Limits, View};

    use super::*;

    const POD: &str =
        include_str!("../../../disklet/tests/golden/seed001/06-copy-on-write/agent-pod.yaml");
    const CONFIG: &str =
        include_str!("../../../disklet/tests/golden/seed001/06-copy-on-write/config.yaml");

    fn annotated(pairs: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some("agent".to_owned());
        pod.metadata.namespace = Some("disklet".to_owned());
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        pod.metadata.annotations = Some(pairs.collect());
        pod
    }

    fn as_json(text: &str) -> Value {
        let document = yaml::documents(text, Limits::default()).next();
        let root = document.unwrap().unwrap();
        let data = View::root(&root, &Origin::from("agent-pod.yaml")).data();
        serde_json::to_value(data.under(Reveal::Redact)).unwrap()
    }

    /// The golden plan beside them stands on the same pools.
    #[test]
    fn pools_of_the_pod_are_those_of_the_configuration() {
        let pod = as_json(POD);
        let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array();
        let mounts: Vec<_> = { mounts.unwrap().iter() }
            .map(|mount| format!("31 22 8:1 / {} rw - ext4 /dev/sda rw\n", mount["mountPath"]))
            .map(|line| line.replace('"', ""))
            .collect();
        let own = OwnPod {
            namespace: "disklet".to_owned(),
            name: "libvirtd".to_owned(),
            said: said(&serde_json::from_value(pod).unwrap()),
        };
        let mut config = Config::default();
        own.add_pools(&mounts.concat(), &mut config).unwrap();
        let mut diags = Diagnostics::default();
        let input = Input {
            name: "config.yaml".into(),
            text: CONFIG.to_owned(),
        };
        let written = Config::default().read(&input, &mut diags);
        assert_eq!(diags.errors(), 0, "{diags:?}");
        assert_eq!(config.pools, written.pools);
        assert_eq!(config.pools.len(), 3, "the two, and the one of volumes");

        let lacking = own.add_pools(&mounts[..1].concat(), &mut Config::default());
        let why = lacking.unwrap_err().to_string();
        assert!(why.contains("pool slow: nothing is mounted"), "{why}");
    }

    #[test]
    fn a_pool_that_is_no_mount_is_named() {
        let mountinfo = "22 1 0:20 / / rw - overlay overlay rw\n\
                         31 22 8:1 /x /storage/ssd rw - ext4 /dev/sda1 rw\n\
                         32 22 8:2 / /storage/with\\040blank rw - ext4 /dev/sdb rw\n";
        let pools = PoolAnnotation::read([
            ("kubevirt.io/storage.usage-type.fast", "/storage/ssd"),
            ("kubevirt.io/storage.usage-type.below", "/storage/ssd/below"),
            (
                "kubevirt.io/storage.usage-type.blank",
                "/storage/with blank",
            ),
        ])
        .unwrap();
        let wrong = unmounted(&pools, mountinfo);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].contains("/storage/ssd/below"));
    }

    #[test]
    fn only_what_is_said_of_pools_makes_another_agent() {
        let fast = ("kubevirt.io/storage.usage-type.fast", "/storage/ssd");
        let own = OwnPod {
            namespace: "disklet".to_owned(),
            name: "agent".to_owned(),
            said: said(&annotated(&[fast])),
        };
        assert!(!own.says_otherwise(&annotated(&[fast, ("someone/else", "x")])));
        assert!(own.says_otherwise(&annotated(&[])));
        let mut another = annotated(&[]);
        another.metadata.name = Some("another".to_owned());
        assert!(!own.says_otherwise(&another));
    }

    #[test]
    fn labels_are_those_of_the_pools_there_are() {
        let mut node = Node::default();
        let keys = [
            "extraRuntime",
            "storage.disklet.io/volumes",
            "storage.disklet.io/old",
        ];
        let labels = keys.map(|key| (key.to_owned(), "yes".to_owned()));
        node.metadata.labels = Some(labels.into());
        let wanted = labels_of(&Config::default());
        assert_eq!(wanted.len(), 2);
        let stale = stale_labels(&node, &wanted);
        assert_eq!(stale.keys().collect::<Vec<_>>(), ["storage.disklet.io/old"]);
    }
}
