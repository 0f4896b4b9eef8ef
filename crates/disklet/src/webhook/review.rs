//! The protocol: an AdmissionReview in, an answer out. Nothing here waits, and
//! whoever sends the bytes is a stranger.

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use disklet::cluster::words::{sentence, shortened};
use disklet_core::diag::Diagnostic;
use disklet_core::launch::pod::Settings;
use disklet_core::launch::vm_pod::{claims_to_look_at, is_vm, original};
use disklet_core::names::Namespace;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claims::Claims;
use super::judge::judge;
use super::pods;

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Nobody reads more, and a message goes into logs and events of others.
const MOST_PROBLEMS: usize = 25;
const LONGEST_MESSAGE: usize = 8 << 10;
/// The API server cuts what is longer, in the middle of a letter.
const LONGEST_WARNING: usize = 250;
const MOST_WARNINGS: usize = 10;
/// The namespace that a cluster begins with.
pub(crate) const THE_CLUSTERS: &str = "kube-system";
/// UIDs of requests have 36.
const LONGEST_UID: usize = 128;

/// What an API server wants to know.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question<'q> {
    /// Whether an object can be as it is, if launchers are like this.
    Valid(&'q Settings),
    /// What a pod has to be, if launchers are like this, and this is known of its claims.
    Changed(&'q Settings, &'q Claims),
}

/// Claims of a VM pod that is created, of which it does not say what they are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsaid {
    pub(super) namespace: String,
    pub(super) claims: BTreeSet<String>,
}

impl Unsaid {
    /// Nothing if there are none, or if the bytes are no review.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        let asked: Asked = serde_json::from_slice(body).ok()?;
        let request = asked.request;
        let claims = match request.operation.as_str() {
            "CREATE"
                if request.is_of_pod()
                    && !request.is_of_the_cluster()
                    && is_vm(&request.object) =>
            {
                let original = original(&request.object);
                claims_to_look_at(original.as_ref().unwrap_or(&request.object))
            }
            _ => BTreeSet::new(),
        };
        (!claims.is_empty()).then(|| Self {
            namespace: namespace(&request).to_string(),
            claims,
        })
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Refused,
}

/// Why bytes are no review.
#[derive(Debug)]
pub(super) struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an {KIND} of {VERSION}: {}", self.0)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    uid: String,
    kind: Kind,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
    pub(super) operation: String,
    /// Nothing comes of it.
    #[serde(default)]
    pub(super) dry_run: Option<bool>,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
}

#[derive(Debug, Deserialize)]
struct Kind {
    group: String,
    kind: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

/// What is to be said to a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) refusal: Option<String>,
    pub(super) warnings: Vec<String>,
    /// What makes the object what it has to be.
    pub(super) patch: Vec<Value>,
}

/// Answers a review.
pub(super) fn answer(body: &[u8], question: Question<'_>) -> Result<(Vec<u8>, Outcome), Malformed> {
    let asked: Asked =
        serde_json::from_slice(body).map_err(|error| Malformed(error.to_string()))?;
    if asked.api_version != VERSION || asked.kind != KIND {
        let found = format!("{} of {}", asked.kind, asked.api_version);
        return Err(Malformed(shortened(&format!("{found:?}"), 200)));
    }
    let request = asked.request;
    if request.uid.is_empty() || request.uid.len() > LONGEST_UID {
        return Err(Malformed("its request has no uid of a request".to_owned()));
    }
    let verdict = match question {
        Question::Valid(settings) if request.is_of_pods_kind() => {
            pods::last_verdict(&request, settings)
        }
        Question::Valid(_) => verdict(&request),
        Question::Changed(settings, claims) if request.is_of_pod() => {
            pods::verdict(&request, settings, claims)
        }
        // Pods are changed, and nothing else.
        Question::Changed(..) => Verdict::default(),
    };
    let patch = (!verdict.patch.is_empty()).then_some(Value::Array(verdict.patch));
    let outcome = match verdict.refusal {
        Some(_) => Outcome::Refused,
        None => Outcome::Allowed,
    };
    let answer = Answer {
        api_version: VERSION,
        kind: KIND,
        response: Response {
            uid: &request.uid,
            allowed: outcome == Outcome::Allowed,
            status: verdict.refusal.map(|message| Status {
                // Of what is `Invalid`, kubectl shows no message.
                code: 400,
                reason: "BadRequest",
                message,
            }),
            warnings: verdict.warnings,
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch: patch.map(|patch| BASE64_STANDARD.encode(patch.to_string())),
        },
    };
    let answer = serde_json::to_vec(&answer).map_err(|error| Malformed(error.to_string()))?;
    Ok((answer, outcome))
}

impl Request {
    fn is_of_pod(&self) -> bool {
        self.is_of_pods_kind() && !self.is_of_part()
    }

    /// Whether it is about a pod, or a part of one that has a pod's form.
    fn is_of_pods_kind(&self) -> bool {
        self.kind.group.is_empty() && self.kind.kind == "Pod"
    }

    /// Whether it is about what the cluster itself runs by. Older API servers ask about
    /// that, too: they cannot leave a namespace out by its name.
    pub(super) fn is_of_the_cluster(&self) -> bool {
        self.namespace.as_deref() == Some(THE_CLUSTERS)
    }

    /// Whether it is about a subresource.
    pub(super) fn is_of_part(&self) -> bool {
        self.sub_resource
            .as_deref()
            .is_some_and(|it| !it.is_empty())
    }
}

fn verdict(request: &Request) -> Verdict {
    let is_vm = request.kind.group == disklet_core::crd::GROUP && request.kind.kind == "VM";
    let writes = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    let goes = !request.object["metadata"]["deletionTimestamp"].is_null();
    if !is_vm || request.is_of_part() || !writes || goes {
        return Verdict::default();
    }
    let now = judge(&named(&request.object, request), &namespace(request));
    let mut warnings: Vec<_> = now
        .notices
        .iter()
        .filter(|notice| is_about_a_field(notice))
        .map(sentence)
        .collect();
    let is_update = request.operation == "UPDATE";
    let refusal = if is_update && brings_no_problem(request, &now.problems) {
        // What was wrong before stays its author's to mend, whoever changes something else.
        let still = now.problems.iter().map(sentence);
        warnings.splice(0..0, still.map(|told| format!("still refused: {told}")));
        None
    } else {
        message(&now.problems)
    };
    Verdict {
        refusal,
        warnings: few(&warnings),
        patch: Vec::new(),
    }
}

/// Whether all that is wrong was wrong before: who takes a finalizer away, or
/// stops a VM, is not the one to mend the rest.
fn brings_no_problem(request: &Request, problems: &[Diagnostic]) -> bool {
    let same = |key: &str| request.object[key] == request.old_object[key];
    if problems.is_empty() || (same("spec") && same("apiVersion")) {
        return true;
    }
    let before = judge(&request.old_object, &namespace(request)).problems;
    let known: Vec<_> = before.iter().map(sentence).collect();
    problems.iter().all(|it| known.contains(&sentence(it)))
}

/// The object; one whose name the API server has yet to make has a name all the same.
pub(super) fn named(object: &Value, request: &Request) -> Value {
    let mut object = object.clone();
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return object;
    };
    if meta
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .is_empty()
    {
        let given = request.name.as_deref().filter(|name| !name.is_empty());
        let made = meta.get("generateName").and_then(Value::as_str);
        let name = given.map(str::to_owned);
        if let Some(name) = name.or(made.map(|prefix| format!("{prefix}x"))) {
            meta.insert("name".to_owned(), name.into());
        }
    }
    object
}

pub(super) fn namespace(request: &Request) -> Namespace {
    let named = request.namespace.as_deref().unwrap_or("default");
    let named = Namespace::parse(named).or_else(|_| Namespace::parse("default"));
    // `default` is one.
    #[expect(clippy::expect_used, reason = "a constant")]
    named.expect("a namespace")
}

/// What concerns the VM as a whole, such as that it shall not run, its author knows.
pub(super) fn is_about_a_field(notice: &Diagnostic) -> bool {
    let place = notice.place.as_ref();
    place.is_some_and(|place| !place.path.to_string().is_empty())
}

/// All problems, one a line, as far as anybody reads; nothing if there is none.
pub(super) fn message(problems: &[Diagnostic]) -> Option<String> {
    let lines: Vec<_> = problems.iter().map(sentence).collect();
    let mut message = match lines.len() {
        0 => return None,
        1 => String::new(),
        several => format!("{several} problems:\n"),
    };
    let mut told = 0;
    for line in lines.iter().take(MOST_PROBLEMS) {
        if told > 0 && message.len() + line.len() > LONGEST_MESSAGE {
            break;
        }
        if told > 0 {
            message.push('\n');
        }
        message.push_str(&shortened(line, LONGEST_MESSAGE));
        told += 1;
    }
    match lines.len() - told {
        0 => {}
        1 => message.push_str("\nand 1 more problem"),
        more => message.push_str(&format!("\nand {more} more problems")),
    }
    Some(message)
}

pub(super) fn few(warnings: &[String]) -> Vec<String> {
    let few = warnings.iter().take(MOST_WARNINGS);
    few.map(|told| shortened(told, LONGEST_WARNING)).collect()
}

#[cfg(test)]
#[path = "review/tests.rs"]
mod tests;
