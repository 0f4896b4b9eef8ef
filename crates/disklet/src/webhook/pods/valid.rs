//! The last word on launchers of VM pods, when all others that change pods have had
//! theirs.

use disklet_core::diag::Diagnostic;
use disklet_core::launch::pod::Settings;
use disklet_core::launch::vm_pod::{
    altered, is_launcher, launcher, mapped_claims, no_mapping, unchanged, with_additions,
};
use serde_json::Value;

use disklet::cluster::words::sentence;

use super::super::judge::{PodJudgement, judge_pod};
use super::super::review::{Request, Verdict, message, named, namespace};
use super::{DAMAGED, STAYS, is_of_no_vm, marks, refused};

/// What is to be said to a launcher that is about to be stored.
pub(in crate::webhook) fn verdict(request: &Request, settings: &Settings) -> Verdict {
    let (new, old) = (&request.object, &request.old_object);
    let goes = !new["metadata"]["deletionTimestamp"].is_null();
    let why = match request.operation.as_str() {
        _ if request.is_of_the_cluster() || goes => None,
        "CREATE" if request.is_of_part() => None,
        "CREATE" if is_launcher(new) => created(request, settings),
        "CREATE" => marks::refusal(new),
        "UPDATE" if is_of_no_vm(request) => None,
        "UPDATE" if is_launcher(old) => updated(request),
        _ => None,
    };
    why.map(refused).unwrap_or_default()
}

/// Why a launcher is refused that others have changed: with a plan's words if they have
/// made of it what a plan refuses.
fn created(request: &Request, settings: &Settings) -> Option<String> {
    let judged = match judged(&request.object, request) {
        Ok(judged) => judged,
        Err(refusal) => return Some(refusal),
    };
    let refusal = message(&judged.judgement.problems);
    refusal
        .or_else(|| marks::refusal(&request.object))
        .or_else(|| {
            let vm = judged.judgement.pod?;
            let made = launcher(
                &judged.written,
                &vm,
                &mapped_claims(&request.object),
                settings,
            );
            let changed = altered(&request.object, &made)?;
            Some(format!("{}: {CHANGED}", changed.0))
        })
}

const CHANGED: &str = "this is not as Disklet makes the launcher of a VM pod: another webhook has changed it (help: have that one leave out pods with the label disklet.io/vm, and create the pod again)";

/// Why an update is refused: for what it brings, and not for what was there.
fn updated(request: &Request) -> Option<String> {
    let (new, old) = (&request.object, &request.old_object);
    let same = |field: &str| new.pointer(field) == old.pointer(field);
    if same("/spec") && same("/metadata/annotations") && same("/metadata/labels") {
        return None;
    }
    let known: Vec<_> = problems(old, request).iter().map(sentence).collect();
    let now = problems(new, request).into_iter();
    let brought: Vec<_> = now.filter(|it| !known.contains(&sentence(it))).collect();
    message(&brought).or_else(|| {
        let changed = unchanged(old, new).err()?;
        Some(format!("{}: {STAYS}", changed.0))
    })
}

struct Judged {
    written: Value,
    judgement: PodJudgement,
}

fn judged(launcher: &Value, request: &Request) -> Result<Judged, String> {
    let Some(written) = with_additions(launcher) else {
        return Err(format!("{DAMAGED} (help: remove it)"));
    };
    if let Some(field) = no_mapping(&written) {
        return Err(format!("{field}: not a mapping"));
    }
    let judgement = judge_pod(&named(&written, request), &namespace(request));
    Ok(Judged { written, judgement })
}

fn problems(launcher: &Value, request: &Request) -> Vec<Diagnostic> {
    judged(launcher, request).map_or_else(|_| Vec::new(), |judged| judged.judgement.problems)
}

#[cfg(test)]
#[path = "valid/tests.rs"]
pub(super) mod tests;
