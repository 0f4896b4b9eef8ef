//! What kind of object something is, and whether that kind plays a part.

use crate::config::Config;
use crate::diag::{Diagnostic, Diagnostics, Severity};
use crate::yaml::{Spanned, View};

use super::pod;

/// The kinds that play a part.
pub(super) const KINDS: [&str; 6] = [
    "Pod",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ConfigMap",
    "Secret",
    "ServiceAccount",
];

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

/// Whether an object is of the kinds that we know by their name alone: others
/// may have a kind of the same name.
pub(super) fn is_of_the_core(
    view: &View<'_>,
    kind: &Spanned<String>,
    diags: &mut Diagnostics,
) -> bool {
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

/// Tells that an object plays no part, and what was perhaps meant.
pub(super) fn skip(view: &View<'_>, kind: &Spanned<String>, diags: &mut Diagnostics) {
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
