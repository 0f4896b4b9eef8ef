//! The launcher of each VM pod below `vm_pods/` is, to the byte, the file
//! `launcher.golden.json` beside it; and of a launcher the VM pod can be made again.
//!
//! `script/golden` writes them anew.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "core itself does no I/O; its expected answers are files"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use disklet_core::diag::Diagnostics;
use disklet_core::launch::pod::{SECCOMP_PROFILE, Settings};
use disklet_core::launch::vm_pod::{
    SAVED, altered, check, claims_to_look_at, is_launcher, is_vm, kept, launcher, original,
    unchanged,
};
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::units::ByteSize;
use serde_json::{Value, json};

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm_pods");
    let entries = fs::read_dir(directory).unwrap();
    let mut cases: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

fn pod(case: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(case.join("pod.json")).unwrap()).unwrap()
}

fn case(name: &str) -> Value {
    let cases = cases();
    pod(cases.iter().find(|case| case.ends_with(name)).unwrap())
}

fn launched(pod: &Value) -> Value {
    let settings = Settings {
        image: "example.com/disklet:1".to_owned(),
        pull_policy: Some("IfNotPresent".to_owned()),
        default_memory: ByteSize::from_bytes(1 << 30),
        low_ports: false,
        seccomp_profile: Some(SECCOMP_PROFILE.to_owned()),
    };
    let mut named = pod.clone();
    if named["metadata"]["name"].is_null() {
        named["metadata"]["name"] = json!("made-later");
    }
    let input = Input {
        name: "pod".into(),
        text: named.to_string(),
    };
    let (mut objects, mut diags) = (Objects::default(), Diagnostics::default());
    objects.read(&input, &Namespace::parse("default").unwrap(), &mut diags);
    assert_eq!(diags.errors(), 0, "{diags:?}");
    let blocks = BTreeSet::from(["known-block".to_owned()]);
    launcher(pod, &objects.vm_pods[0], &blocks, &settings)
}

#[test]
fn launchers_are_as_the_golden_files_say() {
    let update = std::env::var_os("DISKLET_UPDATE_GOLDEN").is_some();
    for case in cases() {
        let text = format!("{:#}\n", launched(&pod(&case)));
        let file = case.join("launcher.golden.json");
        if update {
            fs::write(file, text).unwrap();
        } else {
            let golden = fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(
                text,
                golden,
                "{}; script/golden writes it anew",
                file.display()
            );
        }
    }
}

#[test]
fn a_launcher_and_its_vm_pod_are_made_of_each_other() {
    for case in cases() {
        let pod = pod(&case);
        assert!(is_vm(&pod) && !is_launcher(&pod));
        assert_eq!(original(&pod), None);
        let launcher = launched(&pod);
        assert!(is_vm(&launcher) && is_launcher(&launcher));
        assert_eq!(original(&launcher), Some(pod), "{}", case.display());
        let again = launched(&original(&launcher).unwrap());
        assert_eq!(again, launcher, "{}", case.display());
    }
}

/// Such as that of a backup, whose launcher's annotation somebody has removed.
#[test]
fn the_agents_finalizer_is_there_once() {
    let mut pod = case("seed");
    pod["metadata"]["finalizers"] = json!(["disklet.io/agent", "example.com/own"]);
    let launcher = launched(&pod);
    assert_eq!(
        launcher["metadata"]["finalizers"],
        pod["metadata"]["finalizers"]
    );
}

/// What others put beside a launcher is not the VM's.
#[test]
fn a_sidecar_is_no_part_of_the_vm() {
    let pod = case("seed");
    let mut launcher = launched(&pod);
    let containers = launcher["spec"]["containers"].as_array_mut().unwrap();
    containers.push(json!({"name": "sidecar", "image": "example.com/proxy"}));
    launcher["spec"]["initContainers"] = json!([{"name": "first"}]);
    assert_eq!(original(&launcher), Some(pod));
}

#[test]
fn a_launcher_whose_vm_pod_is_damaged_stands_for_none() {
    for damage in ["", "{}", "[]", r#"{"containers": 1}"#] {
        let mut launcher = launched(&case("seed"));
        launcher["metadata"]["annotations"][SAVED] = json!(damage);
        assert_eq!(original(&launcher), None, "{damage}");
    }
}

#[test]
fn only_claims_that_say_nothing_are_looked_at() {
    let wanted = ["known-block", "rbd-claim"].map(str::to_owned);
    assert_eq!(claims_to_look_at(&case("claims")), BTreeSet::from(wanted));
    assert_eq!(claims_to_look_at(&case("seed")), BTreeSet::new());
}

/// `kubectl apply` merges what a manifest says into what is there.
#[test]
fn a_manifest_that_is_applied_again_changes_nothing() {
    for case in cases() {
        let pod = pod(&case);
        let launcher = launched(&pod);
        let mut merged = launcher.clone();
        let (into, from) = (&mut merged["spec"], &pod["spec"]);
        for key in ["runtimeClassName", "securityContext"] {
            if let Some(value) = from.get(key) {
                into[key] = value.clone();
            }
        }
        let (into, from) = (&mut into["containers"][0], &from["containers"][0]);
        into["image"] = from["image"].clone();
        if let Some(limits) = from["resources"].get("limits") {
            into["resources"]["limits"] = limits.clone();
        }
        for list in ["volumeMounts", "volumeDevices"] {
            let more = from[list].as_array().cloned().unwrap_or_default();
            if !more.is_empty() {
                let mut all = into[list].as_array().cloned().unwrap_or_default();
                all.extend(more);
                into[list] = json!(all);
            }
        }
        assert_ne!(merged, launcher);
        assert_eq!(kept(&launcher, &merged), Ok(launcher), "{}", case.display());
    }
}

#[test]
fn what_others_may_change_of_a_pod_is_changed() {
    let launcher = launched(&case("seed"));
    let mut new = launcher.clone();
    new["metadata"]["labels"]["app"] = json!("web");
    new["metadata"]["finalizers"] = json!([]);
    new["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    assert_eq!(kept(&launcher, &new), Ok(new));
}

#[test]
fn another_image_is_refused_by_its_field() {
    let launcher = launched(&case("seed"));
    let mut new = launcher.clone();
    new["spec"]["containers"][0]["image"] = json!("example.com/shell");
    let refused = kept(&launcher, &new).unwrap_err();
    assert_eq!(refused.0, "spec.containers[0].image");
}

#[test]
fn who_removes_what_makes_it_a_launcher_does_not() {
    let launcher = launched(&case("seed"));
    let mut new = launcher.clone();
    new["metadata"]["annotations"] = json!({});
    new["metadata"]["labels"] = json!({});
    let kept = kept(&launcher, &new).unwrap();
    assert!(is_launcher(&kept));
    assert_eq!(kept["metadata"]["labels"], launcher["metadata"]["labels"]);
}

/// Ports of containers are for people to read; the kubelet asks at any.
#[test]
fn a_guest_is_reached_where_the_kubelet_asks() {
    let mut pod = case("seed");
    let container = &mut pod["spec"]["containers"][0];
    container["livenessProbe"] = json!({"httpGet": {"port": 18080}});
    container["readinessProbe"] = json!({"tcpSocket": {"port": 20022}});
    container["startupProbe"] = json!({"grpc": {"port": 30001}});
    let ports = |pod: &Value| launched(pod)["spec"]["containers"][0]["args"][2].clone();
    assert_eq!(ports(&pod), "--tcp-ports=1-9999,18080,20022,30001");
    // A name is that of one of the container's ports.
    let container = &mut pod["spec"]["containers"][0];
    container["livenessProbe"] = json!({"httpGet": {"port": "web"}});
    container["ports"] = json!([{"name": "web", "containerPort": 18081}]);
    assert_eq!(ports(&pod), "--tcp-ports=1-9999,18081,20022,30001");
}

/// By its label a launcher is protected from updates; another webhook may have taken it.
#[test]
fn a_launcher_without_its_label_may_have_it_again() {
    let launcher = launched(&case("seed"));
    let mut bare = launcher.clone();
    bare["metadata"]["labels"] = json!({"app": "web"});
    let mut mended = bare.clone();
    mended["metadata"]["labels"]["disklet.io/vm"] =
        launcher["metadata"]["labels"]["disklet.io/vm"].clone();
    assert_eq!(unchanged(&bare, &mended), Ok(()));
    assert_eq!(kept(&bare, &mended), Ok(mended.clone()));
    // Nothing of it is made up, nor has it another one.
    assert_eq!(kept(&bare, &bare), Ok(bare.clone()));
    let mut other = mended.clone();
    other["metadata"]["labels"]["disklet.io/vm"] = json!("other");
    assert_eq!(kept(&bare, &other), Ok(mended.clone()));
    for old in [&bare, &mended] {
        let refused = unchanged(old, &other).unwrap_err();
        assert_eq!(refused.0, "metadata.labels.disklet.io/vm");
    }
    assert!(unchanged(&mended, &bare).is_err());
}

/// API servers with a gate that is off by default.
#[test]
fn what_api_servers_fill_in_changes_no_launcher() {
    let made = launched(&case("seed"));
    let mut stored = made.clone();
    stored["spec"]["containers"][0]["resizePolicy"] =
        json!([{"resourceName": "memory", "restartPolicy": "NotRequired"}]);
    stored["spec"]["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
    assert_eq!(altered(&stored, &made), None);
}

#[test]
fn what_a_guest_cannot_have_is_refused_by_its_field() {
    let mut pod = case("seed");
    pod["spec"]["hostNetwork"] = json!(true);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(-5);
    pod["spec"]["hostPID"] = json!(false);
    pod["spec"]["volumes"][0]["name"] = json!("disklet");
    let container = &mut pod["spec"]["containers"][0];
    container["livenessProbe"] = json!({"exec": {"command": ["true"]}});
    container["lifecycle"] = json!({"preStop": {"exec": {"command": ["true"]}}});
    let mut diags = Diagnostics::default();
    let input = Input {
        name: "pod".into(),
        text: pod.to_string(),
    };
    check(&input, &mut diags);
    let all = diags.into_sorted();
    let mut fields: Vec<_> = all
        .iter()
        .map(|it| it.place.as_ref().unwrap().path.to_string())
        .collect();
    fields.sort();
    let wanted = [
        "spec.containers[0].lifecycle",
        "spec.containers[0].livenessProbe.exec",
        "spec.hostNetwork",
        "spec.terminationGracePeriodSeconds",
        "spec.volumes[0].name",
    ];
    assert_eq!(fields, wanted);
}
