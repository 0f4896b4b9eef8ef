//! What kind of object something is, and whether that kind plays a part.

use crate::config::Config;
use crate::diag::{Diagnostic, Diagnostics, Remedy, Severity};
use crate::yaml::{Spanned, View};

use super::pod;

/// The kinds that play a part, and the version of each that is read.
const KINDS: [(&str, &str); 9] = [
    ("Pod", "v1"),
    ("VM", "disklet.io/v1alpha1"),
    ("Endpoints", "v1"),
    ("PersistentVolume", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("ConfigMap", "v1"),
    ("Secret", "v1"),
    ("ServiceAccount", "v1"),
    ("StorageClass", "storage.k8s.io/v1"),
];

/// The kind of the items of a typed list, such as `PodList`.
pub(super) fn listed_in(list: &str) -> Option<&'static str> {
    let of = list.strip_suffix("List")?;
    let mut names = KINDS.into_iter().map(|(name, _)| name);
    names.find(|name| *name == of)
}

/// The version that a kind, or a list of it, must have; nothing for kinds that
/// play no part.
fn version_of(kind: &str) -> Option<&'static str> {
    let name = kind.strip_suffix("List").unwrap_or(kind);
    let known = KINDS.into_iter().find(|(known, _)| *known == name);
    match name {
        "" => Some("v1"),
        _ => known.map(|(_, version)| version),
    }
}

/// What an object says that it is. In a typed list, the items of the API
/// server's own answers leave it to the list.
pub(super) fn kind_of(
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

/// Whether an object is what its kind says to us: other groups may have a kind
/// of the same name. Items of a typed list leave their version to the list.
pub(super) fn is_ours(
    view: &View<'_>,
    kind: &Spanned<String>,
    listed: Option<&'static str>,
    diags: &mut Diagnostics,
) -> bool {
    let Some(wanted) = version_of(&kind.value) else {
        return true;
    };
    let Some(mut fields) = view.fields(diags) else {
        return true;
    };
    let Some(version) = fields.get("apiVersion") else {
        if listed.is_none() {
            diags.push(without_version(view, &kind.value, wanted));
        }
        return true;
    };
    let Some(version) = version.spanned_text(diags) else {
        return true;
    };
    if version.value == wanted {
        return true;
    }
    let group = |version: &str| version.split_once('/').map(|(group, _)| group.to_owned());
    let theirs = group(&version.value);
    diags.push(if theirs.is_some() && theirs != group(wanted) {
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
            .allowed(wanted)
    });
    false
}

/// The kind alone says what is meant, so it is taken for that; a cluster would
/// not.
fn without_version(view: &View<'_>, kind: &str, wanted: &str) -> Diagnostic {
    let mut place = view.place.clone();
    place.path = place.path.key("apiVersion");
    Diagnostic::notice(&place, format!("is missing, and taken to be {wanted}")).help(format!(
        "write apiVersion: {wanted}; kubectl refuses a {kind} without it"
    ))
}

/// Tells that an object plays no part, and what was perhaps meant.
pub(super) fn skip(view: &View<'_>, kind: &Spanned<String>, diags: &mut Diagnostics) {
    let names = KINDS.map(|(name, _)| name);
    let lists = names.map(|name| format!("{name}List"));
    let lists = lists.iter().map(String::as_str);
    let known = || names.into_iter().chain(lists.clone()).chain(["List"]);
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
        notice.message = "skipped: facts of a node are no manifest".to_owned();
        notice.remedy = Some(Remedy::AsFacts);
    }
    if ["VirtualMachine", "VirtualMachineInstance"].contains(&kind.value.as_str()) {
        notice.severity = Severity::Notice;
        notice.message = format!(
            "skipped: {} objects are not planned, VM objects and VM pods are",
            kind.value
        );
    }
    diags.push(notice);
}
