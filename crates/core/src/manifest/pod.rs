//! VM pods.

use std::collections::BTreeMap;

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::{HostName, Namespace};
use crate::yaml::{Node, Value, View};

use super::Meta;
use super::annotations::Annotations;
use super::container::Container;
use super::meta::{parse_name, texts};
use super::volume::Volume;

/// The annotation that makes a pod a VM.
pub(super) const RUNTIME_ANNOTATION: &str = "kubernetes.io/target-runtime";
/// Its value.
pub(super) const RUNTIME: &str = "virtlet.cloud";
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
    /// The service account's name.
    pub service_account: String,
    /// Whether the account's token belongs in the guest.
    pub mounts_token: bool,
    /// The guest's host name.
    pub hostname: String,
    /// Something in it was refused; it is resolved for further problems, but
    /// no plan comes of it.
    pub(crate) refused: bool,
}

/// Whether a Pod, or the template of one, is a VM.
pub(super) fn is_vm(pod: &Node) -> bool {
    let annotation = pod
        .get("metadata")
        .and_then(|meta| meta.get("annotations")?.get(RUNTIME_ANNOTATION)?.as_str());
    let class = pod
        .get("spec")
        .and_then(|spec| spec.get("runtimeClassName")?.as_str());
    annotation == Some(RUNTIME) || class == Some(RUNTIME_CLASS)
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
            .map(|mut meta| meta.entries("annotations", diags))
            .unwrap_or_default();
        let annotations = Annotations::read(&entries, diags);
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
        let volumes: Vec<_> = spec
            .items("volumes", diags)
            .iter()
            .filter_map(|item| Volume::read(item, diags))
            .collect();
        refuse_name_twice(&volumes, diags);
        let service_account = spec
            .text("serviceAccountName", diags)
            .or_else(|| spec.text("serviceAccount", diags))
            .unwrap_or("default")
            .to_owned();
        let mounts_token = spec
            .get("automountServiceAccountToken")
            .and_then(|view| view.bool(diags))
            .unwrap_or(true);
        let hostname = spec
            .spanned_text("hostname", diags)
            .filter(|name| !name.value.is_empty())
            .and_then(|name| parse_name(name, HostName::parse, diags))
            .map(|name| name.value.to_string());
        let meta = meta.unwrap_or_else(|| Meta::stand_in(view, namespace));
        let container = container?;
        Some(Self {
            hostname: hostname.unwrap_or_else(|| default_hostname(meta.name.as_str())),
            meta,
            raw_annotations,
            annotations,
            container,
            volumes,
            service_account,
            mounts_token,
            refused: diags.errors() > errors_before,
        })
    }
}

/// As the kubelet has it: the pod's name, cut to what a host name may be.
fn default_hostname(name: &str) -> String {
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
