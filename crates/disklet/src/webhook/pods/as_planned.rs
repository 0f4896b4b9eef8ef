//! Every VM pod that a plan refuses, in the cases of the plan's own tests, is refused
//! here with the same words and fields; what a plan says of other objects, or of what
//! the pod alone does not tell, is said when the VM is launched.

use std::collections::BTreeSet;
use std::path::Path;

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostics, Origin, Severity};
use disklet_core::facts::Facts;
use disklet_core::launch::vm_pod::is_vm;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::resolve::resolve;
use disklet_core::yaml::{self, Limits, Node};
use serde_json::{Map, Value, json};

use super::super::judge::judge_pod;
use super::sentence;

/// As an API server sends it.
fn json_of(node: &Node) -> Value {
    match &node.value {
        yaml::Value::Null => Value::Null,
        yaml::Value::Bool(it) => json!(it),
        yaml::Value::Int(it, _) => json!(it),
        yaml::Value::Float(it, _) => json!(it),
        yaml::Value::Str(it) => json!(it),
        yaml::Value::Seq(items) => items.iter().map(json_of).collect(),
        yaml::Value::Map(entries) => {
            let fields = entries.iter();
            let fields = fields.map(|it| (it.key.to_string(), json_of(&it.node)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

/// The texts of a case: one for each of its variants.
fn texts(case: &str) -> Vec<String> {
    let lines = case.lines().filter_map(|line| line.strip_prefix("# with "));
    let variants: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
    match variants.is_empty() {
        true => vec![case.to_owned()],
        false => variants
            .iter()
            .map(|(word, value)| case.replace(word, value))
            .collect(),
    }
}

/// What a plan says against a pod that is all there is.
fn planned(pod: &Value) -> BTreeSet<String> {
    let input = Input {
        name: Origin::object(""),
        text: pod.to_string(),
    };
    let (mut objects, mut diags) = (Objects::default(), Diagnostics::default());
    objects.read(&input, &namespace(), &mut diags);
    let (config, facts) = (Config::default(), Facts::default());
    resolve(&objects, &config, &facts, &mut diags);
    let all = diags.into_sorted().into_iter();
    let errors = all.filter(|told| told.severity == Severity::Error);
    errors.map(|told| sentence(&told)).collect()
}

/// What is said against it when it is created.
fn refused(pod: &Value) -> BTreeSet<String> {
    let problems = judge_pod(pod, &namespace()).problems;
    problems.iter().map(sentence).collect()
}

fn namespace() -> Namespace {
    Namespace::parse("default").unwrap()
}

/// The VM pods of a text; none if it is one that kubectl would not send.
fn vm_pods(text: &str) -> Vec<Value> {
    let documents = yaml::documents(text, Limits::default());
    let documents: Result<Vec<_>, _> = documents.collect();
    let objects = documents.unwrap_or_default();
    let objects = objects.iter().map(json_of);
    objects
        .filter(|object| object["kind"] == "Pod" && is_vm(object))
        .collect()
}

/// The words of a plan for what another object, or a node, would have to show.
fn is_for_the_launch(told: &str) -> bool {
    told.contains(" is missing in namespace default (help: give the ")
        || told.contains(": the device is not on this node's whitelist (")
}

#[test]
fn what_a_plan_refuses_is_refused_with_the_same_words() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals");
    let cases = std::fs::read_dir(cases).unwrap();
    let cases = cases.map(|entry| entry.unwrap().path());
    let cases = cases.filter(|path| path.extension().is_some_and(|it| it == "yaml"));
    let (mut same, mut different) = (BTreeSet::new(), Vec::new());
    for case in cases {
        let Ok(text) = std::fs::read_to_string(&case) else {
            continue;
        };
        for pod in texts(&text).iter().flat_map(|text| vm_pods(text)) {
            let (planned, refused) = (planned(&pod), refused(&pod));
            same.extend(refused.intersection(&planned).cloned());
            let others = planned.symmetric_difference(&refused);
            let others = others.filter(|told| !is_for_the_launch(told));
            different.extend(others.map(|told| format!("{}: {told}", case.display())));
        }
    }
    assert!(different.is_empty(), "\n{}\n", different.join("\n"));
    // Each of them is another refusal.
    assert!(same.len() > 250, "{}", same.len());
}
