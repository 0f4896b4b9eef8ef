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
mod storage;
mod volume;

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

pub use annotations::{
    Annotations, CpuModel, DataRef, DiskDriver, KeyedDataRef, ObjectKind, TextEncoding,
};
pub(crate) use annotations::{MAX_DISK_BYTES, parse_data, private_key};
pub use claim::{Claim, ClaimRef, PersistentVolume, PvSource, VolumeMode};
pub use container::{Container, EnvFrom, EnvSource, EnvVar, VolumeDevice, VolumeMount};
pub use cpu::{CpuFeature, CpuSetting};
pub use data::DataObject;
pub use files::{DataSource, DownwardFile, FieldRef, FileSource, KeyToPath, SourceFiles};
pub use meta::Meta;
pub use pod::VmPod;
pub use selector::Selector;
pub use storage::RemoteStorage;
pub use volume::{FlexVolume, SecretRef, Volume, VolumeSource};

use crate::config::Config;
use crate::diag::{Diagnostic, Diagnostics, Place, Severity};
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

/// All inputs of a run together: what is read from them stays in memory.
pub const MAX_RUN_BYTES: u64 = 64 << 20;

impl Objects {
    /// Reads all documents of one input.
    pub fn read(&mut self, input: &Input, namespace: &Namespace, diags: &mut Diagnostics) {
        diags.begin_file(&input.name);
        for document in yaml::documents(&input.text, Limits::default()) {
            match document {
                Ok(root) => {
                    let view = View::root(&root, &input.name);
                    self.read_object(&view, None, namespace, diags);
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

    /// Reads an object; `listed` is the kind of the typed list it is in.
    fn read_object(
        &mut self,
        view: &View<'_>,
        listed: Option<&'static str>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) {
        let errors_before = diags.errors();
        let Some(kind) = kind_of(view, listed, diags) else {
            return;
        };
        if !is_of_the_core(view, &kind, diags) {
            return;
        }
        self.read_by_kind(view, &kind, namespace, diags);
        if diags.errors() > errors_before {
            let meta = view.node.get("metadata");
            let text = |key: &str| meta.and_then(|meta| meta.get(key)?.as_str());
            if let Some(name) = text("name") {
                let namespace = text("namespace").unwrap_or(namespace.as_str());
                let entry = (kind.value, namespace.to_owned(), name.to_owned());
                self.refused.insert(entry);
            }
        }
    }

    fn read_by_kind(
        &mut self,
        view: &View<'_>,
        kind: &Spanned<String>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) {
        match kind.value.as_str() {
            "Pod" => self.read_pod(view, namespace, diags),
            name @ "PersistentVolume" => {
                let volume = PersistentVolume::read(view, diags);
                insert_once(&mut self.volumes, volume, name, diags);
            }
            name @ "PersistentVolumeClaim" => {
                let claim = Claim::read(view, namespace, diags);
                insert_once(&mut self.claims, claim, name, diags);
            }
            name @ "ConfigMap" => {
                let map = DataObject::read_config_map(view, namespace, diags);
                insert_once(&mut self.config_maps, map, name, diags);
            }
            name @ "Secret" => {
                let secret = DataObject::read_secret(view, namespace, diags);
                insert_once(&mut self.secrets, secret, name, diags);
            }
            "List" => self.read_items(view, None, namespace, diags),
            name => {
                let of = name.strip_suffix("List");
                match KINDS.into_iter().find(|known| of == Some(known)) {
                    Some(of) => self.read_items(view, Some(of), namespace, diags),
                    None => skip(view, kind, diags),
                }
            }
        }
    }

    fn read_items(
        &mut self,
        view: &View<'_>,
        of: Option<&'static str>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) {
        let Some(mut list) = view.fields(diags) else {
            return;
        };
        for item in list.items("items", diags) {
            self.read_object(&item, of, namespace, diags);
        }
    }

    fn read_pod(&mut self, view: &View<'_>, namespace: &Namespace, diags: &mut Diagnostics) {
        if !pod::is_vm(view.node) {
            diags.push(not_a_vm(view));
            return;
        }
        if let Some(why) = pod::gone(view.node) {
            let help = "give the pod that takes its place";
            diags.push(Diagnostic::notice(&view.place, why).help(help));
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

fn not_a_vm(view: &View<'_>) -> Diagnostic {
    let message = "skipped a Pod that is not a VM";
    if let Some((written, meant)) = pod::nearly_vm(view.node) {
        return Diagnostic::notice(&view.place, message)
            .found(format!("{written:?}"))
            .help(format!("did you mean {meant:?}?"));
    }
    Diagnostic::aside(&view.place, message).help(format!(
        "a VM pod has the annotation {}: {}, or runtimeClassName: {}",
        pod::RUNTIME_ANNOTATION,
        pod::RUNTIME,
        pod::RUNTIME_CLASS
    ))
}

/// The kinds that play a part.
const KINDS: [&str; 5] = [
    "Pod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ConfigMap",
    "Secret",
];

/// What an object says that it is. In a typed list, the items of the API
/// server's own answers leave it to the list.
fn kind_of(
    view: &View<'_>,
    listed: Option<&'static str>,
    diags: &mut Diagnostics,
) -> Option<Spanned<String>> {
    let mut fields = view.fields(diags)?;
    if let Some(kind) = fields.get("kind") {
        return kind.spanned_text(diags);
    }
    if let Some(listed) = listed {
        return Some(Spanned {
            value: listed.to_owned(),
            place: view.place.clone(),
        });
    }
    if let Some(setting) = Config::FIELDS.iter().find_map(|key| fields.get(key)) {
        diags.push(
            Diagnostic::error(
                &setting.place,
                "a setting of the node has no place in a manifest",
            )
            .help("give the configuration file with --config instead of -f"),
        );
        return None;
    }
    fields.required_text("kind", diags)
}

/// Whether an object is of the kinds that we know by their name alone: others
/// may have a kind of the same name.
fn is_of_the_core(view: &View<'_>, kind: &Spanned<String>, diags: &mut Diagnostics) -> bool {
    let name = kind.value.strip_suffix("List").unwrap_or(&kind.value);
    if !(name.is_empty() || KINDS.contains(&name)) {
        return true;
    }
    let version = view
        .fields(diags)
        .and_then(|mut fields| fields.spanned_text("apiVersion", diags));
    let Some(version) = version.filter(|version| version.value != "v1") else {
        return true;
    };
    diags.push(if version.value.contains('/') {
        Diagnostic::aside(
            &kind.place,
            format!(
                "skipped: a {} of {} plays no part in a plan",
                kind.value, version.value
            ),
        )
    } else {
        Diagnostic::error(&version.place, format!("not a version of a {}", kind.value))
            .found(format!("{:?}", version.value))
            .allowed("v1")
    });
    false
}

fn skip(view: &View<'_>, kind: &Spanned<String>, diags: &mut Diagnostics) {
    let lists = KINDS.map(|kind| format!("{kind}List"));
    let lists = lists.iter().map(String::as_str);
    let known = || KINDS.into_iter().chain(lists.clone()).chain(["List"]);
    if known().any(|known| known.eq_ignore_ascii_case(&kind.value)) {
        diags.push(
            Diagnostic::error(&kind.place, "unknown kind")
                .found(format!("{:?}", kind.value))
                .did_you_mean(&kind.value, known()),
        );
        return;
    }
    let template = view.node.get("spec").and_then(|spec| spec.get("template"));
    let mut notice = Diagnostic::aside(
        &kind.place,
        format!("skipped: a {} plays no part in a plan", kind.value),
    );
    if template.is_some_and(pod::is_vm) {
        notice.severity = Severity::Notice;
        notice.message = format!(
            "skipped: the VM pods of a {} are planned one by one, once they exist",
            kind.value
        );
        notice.help = Some("give the pod itself, such as from kubectl get pod -o yaml".to_owned());
    }
    if kind.value == "NodeFacts" {
        notice.severity = Severity::Notice;
        notice.message = "skipped: facts of a node are given with --facts".to_owned();
    }
    if ["VM", "VirtualMachine", "VirtualMachineInstance"].contains(&kind.value.as_str()) {
        notice.severity = Severity::Notice;
        notice.message = format!(
            "skipped: {} objects are not planned by this version, VM pods are",
            kind.value
        );
    }
    diags.push(notice);
}

/// An object that stands in the input once.
trait Unique {
    type Key: Ord;
    fn key(&self) -> Self::Key;
    fn place(&self) -> &Place;
}

impl Unique for PersistentVolume {
    type Key = ObjectName;
    fn key(&self) -> ObjectName {
        self.name.clone()
    }
    fn place(&self) -> &Place {
        &self.place
    }
}

impl Unique for Claim {
    type Key = Key;
    fn key(&self) -> Key {
        self.meta.key()
    }
    fn place(&self) -> &Place {
        &self.meta.place
    }
}

impl Unique for DataObject {
    type Key = Key;
    fn key(&self) -> Key {
        self.meta.key()
    }
    fn place(&self) -> &Place {
        &self.meta.place
    }
}

fn insert_once<V: Unique>(
    map: &mut BTreeMap<V::Key, V>,
    value: Option<V>,
    kind: &str,
    diags: &mut Diagnostics,
) {
    let Some(value) = value else { return };
    match map.entry(value.key()) {
        Entry::Vacant(entry) => {
            entry.insert(value);
        }
        Entry::Occupied(first) => diags.push(twice(kind, value.place(), first.get().place())),
    }
}

fn twice(kind: &str, second: &Place, first: &Place) -> Diagnostic {
    Diagnostic::error(second, format!("this {kind} stands twice in the input"))
        .help(format!("the first is at {first}; remove one of the two"))
}
