//! What can be said of a VM object by itself: the one reader and the one
//! resolution decide, with the words that files get. What depends on other
//! objects or on a node is decided when the VM is launched.

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostic, Diagnostics, Origin, Severity};
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects, VmObject};
use disklet_core::names::Namespace;
use disklet_core::resolve::{Unseen, resolve_seeing};
use serde_json::{Map, Value};
use tokio::runtime::{Handle, RuntimeFlavor};

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

/// Judges a VM object of a cluster. Its status, and what others keep in its
/// metadata, are not its author's.
///
/// A megabyte takes a while: whatever else the thread has to do, others do.
pub(crate) fn judge(object: &Value, namespace: &Namespace) -> Judgement {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => {
            tokio::task::block_in_place(|| judge_here(object, namespace))
        }
        _ => judge_here(object, namespace),
    }
}

fn judge_here(object: &Value, namespace: &Namespace) -> Judgement {
    let (mut objects, mut diags) = (Objects::default(), Diagnostics::default());
    let input = Input {
        name: Origin::object(""),
        text: written(object).to_string(),
    };
    objects.read(&input, namespace, &mut diags);
    let (config, facts) = (Config::default(), Facts::default());
    resolve_seeing(&objects, &config, &facts, &Unseen::everything(), &mut diags);
    let (problems, others) = diags
        .into_sorted()
        .into_iter()
        .partition(|told| told.severity == Severity::Error);
    Judgement {
        vm: objects.vms.pop(),
        problems,
        notices: others,
    }
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
