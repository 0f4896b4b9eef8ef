//! What `up` tells people to do, `up` can be told. Nothing here gets as far as
//! libvirt.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others cut the rest")]
#[path = "kills/shown.rs"]
mod shown;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use disklet_core::plan::StepKind;
use shown::Shown;

/// A directory that goes with the test.
struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("disklet-flags-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let scratch = Self { folder };
        let folder = scratch.folder.display();
        let config = format!("dataDir: {folder}/data\nrunDir: {folder}/run\ndomainType: qemu\n");
        scratch.write("config.yaml", &config);
        scratch
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// What `up` says about a manifest.
    fn up(&self, manifest: &Path, config: &Path) -> String {
        self.up_at("qemu+unix:///system?socket=/nonexistent", manifest, config)
    }

    /// The same with a daemon.
    fn up_at(&self, daemon: &str, manifest: &Path, config: &Path) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_disklet-node"))
            .args(["up", "--connect", daemon])
            .arg("-f")
            .arg(manifest)
            .arg("--config")
            .arg(config)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{}", manifest.display());
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn flags_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
    flags.map(str::to_owned).collect()
}

fn flags_of_up() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_disklet-node"))
        .args(["up", "--help"])
        .output()
        .unwrap();
    let flags = flags_in(&String::from_utf8(output.stdout).unwrap());
    assert!(flags.contains("--raw-devices"), "{flags:?}");
    flags
}

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: flags
  annotations: {kubernetes.io/target-runtime: virtlet.cloud}
spec:
  containers: [{name: vm, image: virtlet.cloud/tiny}]
  volumes:
";
const NO_DEVICE: &str = "  - name: data
    flexVolume:
      driver: virtlet/flexvolume_driver
      options: {type: raw, path: /dev/loop-that-is-not-there}
";
const CLAIM: &str = "  - {name: data, persistentVolumeClaim: {claimName: data}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Mi}, hostPath: {path: /nonexistent}}
";

#[test]
fn what_is_wrong_is_told_with_flags_that_up_has() {
    let scratch = Scratch::new("wrong");
    let config = scratch.folder.join("config.yaml");
    let facts = "apiVersion: disklet.io/v1alpha1\nkind: NodeFacts\n";
    let device = scratch.write("device.yaml", &format!("{POD}{NO_DEVICE}---\n{facts}"));
    let claim = scratch.write("claim.yaml", &format!("{POD}{CLAIM}"));
    let facts = scratch.write("facts.yaml", facts);
    let known = flags_of_up();
    for (manifest, config, parts) in [
        (
            &device,
            &config,
            &["does not exist on the node", "facts of a node"][..],
        ),
        (&claim, &config, &["put a raw disk image named disk.img"]),
        (&device, &facts, &["is no configuration of a node"]),
        (&device, &claim, &["help: give manifests with -f"]),
    ] {
        let said = scratch.up(manifest, config);
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
        let unknown: Vec<_> = flags_in(&said).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?}: {said}");
    }
}

/// A daemon of another machine would look for the disks there.
#[test]
fn daemons_of_other_machines_are_refused_unasked() {
    let scratch = Scratch::new("remote");
    let config = scratch.folder.join("config.yaml");
    let manifest = scratch.write("pod.yaml", POD.trim_end_matches("  volumes:\n"));
    for daemon in [
        "qemu+ssh://root@host.invalid/system",
        "qemu+tcp://host.invalid/system",
        "qemu://host.invalid/system",
    ] {
        let told = scratch.up_at(daemon, &manifest, &config);
        let wanted = format!(
            "error: {daemon} is a libvirt of another machine, and the disks are made on this one\n  help: run disklet on that machine"
        );
        assert!(told.contains(&wanted), "{told}");
        assert!(!scratch.folder.join("data/images/pulling").exists());
    }
}

#[test]
fn long_names_do_not_bury_the_message() {
    let scratch = Scratch::new("long");
    let name = "x".repeat(5000);
    for command in ["down", "describe", "logs", "console"] {
        let output = Command::new(env!("CARGO_BIN_EXE_disklet-node"))
            .args([command, &name, "--config"])
            .arg(scratch.folder.join("config.yaml"))
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            told.starts_with("error: there is no VM default/xxx"),
            "{told}"
        );
        assert!(told.len() < 300, "{told}");
    }
}

#[test]
fn no_refusal_names_a_flag_that_up_lacks() {
    let scratch = Scratch::new("all");
    let config = scratch.folder.join("config.yaml");
    let known = flags_of_up();
    let refusals = Path::new(env!("CARGO_MANIFEST_DIR")).join("../disklet/tests/refusals");
    let mut tried = 0;
    for entry in std::fs::read_dir(refusals).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        let said = scratch.up(&path, &config);
        // What the input itself says is nobody's advice.
        let advice = said.lines().filter(|line| line.starts_with("  help: "));
        for line in advice {
            let unknown: Vec<_> = flags_in(line).difference(&known).cloned().collect();
            assert!(unknown.is_empty(), "{}: {line}", path.display());
        }
        tried += 1;
    }
    assert!(tried > 50, "{tried} inputs");
}

#[test]
fn what_up_cannot_do_is_refused_before_anything_is_asked() {
    let scratch = Scratch::new("unsupported");
    let config = scratch.folder.join("config.yaml");
    let image = "{source: {image: {name: nowhere.example.com/disk.img}}}";
    let container = "{source: {container: {image: storage}}}";
    let mut refused = Vec::new();
    for (step, spec, wanted) in [
        (
            StepKind::AskContainer,
            format!("{{domain: {{devices: {{disks: [{image}, {container}]}}}}}}"),
            "default/vm: disk sdb: its storage comes from a cluster",
        ),
        (
            StepKind::AttachIdentity,
            format!(
                "{{identity: {{set: pets, name: pet}}, domain: {{devices: {{disks: [{image}]}}}}}}"
            ),
            "default/vm: disk root: its storage comes from a cluster",
        ),
    ] {
        let manifest = scratch.write(
            "vm.yaml",
            &format!(
                "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: vm}}\nspec: {spec}\n"
            ),
        );
        let told = scratch.up(&manifest, &config);
        assert!(told.contains(wanted), "{told}");
        assert!(told.contains("help: "), "{told}");
        assert!(!scratch.folder.join("data").exists(), "nothing is made");
        refused.push(step);
    }
    assert_eq!(refused, Shown::Refused.steps().collect::<Vec<_>>());
}

fn node(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_disklet-node"))
        .args(arguments)
        .env("LIBVIRT_DEFAULT_URI", "qemu:///system")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

#[test]
fn a_daemon_without_a_name_is_wrong_usage() {
    for command in ["ps", "gc"] {
        let (code, said) = node(&[command, "--connect", ""]);
        assert_eq!(code, Some(2), "{said}");
        let wanted = "error: invalid value '' for '--connect <URI>': it is empty: name a daemon";
        assert!(said.starts_with(wanted), "{said}");
    }
}

#[test]
fn a_daemon_that_the_environment_names_is_not_in_the_usage() {
    let (code, said) = node(&["describe"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("Usage: disklet-node describe"), "{said}");
    assert!(!said.contains("--connect"), "{said}");
}
