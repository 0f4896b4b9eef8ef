//! What is given to a cluster: the definition of VM objects, and everything of an
//! installation, to the byte as the files in `cluster/` say. `script/golden`
//! writes them anew.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "support/diff.rs"]
mod diff;
#[path = "cluster/objects.rs"]
mod objects;
#[path = "refusals/program.rs"]
#[allow(dead_code, reason = "the refusals use the rest")]
mod program;
#[path = "cluster/rights.rs"]
mod rights;
#[path = "cluster/schema.rs"]
mod schema;
#[path = "cluster/yaml.rs"]
mod yaml;

use std::fs;
use std::path::{Path, PathBuf};

use program::{Outcome, program, run};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cluster")
        .join(name)
}

/// Runs the program in the directory of the golden files.
fn disklet(args: &[&str]) -> Outcome {
    let mut command = program();
    command.args(args).current_dir(file(""));
    run(command, b"")
}

/// What it prints, once it has done what it was told.
fn printed(args: &[&str]) -> String {
    let outcome = disklet(args);
    assert_eq!(outcome.code, Some(0), "{args:?}: {}", outcome.stderr);
    assert_eq!(outcome.stderr, "", "{args:?}");
    outcome.stdout
}

/// The installations that have golden files.
const INSTALLATIONS: [(&str, &[&str]); 4] = [
    ("install.golden.yaml", &["install"]),
    (
        "install-other.golden.yaml",
        &[
            "install",
            "--image",
            "registry.example.com:5000/disklet@sha256:1111111111111111111111111111111111111111111111111111111111111111",
            "--node-image",
            "registry.example.com:5000/disklet-node:1.2",
            "--namespace",
            "vm-system",
            "--config",
            "nodes.yaml",
            "--raw-devices",
            "loop*,mapper/vm-*",
            "--flexvolume-dir",
            "/var/lib/kubelet/volumeplugins",
            "--node-selector",
            "example.com/vms=yes",
            "--node-selector",
            "kubernetes.io/arch=amd64",
            "--replicas",
            "1",
        ],
    ),
    (
        "install-host.golden.yaml",
        &[
            "install",
            "--libvirt",
            "host",
            "--kubelet-root",
            "/srv/kubelet: root",
            "--no-low-ports",
            "--metrics-address",
            "0.0.0.0:9474",
        ],
    ),
    (
        "install-per-node.golden.yaml",
        &["install", "--per-node", "per-node.yaml"],
    ),
];

#[test]
fn what_is_printed_is_as_the_golden_files_say() {
    let update = std::env::var_os("DISKLET_UPDATE_GOLDEN").is_some();
    let mut failures = Vec::new();
    let crd: (&str, &[&str]) = ("crd.golden.yaml", &["crd"]);
    for (name, args) in INSTALLATIONS.into_iter().chain([crd]) {
        let text = printed(args);
        if update {
            fs::write(file(name), text).unwrap();
            continue;
        }
        let golden = fs::read_to_string(file(name)).unwrap_or_default();
        let difference = diff::first_difference(&golden, &text);
        failures.extend(difference.map(|difference| format!("{name}: {difference}")));
    }
    assert!(
        failures.is_empty(),
        "script/golden writes them anew\n\n{}",
        failures.join("\n\n")
    );
}

#[test]
fn definitions_are_the_same_in_json() {
    let list: serde_json::Value = serde_json::from_str(&printed(&["crd", "-o", "json"])).unwrap();
    let documents = yaml::documents(&printed(&["crd"]));
    assert_eq!(list["items"].as_array(), Some(&documents));
}

#[test]
fn wrong_options_are_refused_with_a_reason() {
    for (args, wanted) in [
        (&["--namespace", "default"][..], "a namespace of its own"),
        (&["--namespace", "kube-system"], "a namespace of its own"),
        (&["--namespace", "Disklet"], "not a namespace"),
        (
            &["--image", "https://example.com/disklet"],
            "an address is no name",
        ),
        (&["--image", "a b"], "the image's name"),
        (&["--node-image", ""], "the image's name"),
        (&["--kubelet-root", "var/lib/kubelet"], "an absolute path"),
        (&["--flexvolume-dir", "/plugins/../x"], "an absolute path"),
        (&["--raw-devices", "/dev/sda"], "relative to /dev"),
        (&["--raw-devices", ""], "rawDevices: []"),
        (
            &["--raw-devices", "loop*,sd\u{7}a"],
            "a control or invisible character",
        ),
        (
            &["--kubelet-root", "/var/lib//disklet/"],
            "--kubelet-root: kubeletRoot and dataDir are one directory",
        ),
        (
            &["--config", "one-directory.yaml"],
            "--config: dataDir and runDir are one directory",
        ),
        (&["--node-selector", "vms"], "not a label"),
        (&["--node-selector", "v ms=1"], "not a label"),
        (
            &["--node-selector", "extraRuntime=virtlet"],
            "--node-selector: this label is set by the agents themselves",
        ),
        (
            &["--node-selector", "storage.disklet.io/fast=yes"],
            "such as vms=yes",
        ),
        (
            &["--node-selector", "a=b", "--node-selector", "a=c"],
            "another value",
        ),
        (&["--image=-x"], "begins with a letter or a digit"),
        (
            &["--metrics-address", "192.0.2.1:9473"],
            "that all nodes have",
        ),
        (&["--metrics-address", "0.0.0.0:0"], "that all nodes have"),
        (
            &["--metrics-address", "foo"],
            "--metrics-address: not of the form ADDRESS:PORT",
        ),
        (&["--metrics-address", "9473"], "ADDRESS:PORT"),
        (
            &["--replicas", "0"],
            "--replicas: not a number of controllers",
        ),
        (&["--replicas", "ten"], "1 to 9"),
        (&["--config", "missing.yaml"], "missing.yaml"),
        (
            &["--config", "crd.golden.yaml"],
            "no configuration of a node",
        ),
        (
            &["--config", "nodes.yaml", "--kubelet-root", "/other"],
            "names another directory",
        ),
        (&["--per-node", "missing.yaml"], "missing.yaml"),
        (&["--per-node", "nodes.yaml"], "unknown field"),
        (
            &["--per-node", "per-node.yaml", "--libvirt", "host"],
            "does not see what pods have mounted",
        ),
    ] {
        let outcome = disklet(&[&["install"], args].concat());
        let faults: Vec<_> = outcome.faults().collect();
        assert!(faults.is_empty(), "{args:?}: {faults:?}");
        assert!(
            outcome.stderr.contains(wanted),
            "{args:?}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn every_slip_in_the_pools_of_nodes_is_told_at_once() {
    let outcome = disklet(&["install", "--per-node", "per-node-wrong.yaml"]);
    let faults: Vec<_> = outcome.faults().collect();
    assert!(faults.is_empty(), "{faults:?}");
    for wanted in [
        "not a pool name",
        "not a claim's name",
        "not an absolute path",
        "/var/lib/disklet/fast and /var/lib/disklet",
        "how many times its size may be promised",
        "/storage/one/two and pool one at /storage/one",
        "unknown field \"share\"",
        "not a node's name",
        "nodes.worker-3.pools.slow.claim",
        "nodes.worker-4.pools",
    ] {
        assert!(
            outcome.stderr.contains(wanted),
            "{wanted}: {}",
            outcome.stderr
        );
    }
}
