//! What can be said of a VM object by itself: the one reader and the one
//! resolution decide, with the words that files get. What depends on other
//! objects or on a node is decided when the VM is launched.

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostic, Diagnostics, Origin, Severity};
use disklet_core::facts::Facts;
use disklet_core::launch::vm_pod::check;
use disklet_core::manifest::{Input, Objects, VmObject, VmPod};
use disklet_core::names::Namespace;
use disklet_core::resolve::{Unseen, resolve_seeing};
use serde_json::{Map, Value};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::abundance;

/// A VM as it was read, and what is to be said of it.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// Everything that could be read, even if it was refused.
    pub(crate) vm: Option<VmObject>,
    /// What is wrong with it.
    pub(crate) problems: Vec<Diagnostic>,
    /// What its author may want to know.
    pub(crate) notices: Vec<Diagnostic>,
}

/// A VM pod as it was read, and what is to be said of it.
#[derive(Debug, Default)]
pub(super) struct PodJudgement {
    pub(super) pod: Option<VmPod>,
    pub(super) problems: Vec<Diagnostic>,
    pub(super) notices: Vec<Diagnostic>,
}

/// Judges a VM object of a cluster. Its status, and what others keep in its
/// metadata, are not its author's.
pub(crate) fn judge(object: &Value, namespace: &Namespace) -> Judgement {
    let object = written(object);
    if let Some(refusal) = abundance::refusal(&object) {
        return Judgement {
            problems: vec![refusal],
            ..Judgement::default()
        };
    }
    let (mut objects, diags) = read(&input(&object), namespace, Diagnostics::default());
    let (problems, notices) = parted(diags);
    Judgement {
        vm: objects.vms.pop(),
        problems,
        notices,
    }
}

/// Judges a VM pod of a cluster in the same way, and what only there has a meaning.
pub(super) fn judge_pod(object: &Value, namespace: &Namespace) -> PodJudgement {
    let object = written(object);
    if let Some(refusal) = abundance::refusal(&object) {
        return PodJudgement {
            problems: vec![refusal],
            ..PodJudgement::default()
        };
    }
    let (input, mut diags) = (input(&object), Diagnostics::default());
    check(&input, &mut diags);
    let (mut objects, diags) = read(&input, namespace, diags);
    let (problems, notices) = parted(diags);
    PodJudgement {
        pod: objects.vm_pods.pop(),
        problems,
        notices,
    }
}

fn input(object: &Value) -> Input {
    Input {
        name: Origin::object(""),
        text: object.to_string(),
    }
}

/// A megabyte takes a while: whatever else the thread has to do, others do.
fn read(input: &Input, namespace: &Namespace, diags: Diagnostics) -> (Objects, Diagnostics) {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    let here = || read_here(input, namespace, diags);
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(here),
        _ => here(),
    }
}

fn read_here(
    input: &Input,
    namespace: &Namespace,
    mut diags: Diagnostics,
) -> (Objects, Diagnostics) {
    let mut objects = Objects::default();
    objects.read(input, namespace, &mut diags);
    let (config, facts) = (Config::default(), Facts::default());
    resolve_seeing(&objects, &config, &facts, &Unseen::everything(), &mut diags);
    (objects, diags)
}

/// What is wrong, and what else there is to say.
fn parted(diags: Diagnostics) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
    let all = diags.into_sorted().into_iter();
    all.partition(|told| told.severity == Severity::Error)
}

/// What of an object its author writes.
fn written(object: &Value) -> Value {
    const OURS: [&str; 5] = ["name", "namespace", "uid", "labels", "annotations"];
    let Value::Object(fields) = object else {
        return object.clone();
    };
    let mut fields = fields.clone();
    fields.remove("status");
    if let Some(Value::Object(meta)) = fields.get_mut("metadata") {
        let kept = OURS.into_iter().filter_map(|key| {
            let value = meta.remove(key)?;
            Some((key.to_owned(), value))
        });
        *meta = kept.collect::<Map<_, _>>();
        if let Some(Value::Object(annotations)) = meta.get_mut("annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    Value::Object(fields)
}
