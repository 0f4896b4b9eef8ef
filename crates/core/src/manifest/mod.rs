//! What users write: Kubernetes objects, read from YAML.
//!
//! Our own kinds, options and annotations are read strictly: an unknown field
//! is an error. Kubernetes' kinds are narrow views: only the fields that play
//! a part are looked at, since the API server has checked the rest.

mod account;
mod addition;
pub(crate) mod address;
mod annotations;
mod claim;
mod class;
mod container;
mod cpu;
mod data;
mod endpoints;
mod files;
mod fill;
mod kinds;
mod meta;
mod network_volume;
mod pod;
mod resources;
mod selector;
mod storage;
mod template;
mod vm;
mod volume;

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

pub use account::ServiceAccount;
pub use annotations::{
    Annotations, CpuModel, DataRef, DiskDriver, KeyedDataRef, ObjectKind, TextEncoding,
};
pub(crate) use annotations::{is_annotation_of_vm, parse_data, parse_map, private_key};
pub use claim::{Claim, ClaimRef, PersistentVolume, PvSource, VolumeMode};
pub use class::StorageClass;
pub use container::{Container, EnvFrom, EnvSource, EnvVar, VolumeDevice, VolumeMount};
pub use cpu::{CpuFeature, CpuSetting};
pub use data::DataObject;
pub use endpoints::Endpoints;
pub use files::{DataSource, DownwardFile, FieldRef, FileSource, KeyToPath, SourceFiles};
pub use fill::Fill;
pub use meta::Meta;
pub use network_volume::{GlusterfsVolume, IscsiVolume, RbdVolume};
pub use pod::VmPod;
pub(crate) use pod::{RUNTIME, RUNTIME_ANNOTATION, default_hostname, is_vm, is_vm_pod};
pub use selector::Selector;
pub use storage::RemoteStorage;
pub(crate) use template::vm_template;
pub use vm::{
    Ask, ClaimDriver, ContainerSpec, CopySpec, DiskSource, DiskSpec, FirmwareSpec, GuestPorts,
    IdentityRef, InterfaceSpec, Probe, Probes, RestartPolicy, VmCloudInit, VmCpu, VmObject,
    VmUserData,
};
pub use volume::{FlexVolume, SecretRef, Volume, VolumeSource};

use crate::diag::{Diagnostic, Diagnostics, Origin, Place};
use crate::names::{ImageName, Namespace, ObjectName};
use crate::yaml::{self, Limits, Spanned, View};
use kinds::{is_ours, kind_of, listed_in, skip};

/// A namespaced object's key.
pub type Key = (Namespace, ObjectName);

/// All objects of the input that play a part.
#[derive(Debug, Default)]
pub struct Objects {
    /// Pods that are VMs, in the order of the input.
    pub vm_pods: Vec<VmPod>,
    /// VM objects, in the order of the input.
    pub vms: Vec<VmObject>,
    /// Endpoints.
    pub endpoints: BTreeMap<Key, Endpoints>,
    /// PersistentVolumes by name.
    pub volumes: BTreeMap<ObjectName, PersistentVolume>,
    /// PersistentVolumeClaims.
    pub claims: BTreeMap<Key, Claim>,
    /// ConfigMaps.
    pub config_maps: BTreeMap<Key, DataObject>,
    /// Secrets.
    pub secrets: BTreeMap<Key, DataObject>,
    /// ServiceAccounts.
    pub accounts: BTreeMap<Key, ServiceAccount>,
    /// StorageClasses by name.
    pub classes: BTreeMap<ObjectName, StorageClass>,
    /// Disks by themselves, where such are read.
    loose: Option<Vec<DiskSpec>>,
    vm_places: BTreeMap<Key, (&'static str, Place)>,
    refused: BTreeSet<(String, String, String)>,
    /// Whether pods that others make are read, too.
    has_templates: bool,
}

/// One text of the input.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name for messages: a path as the user gave it, `<stdin>`, or an object.
    pub name: Origin,
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
                    if self.read_loose(&view, diags) {
                        continue;
                    }
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

    /// Whether there is a VM among them, as a pod or as an object.
    #[must_use]
    pub fn has_vms(&self) -> bool {
        !self.vm_pods.is_empty() || !self.vms.is_empty()
    }

    /// The images that their VMs name.
    pub fn images(&self) -> impl Iterator<Item = &ImageName> {
        let pods = self.vm_pods.iter().map(|pod| &pod.container.image.value);
        let disks = self.vms.iter().flat_map(|vm| &vm.disks);
        let images = disks.filter_map(|disk| match &disk.source.as_ref()?.value {
            DiskSource::Image(image) => Some(&image.value),
            _ => None,
        });
        pods.chain(images)
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

    /// The class of claims that name none: of several, the youngest, and of
    /// equals the first by name, as the API server chooses.
    pub(crate) fn default_class(&self) -> Option<&StorageClass> {
        let marked = self.classes.values().rev().filter(|class| class.is_default);
        marked.max_by(|one, other| one.created.cmp(&other.created))
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
        if !is_ours(view, &kind, listed, diags) {
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
            "VM" => self.read_vm(view, namespace, diags),
            name @ "Endpoints" => {
                let endpoints = Endpoints::read(view, namespace, diags);
                insert_once(&mut self.endpoints, endpoints, name, diags);
            }
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
            name @ "ServiceAccount" => {
                let account = ServiceAccount::read(view, namespace, diags);
                insert_once(&mut self.accounts, account, name, diags);
            }
            name @ "StorageClass" => {
                let class = StorageClass::read(view, diags);
                insert_once(&mut self.classes, class, name, diags);
            }
            "List" => self.read_items(view, None, namespace, diags),
            name => match listed_in(name) {
                Some(of) => self.read_items(view, Some(of), namespace, diags),
                None if self.read_template(view, namespace, diags) => {}
                None => skip(view, kind, diags),
            },
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
        if self.is_new(&pod.meta, "Pod", pod.refused, diags) {
            self.vm_pods.push(pod);
        }
    }

    fn read_vm(&mut self, view: &View<'_>, namespace: &Namespace, diags: &mut Diagnostics) {
        if let Some(vm) = VmObject::read(view, namespace, diags)
            && self.is_new(&vm.meta, "VM", vm.refused, diags)
        {
            self.vms.push(vm);
        }
    }

    /// Whether no other VM has its name: a VM pod and a VM object of one name
    /// would be one domain.
    fn is_new(
        &mut self,
        meta: &Meta,
        kind: &'static str,
        refused: bool,
        diags: &mut Diagnostics,
    ) -> bool {
        let (key, place) = (meta.key(), meta.place.clone());
        match self.vm_places.get(&key) {
            Some((first_kind, first)) if !refused => {
                diags.push(if *first_kind == kind {
                    twice(kind, &place, first)
                } else {
                    Diagnostic::error(&place, "a Pod and a VM cannot have one name")
                        .found(meta.name.as_str())
                        .help(format!(
                            "the {first_kind} is at {first}; rename one of the two"
                        ))
                });
                false
            }
            _ => {
                self.vm_places.insert(key, (kind, place));
                true
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

impl Unique for StorageClass {
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

impl Unique for Endpoints {
    type Key = Key;
    fn key(&self) -> Key {
        self.meta.key()
    }
    fn place(&self) -> &Place {
        &self.meta.place
    }
}

impl Unique for ServiceAccount {
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
