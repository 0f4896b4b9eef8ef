//! The launcher pod of each VM below `golden/` is, to the byte, the file
//! `pod.json` beside it; `waits.txt` has the claims that a VM has to wait for.
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

use std::fs;
use std::path::{Path, PathBuf};

use disklet_core::diag::Diagnostics;
use disklet_core::launch::pod::{
    SECCOMP_PROFILE, SECCOMP_PROFILE_TEXT, Settings, label_value, pod,
};
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::units::ByteSize;
use serde_json::Value;

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(directory).unwrap();
    let mut cases: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

fn objects(case: &Path) -> Objects {
    let input = Input {
        name: "objects.yaml".into(),
        text: fs::read_to_string(case.join("objects.yaml")).unwrap(),
    };
    let mut diags = Diagnostics::default();
    let mut objects = Objects::default();
    let namespace = Namespace::parse("default").unwrap();
    objects.read(&input, &namespace, &mut diags);
    assert_eq!(diags.errors(), 0, "{}: {diags:?}", case.display());
    objects
}

fn settings() -> Settings {
    Settings {
        image: "example.com/disklet:1".to_owned(),
        pull_policy: None,
        default_memory: ByteSize::from_bytes(1 << 30),
        low_ports: true,
        seccomp_profile: Some(SECCOMP_PROFILE.to_owned()),
    }
}

/// The file's name, and its text.
fn outcome(case: &Path) -> (&'static str, String) {
    let objects = objects(case);
    match pod(&objects.vms[0], &objects, &settings()) {
        Ok(pod) => ("pod.json", format!("{pod:#}\n")),
        Err(waits) => {
            let line =
                |it: &disklet_core::launch::pod::Unready| format!("{}: {}\n", it.claim, it.why);
            ("waits.txt", waits.iter().map(line).collect())
        }
    }
}

#[test]
fn pods_are_as_the_golden_files_say() {
    let update = std::env::var_os("DISKLET_UPDATE_GOLDEN").is_some();
    for case in cases() {
        let (name, text) = outcome(&case);
        let file = case.join(name);
        if update {
            for stale in ["pod.json", "waits.txt"] {
                let _ = fs::remove_file(case.join(stale));
            }
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

/// What Pod Security's profile `restricted` demands.
#[test]
fn pods_are_restricted() {
    for case in cases() {
        let (_, text) = outcome(&case);
        let Ok(pod) = serde_json::from_str::<Value>(&text) else {
            continue;
        };
        let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            spec["securityContext"]["seccompProfile"]["type"],
            "Localhost"
        );
        assert_eq!(
            container["securityContext"]["allowPrivilegeEscalation"],
            false
        );
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"][0],
            "ALL"
        );
        assert_eq!(
            container["securityContext"]["capabilities"]["add"],
            serde_json::json!(["NET_BIND_SERVICE"])
        );
        for volume in spec["volumes"].as_array().unwrap() {
            let allowed = ["emptyDir", "persistentVolumeClaim"];
            assert!(
                allowed.iter().any(|kind| volume.get(kind).is_some()),
                "{volume}"
            );
        }
    }
}

/// The kubelet has it read by a container runtime, which takes names it knows.
#[test]
fn the_seccomp_profile_lets_passt_shut_itself_in() {
    let profile: Value = serde_json::from_str(SECCOMP_PROFILE_TEXT).unwrap();
    let denied = profile["syscalls"][0]["names"].as_array().unwrap();
    for needed in [
        "unshare",
        "mount",
        "umount2",
        "pivot_root",
        "prctl",
        "clone",
    ] {
        assert!(!denied.iter().any(|name| name == needed), "{needed}");
    }
    for dangerous in [
        "ptrace",
        "bpf",
        "kexec_load",
        "setns",
        "open_by_handle_at",
        "keyctl",
    ] {
        assert!(denied.iter().any(|name| name == dangerous), "{dangerous}");
    }
}

#[test]
fn names_that_are_too_long_for_labels_stay_apart() {
    let (one, other) = ("a".repeat(100), "a".repeat(101));
    let (one, other) = (label_value(&one), label_value(&other));
    assert_ne!(one, other);
    assert_eq!((one.len(), other.len()), (63, 63));
    assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
}
