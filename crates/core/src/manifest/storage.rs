//! What a PersistentVolume's bytes are known by, and on which nodes they are.

use disklet_flexvolume::Monitor;

use crate::diag::shown;
use crate::plan::plain_path;
use crate::source::Endpoint;
use crate::yaml::{Node, Value};

/// The fields of a source by which its driver knows the storage.
const IDENTITIES: [(&str, &[&str]); 13] = [
    ("csi", &["driver", "volumeHandle"]),
    ("azureDisk", &["diskURI"]),
    ("azureFile", &["secretNamespace", "secretName", "shareName"]),
    ("cinder", &["volumeID"]),
    ("flocker", &["datasetName", "datasetUUID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("nfs", &["server", "path"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("quobyte", &["registry", "volume"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeNamespace", "volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

/// Fields that a source may leave out.
const OPTIONAL: [&str; 4] = [
    "datasetName",
    "datasetUUID",
    "secretNamespace",
    "volumeNamespace",
];

/// Disks of which a volume may be one partition, and what they are known by.
const PARTITIONED: [(&str, &str); 2] = [
    ("awsElasticBlockStore", "volumeID"),
    ("gcePersistentDisk", "pdName"),
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
    /// A unit of a Fibre Channel network.
    FibreChannel {
        /// The ports that lead to it, or its own identifiers.
        names: Vec<String>,
        /// Its number behind the ports; identifiers have none.
        lun: Option<String>,
    },
    /// A disk, or one partition of it.
    PartOf {
        /// The disk, in words that are equal for equal disks.
        disk: String,
        /// The partition; absent for the whole disk.
        part: Option<String>,
    },
    /// Any other, in words that are equal for equal storage.
    Named(String),
}

/// A field without which nobody can tell which storage it is.
type Lacking = &'static str;

/// The storage of a volume whose driver says by what it is known; nothing for
/// kinds that are not known that way.
pub(super) fn remote(volume: &Node) -> Result<Option<RemoteStorage>, Lacking> {
    let Some(spec) = volume.get("spec") else {
        return Ok(None);
    };
    if let Some(rbd) = spec.get("rbd") {
        return Ok(Some(RemoteStorage::Rbd {
            monitors: monitors(rbd)?,
            pool: text(rbd, "pool").unwrap_or("rbd").to_owned(),
            image: text(rbd, "image").ok_or("image")?.to_owned(),
        }));
    }
    if let Some(cephfs) = spec.get("cephfs") {
        let path = text(cephfs, "path").unwrap_or("/");
        return Ok(Some(RemoteStorage::Cephfs {
            monitors: monitors(cephfs)?,
            path: canonical("path", path),
        }));
    }
    if let Some(fc) = spec.get("fc") {
        return fibre_channel(fc).map(Some);
    }
    if let Some(iscsi) = spec.get("iscsi") {
        text(iscsi, "iqn").ok_or("iqn")?;
    }
    for (kind, field) in PARTITIONED {
        if let Some(source) = spec.get(kind) {
            return part_of(kind, field, source).map(Some);
        }
    }
    let mut kinds = IDENTITIES.into_iter();
    let known = kinds.find_map(|(kind, fields)| Some((kind, fields, spec.get(kind)?)));
    match known {
        Some((kind, fields, source)) => named(kind, fields, source).map(Some),
        None => Ok(None),
    }
}

fn monitors(source: &Node) -> Result<Vec<String>, Lacking> {
    let monitors = texts(source, "monitors").into_iter().map(host_of);
    let monitors: Vec<_> = monitors.collect();
    match monitors.is_empty() {
        true => Err("monitors"),
        false => Ok(monitors),
    }
}

/// The kubelet goes by the identifiers where there are any.
fn fibre_channel(fc: &Node) -> Result<RemoteStorage, Lacking> {
    let names = |field| {
        let names = texts(fc, field).into_iter().map(str::to_owned);
        let names: Vec<_> = names.collect();
        (!names.is_empty()).then_some(names)
    };
    if let Some(names) = names("wwids") {
        return Ok(RemoteStorage::FibreChannel { names, lun: None });
    }
    Ok(RemoteStorage::FibreChannel {
        names: names("targetWWNs").ok_or("targetWWNs")?,
        lun: Some(fc.get("lun").and_then(number).ok_or("lun")?),
    })
}

/// Partition 0 is the whole disk.
fn part_of(kind: &str, field: Lacking, source: &Node) -> Result<RemoteStorage, Lacking> {
    let name = shown(text(source, field).ok_or(field)?);
    // Amazon's volumes are written with and without their zone.
    let name = match field {
        "volumeID" => name.rsplit('/').next().unwrap_or(&name),
        _ => &name,
    };
    let part = source.get("partition").and_then(number);
    Ok(RemoteStorage::PartOf {
        disk: format!("{kind} {field} {name}"),
        part: part.filter(|part| !part.is_empty() && part != "0"),
    })
}

fn named(
    kind: &str,
    fields: &'static [&'static str],
    source: &Node,
) -> Result<RemoteStorage, Lacking> {
    let mut words = Vec::new();
    for field in fields {
        match text(source, field) {
            Some(text) => words.push(format!("{field} {}", canonical(field, text))),
            None if OPTIONAL.contains(field) => {}
            None => return Err(field),
        }
    }
    match (words.is_empty(), fields.first()) {
        (true, Some(field)) => Err(field),
        _ => Ok(RemoteStorage::Named(format!("{kind} {}", words.join(", ")))),
    }
}

/// The same for spellings of one thing, and without what does not show.
fn canonical(field: &str, word: &str) -> String {
    let word = shown(word);
    match field {
        "driver" | "gateway" => word.trim_end_matches('.').to_ascii_lowercase(),
        "diskURI" => word.to_ascii_lowercase(),
        "server" => server(&word),
        "path" => plain_path(&word),
        _ => word,
    }
}

/// A file server, by the one spelling of its address or name.
fn server(word: &str) -> String {
    let word = word.trim_end_matches('.');
    match Endpoint::new(word, 1) {
        Some(endpoint) => endpoint.host().to_owned(),
        None => word.to_ascii_lowercase(),
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
/// other words than host names. No node at all is no answer: no API server takes that.
pub(super) fn nodes(volume: &Node) -> Option<Vec<String>> {
    let required = volume.get("spec")?.get("nodeAffinity")?.get("required")?;
    let Value::Seq(terms) = &required.get("nodeSelectorTerms")?.value else {
        return None;
    };
    let mut nodes = Vec::new();
    for term in terms {
        nodes.extend(hosts(term)?);
    }
    (!nodes.is_empty()).then_some(nodes)
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

/// An empty text counts as none: API servers leave such fields out.
fn text<'n>(source: &'n Node, field: &str) -> Option<&'n str> {
    let text = source.get(field).and_then(word);
    text.filter(|text| !text.is_empty())
}

fn texts<'n>(source: &'n Node, field: &str) -> Vec<&'n str> {
    match source.get(field).map(|list| &list.value) {
        Some(Value::Seq(items)) => items.iter().filter_map(word).collect(),
        _ => Vec::new(),
    }
}

/// A number by its value, however it is spelled.
fn number(node: &Node) -> Option<String> {
    match &node.value {
        Value::Int(number, _) => Some(number.to_string()),
        _ => word(node).map(|text| match text.parse::<i64>() {
            Ok(number) => number.to_string(),
            Err(_) => text.to_owned(),
        }),
    }
}

fn word(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Str(text) | Value::Int(_, text) | Value::Float(_, text) => Some(text),
        _ => None,
    }
}
