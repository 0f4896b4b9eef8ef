//! The one container of a VM pod: its image is the boot disk.

use std::collections::BTreeMap;

use crate::diag::{Diagnostic, Diagnostics};
use crate::guest::GuestPath;
use crate::images::PullPolicy;
use crate::names::{
    ContainerName, DataKey, EnvName, ImageName, ImageNameError, ObjectName, VolumeName,
};
use crate::units::ByteSize;
use crate::yaml::{Fields, Spanned, Value, View};

use super::annotations::ObjectKind;
use super::files::{FieldRef, relative_path};
use super::meta::required_name;
use super::resources::read_memory;

/// What a VM pod's container says.
#[derive(Debug, Clone)]
pub struct Container {
    /// Its name.
    pub name: ContainerName,
    /// The boot disk's image.
    pub image: Spanned<ImageName>,
    /// Volumes to mount in the guest.
    pub mounts: Vec<VolumeMount>,
    /// Block claims, and where the guest sees them.
    pub devices: Vec<VolumeDevice>,
    /// Environment variables from whole ConfigMaps and Secrets.
    pub env_from: Vec<Spanned<EnvFrom>>,
    /// Environment variables.
    pub env: Vec<EnvVar>,
    /// The guest's memory: the limit, else the request.
    pub memory: Option<Spanned<ByteSize>>,
    /// When its image is fetched, on a cluster.
    pub pull_policy: PullPolicy,
}

/// A volume mounted in the guest.
#[derive(Debug, Clone)]
pub struct VolumeMount {
    /// Which.
    pub volume: Spanned<VolumeName>,
    /// Where.
    pub path: Spanned<GuestPath>,
    /// One file or directory of the volume instead of all of it.
    pub sub_path: Option<Spanned<String>>,
    /// The guest mounts it read-only.
    pub read_only: bool,
}

/// A block claim and its device path in the guest.
#[derive(Debug, Clone)]
pub struct VolumeDevice {
    /// Which volume.
    pub volume: Spanned<VolumeName>,
    /// Where; `/` makes it the root disk.
    pub path: Spanned<GuestPath>,
}

/// An environment variable.
#[derive(Debug, Clone)]
pub struct EnvVar {
    /// Its name.
    pub name: EnvName,
    /// Its value.
    pub source: Spanned<EnvSource>,
}

/// Where a variable's value comes from.
#[derive(Debug, Clone)]
pub enum EnvSource {
    /// Written in the manifest.
    Value(String),
    /// A key of a ConfigMap or Secret.
    Key {
        /// Which kind of object.
        kind: ObjectKind,
        /// Its name.
        name: Spanned<ObjectName>,
        /// The key.
        key: Spanned<DataKey>,
        /// Left out if missing.
        optional: bool,
    },
    /// A field of the pod.
    Field(FieldRef),
    /// Something of a pod that does not exist before it is started.
    WhenStarted,
}

/// All keys of an object as variables.
#[derive(Debug, Clone)]
pub struct EnvFrom {
    /// Which kind of object.
    pub kind: ObjectKind,
    /// Its name.
    pub name: ObjectName,
    /// Put before each name.
    pub prefix: String,
    /// Nothing is wrong if it is missing.
    pub optional: bool,
}

impl Container {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let name = required_name(&mut fields, "name", ContainerName::parse, diags);
        let image = read_image(&mut fields, diags);
        let items = fields.items("volumeMounts", diags);
        let mut mounts = Vec::with_capacity(items.len());
        mounts.extend(
            items
                .iter()
                .filter_map(|item| VolumeMount::read(item, diags)),
        );
        let devices: Vec<_> = fields
            .items("volumeDevices", diags)
            .iter()
            .filter_map(|item| VolumeDevice::read(item, diags))
            .collect();
        let places = mounts
            .iter()
            .map(|mount| &mount.path)
            .chain(devices.iter().map(|device| &device.path));
        refuse_path_twice(places, diags);
        let env_from = read_env_from(&mut fields, diags);
        let env = fields
            .items("env", diags)
            .iter()
            .filter_map(|item| EnvVar::read(item, diags))
            .collect();
        let memory = read_memory(&mut fields, diags);
        let pull_policy = read_pull_policy(&mut fields, diags);
        fields.tell_slips(diags);
        Some(Self {
            mounts,
            devices,
            env_from,
            env,
            memory,
            pull_policy,
            name: name.map_or_else(ContainerName::stand_in, |name| name.value),
            image: image.unwrap_or_else(|| Spanned {
                value: ImageName::stand_in(),
                place: view.place.clone(),
            }),
        })
    }
}

fn read_pull_policy(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> PullPolicy {
    let Some(word) = fields.spanned_text("imagePullPolicy", diags) else {
        return PullPolicy::default();
    };
    PullPolicy::parse(&word.value).unwrap_or_else(|| {
        diags.push(
            Diagnostic::error(&word.place, "not one of the allowed words")
                .found(format!("{:?}", word.value))
                .allowed(PullPolicy::WORDS.join(", "))
                .did_you_mean(&word.value, PullPolicy::WORDS),
        );
        PullPolicy::default()
    })
}

impl Container {
    /// The block claim that is the root disk, if one is.
    #[must_use]
    pub fn root_device(&self) -> Option<&VolumeDevice> {
        let mut devices = self.devices.iter();
        devices.find(|device| device.path.value.as_str() == "/")
    }
}

fn read_image(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<Spanned<ImageName>> {
    let text = fields.required_text("image", diags)?;
    match ImageName::parse(&text.value) {
        Ok(image) => Some(text.map(|_| image)),
        Err(error) => {
            let mut problem = Diagnostic::error(&text.place, format!("the image name {error}"))
                .allowed("[virtlet.cloud/]NAME[@sha256:DIGEST]");
            // What follows a question mark can be a signature or a token.
            match text.value.split_once('?') {
                _ if error == ImageNameError::Credentials => {
                    problem = problem.help("remove what stands before the \"@\"");
                }
                Some((before, _)) => problem = problem.found(format!("{before:?} and a query")),
                None => problem = problem.found(format!("{:?}", text.value)),
            }
            diags.push(problem);
            None
        }
    }
}

fn refuse_path_twice<'p>(
    paths: impl Iterator<Item = &'p Spanned<GuestPath>>,
    diags: &mut Diagnostics,
) {
    let mut seen = BTreeMap::new();
    for path in paths {
        if let Some(first) = seen.insert(&path.value, &path.place) {
            diags.push(
                Diagnostic::error(&path.place, "two volumes cannot have one path in the guest")
                    .found(&path.value)
                    .help(format!("the first is at {first}")),
            );
        }
    }
}

impl VolumeMount {
    fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let volume = required_name(&mut fields, "name", VolumeName::parse, diags);
        let path = guest_path(&mut fields, "mountPath", diags);
        if let Some(path) = &path
            && path.value.as_str() == "/"
        {
            diags.push(
                Diagnostic::error(
                    &path.place,
                    "a volume cannot be mounted over the root filesystem",
                )
                .help("to boot from a claim, name it in volumeDevices with devicePath: /"),
            );
        }
        let sub_path = fields
            .spanned_text("subPath", diags)
            .filter(|path| !path.value.is_empty())
            .and_then(|path| check_sub_path(path, diags));
        if let Some(view) = fields.get("subPathExpr") {
            diags.push(
                Diagnostic::error(&view.place, "subPathExpr is not supported").help("use subPath"),
            );
        }
        let read_only = fields.flag("readOnly", diags);
        fields.tell_slips(diags);
        Some(Self {
            volume: volume?,
            path: path?,
            sub_path,
            read_only,
        })
    }
}

fn check_sub_path(path: Spanned<String>, diags: &mut Diagnostics) -> Option<Spanned<String>> {
    match relative_path(&path.value) {
        Ok(clean) => Some(path.map(|_| clean)),
        Err(problem) => {
            diags.push(
                Diagnostic::error(&path.place, format!("the path within the volume {problem}"))
                    .found(format!("{:?}", path.value))
                    .allowed("a path within the volume, such as etc/app.conf; none for all of it"),
            );
            None
        }
    }
}

impl VolumeDevice {
    fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let volume = required_name(&mut fields, "name", VolumeName::parse, diags);
        let path = guest_path(&mut fields, "devicePath", diags);
        Some(Self {
            volume: volume?,
            path: path?,
        })
    }
}

fn guest_path(
    fields: &mut Fields<'_>,
    key: &str,
    diags: &mut Diagnostics,
) -> Option<Spanned<GuestPath>> {
    let text = fields.required_text(key, diags)?;
    match GuestPath::parse(&text.value) {
        Ok(path) => Some(text.map(|_| path)),
        Err(error) => {
            diags.push(
                Diagnostic::error(&text.place, format!("the path {error}"))
                    .found(format!("{:?}", text.value))
                    .allowed("an absolute path in the guest, such as /var/lib/data"),
            );
            None
        }
    }
}

impl EnvVar {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let name = required_name(&mut fields, "name", EnvName::parse, diags);
        let source = match fields.get("valueFrom") {
            Some(from) => {
                if let Some(value) = fields.get("value") {
                    diags.push(Diagnostic::error(
                        &value.place,
                        "a variable has a value or a source, not both",
                    ));
                }
                read_env_source(&from, diags)?
            }
            None => EnvSource::Value(plain_value(&mut fields, diags)),
        };
        fields.tell_slips(diags);
        Some(Self {
            name: name?.value,
            source: Spanned {
                value: source,
                place: view.place.clone(),
            },
        })
    }
}

/// What is wrong with a value is told without it: it may be a password.
fn plain_value(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> String {
    let Some(view) = fields.get("value") else {
        return String::new();
    };
    match &view.node.value {
        Value::Str(text) => text.to_string(),
        _ => {
            diags.push(
                Diagnostic::error(&view.place, "must be a text")
                    .found(view.node.kind())
                    .help("write it in quotes"),
            );
            String::new()
        }
    }
}

fn read_env_source(view: &View<'_>, diags: &mut Diagnostics) -> Option<EnvSource> {
    const KINDS: [&str; 3] = ["configMapKeyRef", "secretKeyRef", "fieldRef"];
    let (kind, source) = only_source(view, diags)?;
    let object = match kind {
        "configMapKeyRef" => ObjectKind::ConfigMap,
        "secretKeyRef" => ObjectKind::Secret,
        "fieldRef" => return FieldRef::read(&source, diags).map(EnvSource::Field),
        other => {
            diags.push(
                Diagnostic::error(
                    &source.place,
                    format!("{other:?} cannot give a VM a variable"),
                )
                .allowed(KINDS.join(", "))
                .did_you_mean(other, KINDS),
            );
            return None;
        }
    };
    let mut fields = source.fields(diags)?;
    let name = required_name(&mut fields, "name", ObjectName::parse, diags);
    let key = required_name(&mut fields, "key", DataKey::parse, diags);
    let optional = fields.flag("optional", diags);
    fields.tell_slips(diags);
    Some(EnvSource::Key {
        kind: object,
        name: name?,
        key: key?,
        optional,
    })
}

/// The one entry of a mapping that must have one.
pub(super) fn only_source<'n>(
    view: &View<'n>,
    diags: &mut Diagnostics,
) -> Option<(&'n str, View<'n>)> {
    if !matches!(view.node.value, Value::Map(_)) {
        view.wrong_kind("a mapping", diags);
        return None;
    }
    let mut entries = view.entries(diags).into_iter();
    let first = entries.next();
    let extra = entries.next();
    let found = match (&first, &extra) {
        (Some(_), None) => return first,
        (Some((one, _)), Some((other, _))) => format!("{one} and {other}"),
        (None, _) => "none".to_owned(),
    };
    diags.push(Diagnostic::error(&view.place, "must name exactly one source").found(found));
    None
}

pub(super) fn read_env_from(
    fields: &mut Fields<'_>,
    diags: &mut Diagnostics,
) -> Vec<Spanned<EnvFrom>> {
    let items = fields.items("envFrom", diags);
    let mut all = Vec::new();
    for item in items {
        let Some(mut source) = item.fields(diags) else {
            continue;
        };
        let prefix = source.text("prefix", diags).unwrap_or_default().to_owned();
        let mut named = false;
        for (field, kind) in [
            ("configMapRef", ObjectKind::ConfigMap),
            ("secretRef", ObjectKind::Secret),
        ] {
            let Some(object) = source.get(field) else {
                continue;
            };
            named = true;
            let Some(mut fields) = object.fields(diags) else {
                continue;
            };
            let optional = fields.flag("optional", diags);
            if let Some(name) = required_name(&mut fields, "name", ObjectName::parse, diags) {
                all.push(Spanned {
                    place: name.place,
                    value: EnvFrom {
                        kind,
                        name: name.value,
                        prefix: prefix.clone(),
                        optional,
                    },
                });
            }
        }
        let known = ["configMapRef", "secretRef", "prefix"];
        source.no_others(&known, diags);
        if !named && source.unread().is_empty() {
            diags.push(
                Diagnostic::error(&item.place, "must name exactly one source")
                    .allowed("configMapRef, secretRef"),
            );
        }
    }
    all
}
