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
    planned_beside(pod, "")
}

/// What a plan says against a pod when there are others.
fn planned_beside(pod: &Value, others: &str) -> BTreeSet<String> {
    let input = Input {
        name: Origin::object(""),
        text: format!("{pod}\n{others}"),
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

/// A VM pod with so many block claims beside its root, or one of them as its root, and
/// the claims with their volumes.
fn with_claims(count: usize, driver: &str, has_root: bool) -> (Value, String) {
    let claim = |nth| json!({"name": format!("v{nth}"), "persistentVolumeClaim": {"claimName": format!("c{nth}")}});
    let device = |nth| {
        let path = if nth == 0 && has_root {
            "/".to_owned()
        } else {
            format!("/dev/d{nth}")
        };
        json!({"name": format!("v{nth}"), "devicePath": path})
    };
    let count = count + usize::from(has_root);
    // Written in another order than they get their letters in.
    let volumes: Vec<_> = (0..count).rev().map(claim).collect();
    let devices: Vec<_> = (0..count).map(device).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "vm", "namespace": "default",
            "annotations": {"kubernetes.io/target-runtime": "virtlet.cloud", "VirtletDiskDriver": driver},
        },
        "spec": {
            "containers": [{"name": "vm", "image": "virtlet.cloud/cirros", "volumeDevices": devices}],
            "volumes": volumes,
        },
    });
    let objects = (0..count).map(|nth| {
        format!(
            "---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c{nth}}}, spec: {{accessModes: [ReadWriteMany], storageClassName: '', volumeMode: Block, volumeName: p{nth}, resources: {{requests: {{storage: 1Gi}}}}}}}}\n\
             ---\n{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: p{nth}}}, spec: {{accessModes: [ReadWriteMany], storageClassName: '', volumeMode: Block, capacity: {{storage: 1Gi}}, csi: {{driver: csi.example.com, volumeHandle: h{nth}}}}}}}\n"
        )
    });
    (pod, objects.collect())
}

/// What a claim is, nobody knows here; that it is a disk, everybody does.
#[test]
fn claims_take_places_of_the_bus_here_as_well() {
    for (driver, most) in [("virtio", 20), ("scsi", 26)] {
        for has_root in [false, true] {
            let (pod, objects) = with_claims(most - 2, driver, has_root);
            assert_eq!(planned_beside(&pod, &objects), BTreeSet::new());
            assert_eq!(refused(&pod), BTreeSet::new(), "{driver}");
            let (pod, objects) = with_claims(most - 1, driver, has_root);
            let planned = planned_beside(&pod, &objects);
            assert_eq!(refused(&pod), planned);
            let told = planned.first().unwrap();
            assert!(
                planned.len() == 1 && told.contains("too many disks"),
                "{told}"
            );
        }
    }
}
