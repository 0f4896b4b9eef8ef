//! What users write: Kubernetes objects, read from YAML.
//!
//! Our own kinds, options and annotations are read strictly: an unknown field
//! is an error. Kubernetes' kinds are narrow views: only the fields that play
//! a part are looked at, since the API server has checked the rest.

mod annotations;
mod claim;
mod container;
mod cpu;
mod data;
mod files;
mod meta;
mod pod;
mod selector;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use annotations::{
    Annotations, CpuModel, DataRef, DiskDriver, KeyedDataRef, ObjectKind, TextEncoding,
};
pub(crate) use annotations::{MAX_DISK_BYTES, parse_data};
pub use claim::{Claim, ClaimRef, PersistentVolume, PvSource, VolumeMode};
pub use container::{Container, EnvFrom, EnvSource, EnvVar, VolumeDevice, VolumeMount};
pub use cpu::{CpuFeature, CpuSetting};
pub use data::DataObject;
pub use files::{DataSource, DownwardFile, FieldRef, FileSource, KeyToPath, SourceFiles};
pub use meta::Meta;
pub use pod::VmPod;
pub use selector::Selector;
pub use volume::{FlexVolume, SecretRef, Volume, VolumeSource};

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::names::{Namespace, ObjectName};
use crate::yaml::{self, Limits, Spanned, View};

/// A namespaced object's key.
pub type Key = (Namespace, ObjectName);

/// All objects of the input that play a part.
#[derive(Debug, Default)]
pub struct Objects {
    /// Pods that are VMs, in the order of the input.
    pub vm_pods: Vec<VmPod>,
    /// PersistentVolumes by name.
    pub volumes: BTreeMap<ObjectName, PersistentVolume>,
    /// PersistentVolumeClaims.
    pub claims: BTreeMap<Key, Claim>,
    /// ConfigMaps.
    pub config_maps: BTreeMap<Key, DataObject>,
    /// Secrets.
    pub secrets: BTreeMap<Key, DataObject>,
    pod_places: BTreeMap<Key, Place>,
    refused: BTreeSet<(String, String, String)>,
}

/// One text of the input.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name for messages: a path as the user gave it, or `<stdin>`.
    pub name: Arc<str>,
    /// The text.
    pub text: String,
}

/// Longer inputs are refused: a hundred times what a thousand VMs need, and
/// small enough to be read by an administrator's laptop.
pub const MAX_INPUT_BYTES: u64 = 32 << 20;

impl Objects {
    /// Reads all documents of one input.
    pub fn read(&mut self, input: &Input, namespace: &Namespace, diags: &mut Diagnostics) {
        diags.begin_file(&input.name);
        for document in yaml::documents(&input.text, Limits::default()) {
            match document {
                Ok(root) => {
                    let view = View::root(&root, &input.name);
                    self.read_object(&view, namespace, diags);
                }
                Err(errors) => {
                    for error in errors {
                        diags.push(error.in_file(&input.name));
                    }
                }
            }
        }
    }

    /// Whether an object of this kind and name was refused: who refers to it
    /// is not told that it is missing.
    pub(crate) fn was_refused(&self, kind: &str, (namespace, name): &Key) -> bool {
        let entry = (kind.to_owned(), namespace.to_string(), name.to_string());
        self.refused.contains(&entry)
    }

    /// Whether any PersistentVolume was refused: a claim may be meant for it.
    pub(crate) fn refused_a_volume(&self) -> bool {
        self.refused
            .iter()
            .any(|(kind, _, _)| kind == "PersistentVolume")
    }

    fn read_object(&mut self, view: &View<'_>, namespace: &Namespace, diags: &mut Diagnostics) {
        let errors_before = diags.errors();
        self.read_by_kind(view, namespace, diags);
        if diags.errors() > errors_before {
            let meta = view.node.get("metadata");
            let text = |key: &str| meta.and_then(|meta| meta.get(key)?.as_str());
            let kind = view.node.get("kind").and_then(|kind| kind.as_str());
            if let (Some(kind), Some(name)) = (kind, text("name")) {
                let namespace = text("namespace").unwrap_or(namespace.as_str());
                let entry = (kind.to_owned(), namespace.to_owned(), name.to_owned());
                self.refused.insert(entry);
            }
        }
    }

    fn read_by_kind(&mut self, view: &View<'_>, namespace: &Namespace, diags: &mut Diagnostics) {
        let Some(mut fields) = view.fields(diags) else {
            return;
        };
        let Some(kind) = fields.required_text("kind", diags) else {
            return;
        };
        match kind.value.as_str() {
            "List"
            | "PodList"
            | "ConfigMapList"
            | "SecretList"
            | "PersistentVolumeList"
            | "PersistentVolumeClaimList" => {
                for item in fields.items("items", diags) {
                    self.read_object(&item, namespace, diags);
                }
            }
            "Pod" => self.read_pod(view, namespace, diags),
            "PersistentVolume" => {
                if let Some(volume) = PersistentVolume::read(view, diags) {
                    let key = volume.name.clone();
                    insert_once(
                        &mut self.volumes,
                        key,
                        volume,
                        |v| &v.place,
                        "PersistentVolume",
                        diags,
                    );
                }
            }
            "PersistentVolumeClaim" => {
                if let Some(claim) = Claim::read(view, namespace, diags) {
                    let key = claim.meta.key();
                    insert_once(
                        &mut self.claims,
                        key,
                        claim,
                        |c| &c.meta.place,
                        &kind.value,
                        diags,
                    );
                }
            }
            "ConfigMap" => {
                if let Some(map) = DataObject::read_config_map(view, namespace, diags) {
                    let key = map.meta.key();
                    insert_once(
                        &mut self.config_maps,
                        key,
                        map,
                        |m| &m.meta.place,
                        &kind.value,
                        diags,
                    );
                }
            }
            "Secret" => {
                if let Some(secret) = DataObject::read_secret(view, namespace, diags) {
                    let key = secret.meta.key();
                    insert_once(
                        &mut self.secrets,
                        key,
                        secret,
                        |s| &s.meta.place,
                        &kind.value,
                        diags,
                    );
                }
            }
            _ => skip(view, &kind, diags),
        }
    }

    fn read_pod(&mut self, view: &View<'_>, namespace: &Namespace, diags: &mut Diagnostics) {
        if !pod::is_vm(view.node) {
            diags.push(
                Diagnostic::notice(&view.place, "skipped a Pod that is not a VM").help(format!(
                    "a VM pod has the annotation {}: {}, or runtimeClassName: {}",
                    pod::RUNTIME_ANNOTATION,
                    pod::RUNTIME,
                    pod::RUNTIME_CLASS
                )),
            );
            return;
        }
        let Some(pod) = VmPod::read(view, namespace, diags) else {
            return;
        };
        let (key, place) = (pod.meta.key(), pod.meta.place.clone());
        match self.pod_places.get(&key) {
            Some(first) if !pod.refused => diags.push(twice("Pod", &place, first)),
            _ => {
                self.pod_places.insert(key, place);
                self.vm_pods.push(pod);
            }
        }
    }
}

/// The kinds that play a part.
const KINDS: [&str; 5] = [
    "Pod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ConfigMap",
    "Secret",
];

fn skip(view: &View<'_>, kind: &Spanned<String>, diags: &mut Diagnostics) {
    if KINDS
        .iter()
        .any(|known| known.eq_ignore_ascii_case(&kind.value))
    {
        diags.push(
            Diagnostic::error(&kind.place, "unknown kind")
                .found(format!("{:?}", kind.value))
                .did_you_mean(&kind.value, KINDS),
        );
        return;
    }
    let template = view.node.get("spec").and_then(|spec| spec.get("template"));
    let mut notice = Diagnostic::notice(
        &kind.place,
        format!("skipped: a {} plays no part in a plan", kind.value),
    );
    if template.is_some_and(pod::is_vm) {
        notice.message = format!(
            "skipped: the VM pods of a {} are planned one by one, once they exist",
            kind.value
        );
        notice.help = Some("give the pod itself, such as from kubectl get pod -o yaml".to_owned());
    }
    if kind.value == "NodeFacts" {
        notice.message = "skipped: facts of a node are given with --facts".to_owned();
    }
    if kind.value == "VM" {
        notice.message =
            "skipped: VM objects are not planned by this version, VM pods are".to_owned();
    }
    diags.push(notice);
}

fn insert_once<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: K,
    value: V,
    place: fn(&V) -> &Place,
    kind: &str,
    diags: &mut Diagnostics,
) {
    if let Some(first) = map.get(&key) {
        diags.push(twice(kind, place(&value), place(first)));
    } else {
        map.insert(key, value);
    }
}

fn twice(kind: &str, second: &Place, first: &Place) -> Diagnostic {
    Diagnostic::error(second, format!("this {kind} stands twice in the input"))
        .help(format!("the first is at {first}; remove one of the two"))
}
