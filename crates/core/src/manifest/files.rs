//! Volumes that become files in the guest: Secret, ConfigMap, downwardAPI and
//! projected volumes.

use crate::diag::{Diagnostic, Diagnostics};
use crate::guest::GuestPath;
use crate::names::{DataKey, ObjectName};
use crate::yaml::{Fields, Spanned, Value, View};

use super::container::only_source;
use super::meta::required_name;

/// Files of one volume.
#[derive(Debug, Clone)]
pub struct SourceFiles {
    /// Permission bits of files that have none of their own.
    pub default_mode: u32,
    /// Where the files come from, in order; later ones win.
    pub sources: Vec<Spanned<FileSource>>,
}

/// Where files come from.
#[derive(Debug, Clone)]
pub enum FileSource {
    /// The keys of a Secret.
    Secret(DataSource),
    /// The keys of a ConfigMap.
    ConfigMap(DataSource),
    /// Fields of the pod itself.
    Downward(Vec<DownwardFile>),
    /// A token that the cluster issues for the pod's service account.
    Token {
        /// The file's name.
        path: String,
    },
}

/// The keys of a Secret or ConfigMap as files.
#[derive(Debug, Clone)]
pub struct DataSource {
    /// The object.
    pub name: Spanned<ObjectName>,
    /// Which keys go where; absent: every key under its own name.
    pub items: Option<Vec<KeyToPath>>,
    /// Nothing is wrong if the object or a key is missing.
    pub optional: bool,
}

/// One key and its file.
#[derive(Debug, Clone)]
pub struct KeyToPath {
    /// The key.
    pub key: Spanned<DataKey>,
    /// The file's path within the volume.
    pub path: String,
    /// Its permission bits.
    pub mode: Option<u32>,
}

/// A field of the pod as a file.
#[derive(Debug, Clone)]
pub struct DownwardFile {
    /// The file's path within the volume.
    pub path: String,
    /// The field.
    pub field: FieldRef,
    /// Its permission bits.
    pub mode: Option<u32>,
}

/// A field of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldRef {
    /// `metadata.name`
    Name,
    /// `metadata.namespace`
    Namespace,
    /// `metadata.uid`
    Uid,
    /// `metadata.labels`, all of them
    Labels,
    /// `metadata.annotations`, all of them
    Annotations,
    /// `metadata.labels['…']`
    Label(String),
    /// `metadata.annotations['…']`
    Annotation(String),
    /// `spec.serviceAccountName`
    ServiceAccount,
    /// A field that is known when the pod runs, such as `status.podIP`
    WhenRunning(&'static str),
}

const FIELDS_WHEN_RUNNING: [&str; 5] = [
    "spec.nodeName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

impl FieldRef {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let path = view.fields(diags)?.required_text("fieldPath", diags)?;
        let subscript = |prefix: &str| {
            let key = path.value.strip_prefix(prefix)?.strip_suffix("']")?;
            Some(key.to_owned())
        };
        let field = match path.value.as_str() {
            "metadata.name" => Some(Self::Name),
            "metadata.namespace" => Some(Self::Namespace),
            "metadata.uid" => Some(Self::Uid),
            "metadata.labels" => Some(Self::Labels),
            "metadata.annotations" => Some(Self::Annotations),
            "spec.serviceAccountName" => Some(Self::ServiceAccount),
            other => FIELDS_WHEN_RUNNING
                .into_iter()
                .find(|field| *field == other)
                .map(Self::WhenRunning)
                .or_else(|| subscript("metadata.labels['").map(Self::Label))
                .or_else(|| subscript("metadata.annotations['").map(Self::Annotation)),
        };
        if field.is_none() {
            diags.push(
                Diagnostic::error(&path.place, "not a field of a pod that files can show")
                    .found(format!("{:?}", path.value))
                    .allowed("metadata.name, .namespace, .uid, .labels, .annotations, .labels['KEY'], .annotations['KEY'], spec.serviceAccountName, spec.nodeName, status.podIP, status.hostIP"),
            );
        }
        field
    }
}

/// What Kubernetes gives files that say nothing.
const DEFAULT_MODE: u32 = 0o644;

impl SourceFiles {
    /// The paths of tokens that the cluster issues.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        let sources = self.sources.iter();
        sources.filter_map(|source| match &source.value {
            FileSource::Token { path } => Some(path.as_str()),
            _ => None,
        })
    }

    pub(super) fn read_secret(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let source = DataSource::read(&mut fields, "secretName", diags).map(FileSource::Secret);
        Self::single(view, &mut fields, source, diags)
    }

    pub(super) fn read_config_map(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let source = DataSource::read(&mut fields, "name", diags).map(FileSource::ConfigMap);
        Self::single(view, &mut fields, source, diags)
    }

    pub(super) fn read_downward(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let source = Some(FileSource::Downward(downward_files(&mut fields, diags)));
        Self::single(view, &mut fields, source, diags)
    }

    fn single(
        view: &View<'_>,
        fields: &mut Fields<'_>,
        source: Option<FileSource>,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let default_mode = mode(fields, "defaultMode", diags).unwrap_or(DEFAULT_MODE);
        fields.tell_slips(diags);
        let place = view.place.clone();
        Some(Self {
            default_mode,
            sources: vec![Spanned {
                value: source?,
                place,
            }],
        })
    }

    pub(super) fn read_projected(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let default_mode = mode(&mut fields, "defaultMode", diags).unwrap_or(DEFAULT_MODE);
        let sources = fields
            .items("sources", diags)
            .iter()
            .filter_map(|item| projection(item, diags))
            .collect();
        fields.tell_slips(diags);
        Some(Self {
            default_mode,
            sources,
        })
    }
}

const PROJECTIONS: [&str; 4] = ["secret", "configMap", "downwardAPI", "serviceAccountToken"];

fn projection(view: &View<'_>, diags: &mut Diagnostics) -> Option<Spanned<FileSource>> {
    let (kind, source) = only_source(view, diags)?;
    let mut fields = source.fields(diags)?;
    let value = match kind {
        "secret" => FileSource::Secret(DataSource::read(&mut fields, "name", diags)?),
        "configMap" => FileSource::ConfigMap(DataSource::read(&mut fields, "name", diags)?),
        "downwardAPI" => FileSource::Downward(downward_files(&mut fields, diags)),
        "serviceAccountToken" => FileSource::Token {
            path: file_path(&mut fields, diags)?,
        },
        other => {
            diags.push(
                Diagnostic::error(
                    &source.place,
                    format!("unknown source {other:?} of a projected volume"),
                )
                .allowed(PROJECTIONS.join(", "))
                .did_you_mean(other, PROJECTIONS),
            );
            return None;
        }
    };
    fields.tell_slips(diags);
    let place = source.place;
    Some(Spanned { value, place })
}

impl DataSource {
    fn read(fields: &mut Fields<'_>, name_key: &str, diags: &mut Diagnostics) -> Option<Self> {
        let name = required_name(fields, name_key, ObjectName::parse, diags);
        let optional = fields.flag("optional", diags);
        let items = fields.get("items").map(|items| {
            items
                .items(diags)
                .iter()
                .filter_map(|item| {
                    let mut item = item.fields(diags)?;
                    let key = required_name(&mut item, "key", DataKey::parse, diags);
                    let path = file_path(&mut item, diags);
                    let mode = mode(&mut item, "mode", diags);
                    item.tell_slips(diags);
                    Some(KeyToPath {
                        key: key?,
                        path: path?,
                        mode,
                    })
                })
                .collect()
        });
        Some(Self {
            name: name?,
            items,
            optional,
        })
    }
}

fn downward_files(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Vec<DownwardFile> {
    let items = fields.items("items", diags);
    items
        .iter()
        .filter_map(|item| {
            let mut item = item.fields(diags)?;
            let path = file_path(&mut item, diags);
            let mode = mode(&mut item, "mode", diags);
            if let Some(view) = item.get("resourceFieldRef") {
                diags.push(
                    Diagnostic::error(&view.place, "resourceFieldRef has no meaning for a VM")
                        .help("use fieldRef, or leave the file out"),
                );
                return None;
            }
            let field = FieldRef::read(&item.required("fieldRef", diags)?, diags);
            Some(DownwardFile {
                path: path?,
                field: field?,
                mode,
            })
        })
        .collect()
}

/// A relative path that stays inside, without `.` and empty components.
pub(super) fn relative_path(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('/') {
        return Err("is not a relative path".to_owned());
    }
    let clean = GuestPath::parse(&format!("/{text}")).map_err(|error| error.to_string())?;
    match clean.as_str().trim_start_matches('/') {
        "" => Err("names nothing".to_owned()),
        clean => Ok(clean.to_owned()),
    }
}

/// A path within a volume: relative, and it stays inside.
fn file_path(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<String> {
    let path = fields.required_text("path", diags)?;
    match relative_path(&path.value) {
        Ok(clean) => Some(clean),
        Err(problem) => {
            diags.push(
                Diagnostic::error(&path.place, format!("the path of a file {problem}"))
                    .found(format!("{:?}", path.value))
                    .allowed("a path within the volume, such as etc/app.conf"),
            );
            None
        }
    }
}

fn mode(fields: &mut Fields<'_>, key: &str, diags: &mut Diagnostics) -> Option<u32> {
    let view = fields.get(key)?;
    // Digits that are not octal make a number all the same, only not a whole
    // one: "0888" is told as it was written.
    let (number, text) = match &view.node.value {
        Value::Int(number, text) => (u32::try_from(*number).ok(), text),
        Value::Float(_, text) => (None, text),
        _ => {
            view.wrong_kind("a whole number", diags);
            return None;
        }
    };
    let mode = number.filter(|mode| *mode <= 0o777);
    if mode.is_none() {
        diags.push(
            Diagnostic::error(&view.place, "not permission bits")
                .found(text)
                .allowed("0 to 0777 octal, which is 0 to 511 decimal"),
        );
    }
    mode
}
