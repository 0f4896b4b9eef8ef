//! The metadata that all objects have, and the reading of names.

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::names::{NameRule, Namespace, ObjectName};
use crate::yaml::{Fields, Spanned, View};

use super::Key;

/// Who an object is.
#[derive(Debug, Clone)]
pub struct Meta {
    /// Its name.
    pub name: ObjectName,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its UID, if the API server has given it one.
    pub uid: Option<String>,
    /// Its labels, in order.
    pub labels: Vec<(String, String)>,
    /// Where the object begins.
    pub place: Place,
}

impl Meta {
    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }

    /// Stands in for metadata that was refused, so that the rest of the
    /// object can be checked.
    pub(super) fn stand_in(view: &View<'_>, namespace: &Namespace) -> Self {
        Self {
            name: ObjectName::stand_in(),
            namespace: namespace.clone(),
            uid: None,
            labels: Vec::new(),
            place: view.place.clone(),
        }
    }

    /// Reads `metadata` of a namespaced object.
    pub(super) fn read(
        view: &View<'_>,
        object: &mut Fields<'_>,
        default: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let mut meta = object.required("metadata", diags)?.fields(diags)?;
        let name = required_name(&mut meta, "name", ObjectName::parse, diags);
        let namespace = match meta.spanned_text("namespace", diags) {
            None => Some(default.clone()),
            Some(text) => parse_name(text, Namespace::parse, diags).map(|name| name.value),
        };
        let uid = meta
            .spanned_text("uid", diags)
            .and_then(|uid| check_uid(uid, diags));
        let labels = texts(meta.entries("labels", diags), diags);
        meta.tell_slips(diags);
        Some(Self {
            labels,
            name: name?.value,
            namespace: namespace?,
            uid,
            place: view.place.clone(),
        })
    }
}

/// A pod's UID becomes part of a path, so its alphabet matters.
fn check_uid(uid: Spanned<String>, diags: &mut Diagnostics) -> Option<String> {
    let valid = (1..=63).contains(&uid.value.len())
        && uid
            .value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !valid {
        diags.push(
            Diagnostic::error(&uid.place, "not a UID")
                .found(format!("{:?}", uid.value))
                .allowed("letters, digits and '-', as the API server gives them"),
        );
    }
    valid.then_some(uid.value)
}

/// Entries with free keys whose values are texts.
pub(super) fn texts(
    entries: Vec<(&str, View<'_>)>,
    diags: &mut Diagnostics,
) -> Vec<(String, String)> {
    entries
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value.text(diags)?.to_owned())))
        .collect()
}

/// Checks a text against the rule of a kind of name.
pub(super) fn parse_name<T>(
    text: Spanned<String>,
    parse: fn(&str) -> Result<T, NameRule>,
    diags: &mut Diagnostics,
) -> Option<Spanned<T>> {
    match parse(&text.value) {
        Ok(value) => Some(Spanned {
            value,
            place: text.place,
        }),
        Err(rule) => {
            diags.push(
                Diagnostic::error(&text.place, format!("not {}", rule.what))
                    .found(format!("{:?}", text.value))
                    .allowed(rule.allowed),
            );
            None
        }
    }
}

/// A name that must be there.
pub(super) fn required_name<T>(
    fields: &mut Fields<'_>,
    key: &str,
    parse: fn(&str) -> Result<T, NameRule>,
    diags: &mut Diagnostics,
) -> Option<Spanned<T>> {
    let text = fields.required_text(key, diags)?;
    parse_name(text, parse, diags)
}
