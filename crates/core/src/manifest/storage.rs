//! What a PersistentVolume's bytes are known by, and on which nodes they are.

use disklet_flexvolume::Monitor;

use crate::diag::shown;
use crate::source::Endpoint;
use crate::yaml::{Node, Value};

/// The fields of a source by which its driver knows the storage.
const IDENTITIES: [(&str, &[&str]); 8] = [
    ("csi", &["driver", "volumeHandle"]),
    ("awsElasticBlockStore", &["volumeID", "partition"]),
    ("azureDisk", &["diskURI"]),
    ("cinder", &["volumeID"]),
    ("gcePersistentDisk", &["pdName", "partition"]),
    ("glusterfs", &["endpoints", "path"]),
    ("nfs", &["server", "path"]),
    ("vsphereVolume", &["volumePath"]),
];

/// Storage that is seen from everywhere, as a PersistentVolume names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteStorage {
    /// An image in a Ceph pool.
    Rbd {
        /// The hosts of the cluster's monitors.
        monitors: Vec<String>,
        /// The pool.
        pool: String,
        /// The image.
        image: String,
    },
    /// A directory of a Ceph filesystem.
    Cephfs {
        /// The hosts of the cluster's monitors.
        monitors: Vec<String>,
        /// The directory.
        path: String,
    },
    /// Any other, in words that are equal for equal storage.
    Named(String),
}

/// The storage of a volume whose driver says by what it is known.
pub(super) fn remote(volume: &Node) -> Option<RemoteStorage> {
    let spec = volume.get("spec")?;
    if let Some(rbd) = spec.get("rbd") {
        let Value::Seq(monitors) = &rbd.get("monitors")?.value else {
            return None;
        };
        return Some(RemoteStorage::Rbd {
            monitors: monitors.iter().filter_map(word).map(host_of).collect(),
            pool: rbd.get("pool").and_then(word).unwrap_or("rbd").to_owned(),
            image: word(rbd.get("image")?)?.to_owned(),
        });
    }
    if let Some(cephfs) = spec.get("cephfs") {
        let Value::Seq(monitors) = &cephfs.get("monitors")?.value else {
            return None;
        };
        let path = cephfs.get("path").and_then(word).unwrap_or("/");
        return Some(RemoteStorage::Cephfs {
            monitors: monitors.iter().filter_map(word).map(host_of).collect(),
            path: canonical("path", path),
        });
    }
    let (kind, fields) = IDENTITIES
        .into_iter()
        .find(|(kind, _)| spec.get(kind).is_some())?;
    let source = spec.get(kind)?;
    let mut words = Vec::new();
    for field in fields {
        match source.get(field).and_then(word) {
            Some(word) => words.push(format!("{field} {}", canonical(field, word))),
            None if *field == "partition" => {}
            None => return None,
        }
    }
    Some(RemoteStorage::Named(format!("{kind} {}", words.join(", "))))
}

/// The same for spellings of one thing, and without what does not show.
fn canonical(field: &str, word: &str) -> String {
    let word = shown(word);
    match field {
        "server" | "driver" => word.trim_end_matches('.').to_ascii_lowercase(),
        "path" => {
            let parts = word.split('/').filter(|part| !matches!(*part, "" | "."));
            parts.flat_map(|part| ["/", part]).collect()
        }
        _ => word,
    }
}

/// A monitor listens on several ports, of which one or the other is written.
/// An address has one spelling, wherever it is read.
fn host_of(monitor: &str) -> String {
    if let Some(endpoint) = Endpoint::parse(monitor, Monitor::DEFAULT_PORT) {
        return endpoint.host().to_owned();
    }
    let host = match monitor.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => monitor.split(':').next(),
    };
    host.unwrap_or(monitor).to_ascii_lowercase()
}

/// The nodes that a volume can be used on; absent if it does not say, or in
/// other words than host names.
pub(super) fn nodes(volume: &Node) -> Option<Vec<String>> {
    let required = volume.get("spec")?.get("nodeAffinity")?.get("required")?;
    let Value::Seq(terms) = &required.get("nodeSelectorTerms")?.value else {
        return None;
    };
    let mut nodes = Vec::new();
    for term in terms {
        nodes.extend(hosts(term)?);
    }
    Some(nodes)
}

/// The host names that a term allows: any one term is enough for a node, and
/// within a term every expression must hold.
fn hosts(term: &Node) -> Option<Vec<String>> {
    let Value::Seq(expressions) = &term.get("matchExpressions")?.value else {
        return None;
    };
    expressions.iter().find_map(|expression| {
        let text = |key: &str| expression.get(key).and_then(word);
        if text("key") != Some("kubernetes.io/hostname") || text("operator") != Some("In") {
            return None;
        }
        match &expression.get("values")?.value {
            Value::Seq(values) => Some(values.iter().filter_map(word).map(str::to_owned).collect()),
            _ => None,
        }
    })
}

fn word(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Str(text) | Value::Int(_, text) | Value::Float(_, text) => Some(text),
        _ => None,
    }
}
