//! StorageClasses: which of them is the default.

use crate::diag::{Diagnostics, Place};
use crate::names::ObjectName;
use crate::yaml::View;

use super::meta::{required_name, texts};

/// What marks the default class, now and before it left beta.
const DEFAULT_MARKS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// A StorageClass.
#[derive(Debug, Clone)]
pub struct StorageClass {
    /// Its name.
    pub name: ObjectName,
    /// Where it stands.
    pub place: Place,
    /// Claims that name no class are of this one.
    pub is_default: bool,
    /// Claims of it are bound when a pod that has them is scheduled.
    pub waits_for_pod: bool,
    /// Who makes volumes for it.
    pub provisioner: Option<String>,
    /// When it was made, if the API server has made it; RFC 3339, so that the
    /// later text is the later time.
    pub created: Option<String>,
}

impl StorageClass {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut object = view.fields(diags)?;
        let mut meta = object.required("metadata", diags)?.fields(diags)?;
        let name = required_name(&mut meta, "name", ObjectName::parse, diags);
        let created = meta.text("creationTimestamp", diags).map(str::to_owned);
        let mode = object.text("volumeBindingMode", diags);
        let provisioner = object.text("provisioner", diags).map(str::to_owned);
        let annotations = texts(meta.entries("annotations", diags), diags);
        meta.tell_slips(diags);
        let is_mark = |(key, value): &(String, String)| {
            DEFAULT_MARKS.contains(&key.as_str()) && value == "true"
        };
        Some(Self {
            name: name?.value,
            place: view.place.clone(),
            is_default: annotations.iter().any(is_mark),
            waits_for_pod: mode == Some("WaitForFirstConsumer"),
            provisioner,
            created,
        })
    }
}
