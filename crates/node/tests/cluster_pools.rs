//! Pools that one node has: its agent mounts them, its labels name them, and VMs that
//! want them go there.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::io::Write;
use std::process::{Command, Stdio};

use kube::guests::{NODE, delete};
use kube::{Tenant, cluster_directory, on_node, run, until};
use world::{alone, have_idle_guest, pod_of, until_nothing_is_left};

const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolume
metadata: {name: disklet-ssd}
spec:
  storageClassName: ''
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: disklet, name: ssd}
  hostPath: {path: /var/lib/ssd, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ssd}
spec:
  storageClassName: ''
  volumeName: disklet-ssd
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
";

fn kubectl(arguments: &[&str]) -> String {
    run(Command::new("kubectl").args(arguments))
}

/// As an administrator says it: what is printed is applied.
fn install(options: &[&str]) {
    let program = cluster_directory().join("shared/disklet");
    let printed = run(Command::new(program)
        .args(["install", "--replicas", "1"])
        .args(options));
    let mut apply = Command::new("kubectl")
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("kubectl starts");
    let mut stdin = apply.stdin.take().expect("it listens");
    stdin.write_all(printed.as_bytes()).expect("it listens");
    drop(stdin);
    assert!(apply.wait().expect("it ends").success());
}

/// The pods of a part of Disklet are those of a set.
fn await_pods_of(component: &str, set: &str) {
    until(180, &format!("the pod of {set} is ready"), || {
        let pod = pod_of(component);
        let owner = "jsonpath={.metadata.ownerReferences[0].name}";
        let owner = Command::new("kubectl")
            .args(["-n", "disklet", "get", "pod", &pod, "-o", owner])
            .output()
            .expect("kubectl starts");
        (String::from_utf8_lossy(&owner.stdout) == set).then_some(())
    });
}

fn label(usage: &str) -> String {
    let path = format!("jsonpath={{.metadata.labels.storage\\.disklet\\.io/{usage}}}");
    kubectl(&["get", "node", NODE, "-o", &path])
}

fn vm(name: &str, usage: &str) -> String {
    format!(
        "apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 2
  domain:
    memory: 32Mi
    devices:
      disks:
      - source: {{image: {{name: virtlet.cloud/idle}}}}
        copy: {{mode: copy-on-write, usage-type: {usage}}}
"
    )
}

/// The node is as others expect it, whatever has become of the test.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        let of_node = [
            "-n",
            "disklet",
            "delete",
            "daemonset",
            "-l",
            "disklet.io/node",
        ];
        let _ = Command::new("kubectl").args(of_node).status();
        install(&[]);
        await_pods_of("libvirt", "disklet-libvirt");
        await_pods_of("agent", "disklet-agent");
        for object in ["pvc/ssd", "pv/disklet-ssd"] {
            let delete = ["-n", "disklet", "delete", object, "--wait=false"];
            let _ = Command::new("kubectl").args(delete).status();
        }
    }
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_node_has_a_pool_of_its_own() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("pools");
    assert_eq!(label("volumes"), "yes", "every node has it");
    assert_eq!(label("fast"), "");
    tenant.apply(&vm("early", "fast"));
    let why = ".status.conditions[?(@.type==\"PodScheduled\")].message";
    until(60, "nothing fits a VM without its pool", || {
        let why = tenant.field("pod/early", why)?;
        why.contains("match").then_some(())
    });

    let restored = Restored;
    Tenant::apply_to_disklet(CLAIM);
    let file = cluster_directory().join("shared/per-node.yaml");
    let pools = "{fast: {claim: ssd, path: /storage/ssd, overcommit: 1000}}";
    std::fs::write(&file, format!("nodes: {{{NODE}: {{pools: {pools}}}}}\n")).expect("a file");
    install(&["--per-node", file.to_str().expect("a path")]);
    await_pods_of("libvirt", &format!("disklet-libvirt-{NODE}"));
    await_pods_of("agent", &format!("disklet-agent-{NODE}"));
    until(60, "the node says that it has the pool", || {
        (label("fast") == "yes").then_some(())
    });

    // The one that waited comes, and its copy is in the pool.
    tenant.await_ready(90, "early");
    let files = on_node(NODE, &["ls", "/var/lib/ssd"]);
    assert!(files.contains("-sda"), "{files}");
    let listed = run(Command::new("kubectl").args([
        "-n",
        "disklet",
        "exec",
        &pod_of("agent"),
        "-c",
        "agent",
        "--",
        "sh",
        "-c",
        "virsh -q -c \"$LIBVIRT_DEFAULT_URI\" pool-list --name",
    ]));
    assert!(listed.lines().any(|pool| pool.trim() == "fast"), "{listed}");
    delete(&tenant, "early");
    assert_eq!(on_node(NODE, &["ls", "/var/lib/ssd"]).trim(), "");

    drop(restored);
    until(
        60,
        "the node says that it has not the pool any more",
        || label("fast").is_empty().then_some(()),
    );
    assert_eq!(label("volumes"), "yes");
    until_nothing_is_left(60, "the test");
}

fn lease_of_nobody(object: &str) -> String {
    let nobody = "00000000-0000-0000-0000-00000000dead";
    let storage = "iscsi unit iqn.2026-01.example:forgotten/1";
    let content = format!(
        r#"{{"version":1,"storage":"{storage}","holders":[{{"uuid":"{nobody}","namespace":"gone","name":"gone","node":"{NODE}","boot":"earlier","access":"write-exclusive","since":"2026-01-01T00:00:00Z"}}]}}"#
    );
    format!(
        "apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {object}
  labels: {{disklet.io/lease: storage}}
  annotations: {{disklet.io/lease: '{content}'}}
spec: {{holderIdentity: gone/gone}}
"
    )
}

/// Also while no agent starts.
#[test]
#[ignore = "needs a cluster: script/test"]
fn labels_that_are_taken_off_and_leases_of_nobody_are_mended() {
    let _alone = alone();
    let agent = pod_of("agent");
    let lease = "storage-00000000000000000000000000000000000000ff";
    Tenant::apply_to_disklet(&lease_of_nobody(lease));
    kubectl(&[
        "label",
        "node",
        NODE,
        "extraRuntime-",
        "storage.disklet.io/volumes-",
        "storage.disklet.io/slow=yes",
    ]);
    assert_eq!(label("volumes"), "");
    until(180, "the node has its labels again, and no other", || {
        let runs_vms = kubectl(&[
            "get",
            "node",
            NODE,
            "-o",
            "jsonpath={.metadata.labels.extraRuntime}",
        ]);
        let labels = [&runs_vms, &label("volumes"), &label("slow")];
        (labels == ["virtlet", "yes", ""]).then_some(())
    });
    until(10, "nobody holds what nobody has", || {
        let found = Command::new("kubectl")
            .args(["-n", "disklet", "get", "lease", lease])
            .output()
            .expect("kubectl starts");
        (!found.status.success()).then_some(())
    });
    assert_eq!(pod_of("agent"), agent, "it was this agent");
}
