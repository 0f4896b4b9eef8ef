//! VM pods.

use std::collections::BTreeMap;

use crate::diag::{Diagnostic, Diagnostics, Place, is_slip};
use crate::names::{HostName, Namespace};
use crate::yaml::{Fields, Node, Spanned, Value, View};

use super::Meta;
use super::account::{AUTOMOUNT, DEFAULT_ACCOUNT};
use super::annotations::{Annotations, RECREATE_ROOT};
use super::container::Container;
use super::meta::{parse_name, texts};
use super::volume::{Volume, VolumeSource};

/// The annotation that makes a pod a VM.
pub(crate) const RUNTIME_ANNOTATION: &str = "kubernetes.io/target-runtime";
/// Its value.
pub(crate) const RUNTIME: &str = "virtlet.cloud";
/// The runtime class that does the same.
pub(super) const RUNTIME_CLASS: &str = "disklet";

/// A pod that is a VM.
#[derive(Debug, Clone)]
pub struct VmPod {
    /// Who it is.
    pub meta: Meta,
    /// All its annotations as written, for the downward API.
    pub raw_annotations: Vec<(String, String)>,
    /// What our annotations say.
    pub annotations: Annotations,
    /// The VM.
    pub container: Container,
    /// Its volumes, in order.
    pub volumes: Vec<Volume>,
    /// What the volumes are whose names were refused, for their other problems.
    pub(crate) unnamed: Vec<Spanned<VolumeSource>>,
    /// The service account's name.
    pub service_account: String,
    /// Whether the account's token belongs in the guest, if the pod says so
    /// itself.
    pub mounts_token: Option<bool>,
    /// The guest's host name.
    pub hostname: String,
    /// The node that it is bound to, if it is.
    pub node: Option<String>,
    /// Who makes such pods, such as `Deployment prod/web`, if it is the template of one.
    pub maker: Option<String>,
    /// Something in it was refused; it is resolved for further problems, but
    /// no plan comes of it.
    pub(crate) refused: bool,
}

/// Whether a Pod, or the template of one, is a VM.
pub(crate) fn is_vm(pod: &Node) -> bool {
    let annotations = pod.get("metadata").and_then(|meta| meta.get("annotations"));
    let class = pod
        .get("spec")
        .and_then(|spec| spec.get("runtimeClassName")?.as_str());
    is_vm_pod(|key| annotations?.get(key)?.as_str(), class)
}

/// Whether a pod with such annotations, and such a runtime class, is a VM.
pub(crate) fn is_vm_pod<'a>(
    annotation: impl FnOnce(&str) -> Option<&'a str>,
    class: Option<&str>,
) -> bool {
    annotation(RUNTIME_ANNOTATION) == Some(RUNTIME) || class == Some(RUNTIME_CLASS)
}

/// What in a Pod that is no VM is a slip for what would make it one, and what
/// was meant.
pub(super) fn nearly_vm(pod: &Node) -> Option<(&str, &'static str)> {
    let meta = pod.get("metadata");
    let annotations = meta.and_then(|meta| meta.get("annotations"));
    let spec = pod.get("spec");
    [
        (Some(pod), "metadata"),
        (Some(pod), "spec"),
        (meta, "annotations"),
        (annotations, RUNTIME_ANNOTATION),
        (spec, "runtimeClassName"),
    ]
    .into_iter()
    .find_map(|(map, key)| Some((slip_for(map?, key)?, key)))
    .or_else(|| {
        let runtime = annotations.and_then(|all| all.get(RUNTIME_ANNOTATION)?.as_str());
        let class = spec.and_then(|spec| spec.get("runtimeClassName")?.as_str());
        [(runtime, RUNTIME), (class, RUNTIME_CLASS)]
            .into_iter()
            .find_map(|(word, wanted)| Some((word.filter(|word| is_slip(word, wanted))?, wanted)))
    })
}

fn slip_for<'n>(map: &'n Node, wanted: &str) -> Option<&'n str> {
    let Value::Map(entries) = &map.value else {
        return None;
    };
    let mut keys = entries.iter().map(|entry| &*entry.key);
    keys.find(|key| is_slip(key, wanted))
}

/// Why a VM pod has no disks any more, if it has none.
pub(super) fn gone(pod: &Node) -> Option<&'static str> {
    let deleted = pod
        .get("metadata")
        .and_then(|meta| meta.get("deletionTimestamp"))
        .is_some_and(|time| time.value != Value::Null);
    let phase = pod
        .get("status")
        .and_then(|status| status.get("phase")?.as_str());
    match phase {
        Some("Succeeded") => Some("skipped a VM pod that has ended: its phase is Succeeded"),
        Some("Failed") => Some("skipped a VM pod that has ended: its phase is Failed"),
        _ if deleted => Some("skipped a VM pod that is being deleted"),
        _ => None,
    }
}

impl VmPod {
    pub(super) fn read(
        view: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let errors_before = diags.errors();
        let mut object = view.fields(diags)?;
        let meta = Meta::read(view, &mut object, namespace, diags);
        let entries = object
            .fields("metadata", diags)
            .map(|mut meta| {
                let entries = meta.entries("annotations", diags);
                meta.tell_slips(diags);
                entries
            })
            .unwrap_or_default();
        let annotations = Annotations::read(&entries, diags);
        let recreate_place = entries
            .iter()
            .find(|(key, _)| *key == RECREATE_ROOT)
            .map(|(_, view)| view.place.clone());
        let raw_annotations = texts(entries, &mut Diagnostics::default());
        let mut spec = object.required("spec", diags)?.fields(diags)?;
        let container = read_container(&spec.required("containers", diags)?, diags);
        for key in ["initContainers", "ephemeralContainers"] {
            if let Some(view) = spec.get(key)
                && !view.items(diags).is_empty()
            {
                diags.push(Diagnostic::error(
                    &view.place,
                    format!("a VM pod has one container and no {key}"),
                ));
            }
        }
        let (volumes, unnamed) = read_volumes(&mut spec, diags);
        refuse_name_twice(&volumes, diags);
        let service_account = spec
            .text("serviceAccountName", diags)
            .or_else(|| spec.text("serviceAccount", diags))
            .filter(|name| !name.is_empty())
            .unwrap_or(DEFAULT_ACCOUNT)
            .to_owned();
        let mounts_token = spec.get(AUTOMOUNT).and_then(|view| view.bool(diags));
        let hostname = spec
            .spanned_text("hostname", diags)
            .filter(|name| !name.value.is_empty())
            .and_then(|name| parse_name(name, HostName::parse, diags))
            .map(|name| name.value.to_string());
        let node = spec.text("nodeName", diags).map(str::to_owned);
        // It has been looked at to know that the pod is a VM.
        spec.get("runtimeClassName");
        spec.tell_slips(diags);
        object.tell_slips(diags);
        let meta = meta.unwrap_or_else(|| Meta::stand_in(view, namespace));
        let container = container?;
        tell_idle_recreation(&annotations, &container, &recreate_place, diags);
        Some(Self {
            hostname: hostname.unwrap_or_else(|| default_hostname(meta.name.as_str())),
            meta,
            raw_annotations,
            annotations,
            container,
            volumes,
            unnamed,
            service_account,
            mounts_token,
            node: node.filter(|name| !name.is_empty()),
            maker: None,
            refused: diags.errors() > errors_before,
        })
    }
}

/// The volumes, and what those are whose names were refused.
fn read_volumes(
    spec: &mut Fields<'_>,
    diags: &mut Diagnostics,
) -> (Vec<Volume>, Vec<Spanned<VolumeSource>>) {
    let items = spec.items("volumes", diags);
    let (mut volumes, mut unnamed) = (Vec::with_capacity(items.len()), Vec::new());
    for item in items {
        match Volume::read(&item, diags) {
            Some((Some(name), source)) => volumes.push(Volume { name, source }),
            Some((None, source)) => unnamed.push(source),
            None => {}
        }
    }
    (volumes, unnamed)
}

/// Only a persistent root outlives its pod.
fn tell_idle_recreation(
    annotations: &Annotations,
    container: &Container,
    place: &Option<Place>,
    diags: &mut Diagnostics,
) {
    let persistent = container.root_device().is_some();
    if let (true, false, Some(place)) = (annotations.recreate_root, persistent, place) {
        diags.push(
            Diagnostic::notice(place, "has no effect without a persistent root")
                .help("a root that comes from the image alone is new with every pod"),
        );
    }
}

/// As the kubelet has it: the pod's name, cut to what a host name may be.
pub(crate) fn default_hostname(name: &str) -> String {
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

fn read_container(containers: &View<'_>, diags: &mut Diagnostics) -> Option<Container> {
    let all = containers.items(diags);
    match all.as_slice() {
        [only] => Container::read(only, diags),
        several => {
            let problem =
                Diagnostic::error(&containers.place, "a VM pod has one container: the VM")
                    .found(format!("{} containers", several.len()));
            if several.len() > 1 {
                diags.push(problem.help("put the others into a pod of their own"));
            } else if matches!(containers.node.value, Value::Seq(_)) {
                diags.push(problem);
            }
            None
        }
    }
}

fn refuse_name_twice(volumes: &[Volume], diags: &mut Diagnostics) {
    let mut seen = BTreeMap::new();
    for volume in volumes {
        let name = &volume.name;
        if let Some(first) = seen.insert(&name.value, &name.place) {
            diags.push(
                Diagnostic::error(&name.place, "two volumes cannot have one name")
                    .found(&name.value)
                    .help(format!("the first is at {first}")),
            );
        }
    }
}
