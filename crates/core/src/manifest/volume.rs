//! The volumes of a pod.

use disklet_flexvolume::{
    self as flexvolume, Capacity, OptionError, Options, Problem, Qcow2, ValueError,
};

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::names::{Namespace, ObjectName, VolumeName};
use crate::yaml::{Fields, Spanned, Value, View};

use super::files::SourceFiles;
use super::meta::{parse_name, required_name};

/// One volume of a pod.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Its name in the pod.
    pub name: Spanned<VolumeName>,
    /// What it is.
    pub source: Spanned<VolumeSource>,
}

/// What a pod's volume is.
#[derive(Debug, Clone)]
pub enum VolumeSource {
    /// A disk described in the pod, by our FlexVolume driver.
    Flex(Box<FlexVolume>),
    /// A claim.
    Claim {
        /// The claim's name.
        name: ObjectName,
        /// The guest may not write.
        read_only: bool,
    },
    /// Files that are written into the guest: Secret, ConfigMap, projected,
    /// downwardAPI.
    Files(SourceFiles),
    /// A directory of the node or of a server, by the field's name.
    Directory(String),
    /// Something that was refused already; what refers to the volume is not
    /// blamed for it.
    Refused,
}

/// Volume kinds that are directories and cannot be disks.
const DIRECTORIES: [&str; 25] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "emptyDir",
    "ephemeral",
    "fc",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

const KINDS: [&str; 6] = [
    "flexVolume",
    "persistentVolumeClaim",
    "secret",
    "configMap",
    "projected",
    "downwardAPI",
];

impl Volume {
    /// Its name, unless that was refused, and what it is.
    pub(super) fn read(
        view: &View<'_>,
        diags: &mut Diagnostics,
    ) -> Option<(Option<Spanned<VolumeName>>, Spanned<VolumeSource>)> {
        let mut fields = view.fields(diags)?;
        let name = required_name(&mut fields, "name", VolumeName::parse, diags);
        let mut kinds = fields.unread().into_iter();
        let Some((kind, source)) = kinds.next() else {
            diags.push(
                Diagnostic::error(&view.place, "the volume does not say what it is")
                    .allowed(KINDS.join(", ")),
            );
            let place = view.place.clone();
            let value = VolumeSource::Refused;
            return Some((name, Spanned { value, place }));
        };
        if let Some((second, at)) = kinds.next() {
            diags.push(
                Diagnostic::error(&at.place, "a volume is of one kind")
                    .found(format!("{kind} and {second}"))
                    .help("remove one of the two"),
            );
        }
        let value = read_source(kind, &source, diags).unwrap_or(VolumeSource::Refused);
        let place = source.place;
        Some((name, Spanned { value, place }))
    }
}

fn read_source(kind: &str, view: &View<'_>, diags: &mut Diagnostics) -> Option<VolumeSource> {
    match kind {
        "flexVolume" => FlexVolume::read(view, Author::Tenant, diags)
            .map(|flex| VolumeSource::Flex(Box::new(flex))),
        "persistentVolumeClaim" => {
            let mut fields = view.fields(diags)?;
            let name = required_name(&mut fields, "claimName", ObjectName::parse, diags);
            let read_only = fields.flag("readOnly", diags);
            fields.tell_slips(diags);
            Some(VolumeSource::Claim {
                name: name?.value,
                read_only,
            })
        }
        "secret" => SourceFiles::read_secret(view, diags).map(VolumeSource::Files),
        "configMap" => SourceFiles::read_config_map(view, diags).map(VolumeSource::Files),
        "downwardAPI" => SourceFiles::read_downward(view, diags).map(VolumeSource::Files),
        "projected" => SourceFiles::read_projected(view, diags).map(VolumeSource::Files),
        kind if DIRECTORIES.contains(&kind) => Some(VolumeSource::Directory(kind.to_owned())),
        other => {
            diags.push(
                Diagnostic::error(&view.place, format!("unknown kind of volume {other:?}"))
                    .allowed(KINDS.join(", "))
                    .did_you_mean(other, KINDS.into_iter().chain(DIRECTORIES)),
            );
            None
        }
    }
}

/// A disk by our FlexVolume driver.
#[derive(Debug, Clone)]
pub struct FlexVolume {
    /// What the options say.
    pub options: Options,
    /// The guest may not write.
    pub read_only: bool,
    /// A Secret with the Ceph key, so that the key need not stand in the
    /// manifest.
    pub secret: Option<SecretRef>,
    place: Place,
    option_places: Vec<(String, Place)>,
}

/// A Secret that a flexvolume names.
#[derive(Debug, Clone)]
pub struct SecretRef {
    /// Its name.
    pub name: Spanned<ObjectName>,
    /// Its namespace, if it is not the pod's. Only a PersistentVolume, which
    /// an administrator writes, can name one.
    pub namespace: Option<Namespace>,
}

/// Who wrote a flexvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// A tenant, in a pod.
    Tenant,
    /// An administrator, in a PersistentVolume.
    Administrator,
}

impl SecretRef {
    pub(super) fn read(view: &View<'_>, author: Author, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let name = required_name(&mut fields, "name", ObjectName::parse, diags);
        let namespace = fields.spanned_text("namespace", diags);
        fields.tell_slips(diags);
        if let (Some(namespace), Author::Tenant) = (&namespace, author) {
            diags.push(
                Diagnostic::error(
                    &namespace.place,
                    "a pod cannot use a Secret of another namespace",
                )
                .help("remove namespace; the Secret must be in the pod's own"),
            );
            return None;
        }
        Some(Self {
            name: name?,
            namespace: namespace
                .and_then(|text| parse_name(text, Namespace::parse, diags))
                .map(|namespace| namespace.value),
        })
    }
}

impl FlexVolume {
    /// Where an option stands, or the volume if it is left out.
    #[must_use]
    pub fn place_of(&self, option: &str) -> &Place {
        self.option_places
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(option))
            .map_or(&self.place, |(_, place)| place)
    }

    pub(super) fn read(view: &View<'_>, author: Author, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let driver = fields.required_text("driver", diags)?;
        if !flexvolume::is_ours(&driver.value) {
            diags.push(
                Diagnostic::error(
                    &driver.place,
                    "another FlexVolume driver's volume cannot be a disk of a VM",
                )
                .found(format!("{:?}", driver.value))
                .allowed(flexvolume::DRIVERS.join(", "))
                .did_you_mean(&driver.value, flexvolume::DRIVERS),
            );
            return None;
        }
        let read_only = fields.flag("readOnly", diags);
        let secret = fields
            .get("secretRef")
            .and_then(|secret| SecretRef::read(&secret, author, diags));
        let (options, option_places) = match fields.get("options") {
            Some(options) => read_options(&options, diags)?,
            None => {
                for (key, view) in fields
                    .unread()
                    .into_iter()
                    .filter(|(key, _)| *key != "fsType")
                {
                    diags.push(
                        Diagnostic::error(&view.place, format!("unknown field {key:?}"))
                            .allowed("driver, options, readOnly, secretRef, fsType")
                            .did_you_mean(key, ["driver", "options", "readOnly", "secretRef"]),
                    );
                }
                if fields.unread().iter().any(|(key, _)| *key != "fsType") {
                    return None;
                }
                (read_entries(&fields, &[], diags)?, Vec::new())
            }
        };
        let filesystem = fields.spanned_text("fsType", diags);
        fields.tell_slips(diags);
        if let Some(name) = filesystem
            && let Some(problem) = options.filesystem_problem(&name.value)
        {
            diags.push(
                Diagnostic::error(&name.place, problem.to_string())
                    .found(format!("{:?}", name.value))
                    .allowed(Qcow2::FILESYSTEM),
            );
        }
        if let Some(secret) = &secret
            && let Some(problem) = options.secret_problem()
        {
            diags.push(
                Diagnostic::error(&secret.name.place, problem.to_string()).help(problem.remedy()),
            );
        }
        Some(Self {
            options,
            read_only,
            secret,
            place: view.place.clone(),
            option_places,
        })
    }
}

/// Options that a resolution may have to point at.
const PLACED: [&str; 2] = ["path", "capacity"];

/// The options, and where those stand that may be pointed at.
fn read_options(
    view: &View<'_>,
    diags: &mut Diagnostics,
) -> Option<(Options, Vec<(String, Place)>)> {
    let fields = view.fields(diags)?;
    let entries = view.entries(diags).into_iter();
    let (reserved, entries): (Vec<_>, Vec<_>) = entries.partition(|(key, _)| is_reserved(key));
    for (key, view) in reserved {
        diags.push(
            Diagnostic::error(&view.place, "a name that Kubernetes keeps for itself")
                .found(format!("{key:?}"))
                .help("remove the option; a filesystem is named by fsType, beside the options"),
        );
    }
    let options = read_entries(&fields, &entries, diags)?;
    let placed = |key: &str| PLACED.iter().any(|known| known.eq_ignore_ascii_case(key));
    let places = entries
        .into_iter()
        .filter(|(key, _)| placed(key))
        .map(|(key, view)| (key.to_owned(), view.place))
        .collect();
    Some((options, places))
}

/// The kubelet adds such options on its way to the driver; API servers refuse them from
/// users.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let domain = format!(".{}", domain.to_ascii_lowercase());
    [".kubernetes.io", ".k8s.io"]
        .iter()
        .any(|end| domain.ends_with(end))
}

/// Options are texts. What is written as a number is reported and read on as
/// a text, so that the other problems show in the same run.
fn read_entries(
    options: &Fields<'_>,
    entries: &[(&str, View<'_>)],
    diags: &mut Diagnostics,
) -> Option<Options> {
    let errors_before = diags.errors();
    let mut texts = Vec::new();
    let mut refused = Vec::new();
    for (key, view) in entries {
        match option_text(key, view, diags) {
            Some(text) => texts.push((*key, text)),
            None => refused.push(*key),
        }
    }
    match Options::parse(texts) {
        Ok(options) => (diags.errors() == errors_before).then_some(options),
        Err(errors) => {
            // What was refused already is not missing.
            let known = |error: &OptionError| {
                let mut refused = refused.iter();
                refused.any(|key| key.eq_ignore_ascii_case(&error.key))
            };
            for error in errors.into_iter().filter(|error| !known(error)) {
                let entry = entries.iter().find(|(key, _)| *key == error.key);
                let place = entry.map_or_else(
                    || {
                        let mut place = options.place().clone();
                        place.path = place.path.key(&error.key);
                        place
                    },
                    |(_, view)| view.place.clone(),
                );
                let mut problem = Diagnostic::error(&place, error.message());
                if let Some(found) = error.found() {
                    problem = problem.found(format!("{found:?}"));
                }
                problem = problem.allowed(error.allowed());
                if let Some(near) = error.suggestion() {
                    problem = problem.help(format!("did you mean {near:?}?"));
                } else if is_no_size(&error.problem) {
                    problem = problem.help(CAPACITY_HELP);
                }
                diags.push(problem);
            }
            None
        }
    }
}

const CAPACITY_HELP: &str =
    "write a size in quotes, such as \"10GiB\"; without the option it is 1024MB";

fn is_no_size(problem: &Problem) -> bool {
    let Problem::BadValue { why, .. } = problem else {
        return false;
    };
    matches!(why, ValueError::Capacity(_))
}

fn option_text<'n>(key: &str, view: &View<'n>, diags: &mut Diagnostics) -> Option<&'n str> {
    match &view.node.value {
        Value::Str(text) => Some(text),
        Value::Int(_, text) | Value::Float(_, text) => {
            // The value shows only where it cannot be (part of) a key.
            let open = ["part", "capacity", "type"].contains(&key.to_ascii_lowercase().as_str());
            if key.eq_ignore_ascii_case("capacity") && Capacity::parse(text).is_err() {
                // Quotes would not mend it, and what is wrong with it is told.
            } else if open {
                view.wrong_kind("a text", diags);
            } else {
                diags.push(
                    Diagnostic::error(&view.place, "must be a text")
                        .found("a number")
                        .help("write it in quotes"),
                );
            }
            Some(text)
        }
        Value::Null => Some(""),
        _ => {
            view.wrong_kind("a text", diags);
            None
        }
    }
}
