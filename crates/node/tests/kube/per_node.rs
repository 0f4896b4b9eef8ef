//! A node with a pool of its own, as an administrator gives it one.

use std::io::Write;
use std::process::{Command, Stdio};

use super::kube::{Tenant, cluster_directory, run, until};

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

/// The node's files of it.
pub(crate) const FILES: &str = "/var/lib/ssd";

/// The node has the pool `fast`, and the nodes are as others expect them afterwards,
/// whatever has become of the test.
pub(crate) struct PoolOfNode(String);

impl PoolOfNode {
    pub(crate) fn give_to(node: &str) -> Self {
        let given = Self(node.to_owned());
        Tenant::apply_to_disklet(CLAIM);
        let file = cluster_directory().join("shared/per-node.yaml");
        let pools = "{fast: {claim: ssd, path: /storage/ssd, overcommit: 1000}}";
        std::fs::write(&file, format!("nodes: {{{node}: {{pools: {pools}}}}}\n")).expect("a file");
        install(&["--per-node", file.to_str().expect("a path")]);
        given.await_pods(&format!("-{node}"));
        until(60, "the node says that it has the pool", || {
            (label(node, "fast") == "yes").then_some(())
        });
        given
    }

    /// Its pods are those of other sets.
    fn await_pods(&self, suffix: &str) {
        for component in ["libvirt", "agent"] {
            let set = format!("disklet-{component}{suffix}");
            until(180, &format!("the pod of {set} is ready"), || {
                let (node, label) = (&self.0, format!("disklet.io/component={component}"));
                let of_node = format!("--field-selector=spec.nodeName={node}");
                let path = "jsonpath={range .items[*]}{.metadata.ownerReferences[0].name} {.metadata.deletionTimestamp} {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
                let get = ["-n", "disklet", "get", "pods", "-l", &label, &of_node];
                let found = Command::new("kubectl")
                    .args(get)
                    .args(["-o", path])
                    .output();
                let found = String::from_utf8(found.expect("kubectl starts").stdout).ok()?;
                (found.trim() == format!("{set}  True")).then_some(())
            });
        }
    }
}

impl Drop for PoolOfNode {
    fn drop(&mut self) {
        let of_nodes = ["delete", "daemonset", "-l", "disklet.io/node"];
        let _ = Command::new("kubectl")
            .args(["-n", "disklet"])
            .args(of_nodes)
            .status();
        install(&[]);
        // Panicking twice would hide why.
        if !std::thread::panicking() {
            self.await_pods("");
        }
        for object in ["pvc/ssd", "pv/disklet-ssd"] {
            let delete = ["-n", "disklet", "delete", object, "--wait=false"];
            let _ = Command::new("kubectl").args(delete).status();
        }
    }
}

/// As an administrator says it: what is printed is applied.
fn install(options: &[&str]) {
    let program = cluster_directory().join("shared/disklet");
    // As many controllers as the cluster was given.
    let nodes = run(Command::new("kubectl").args(["get", "nodes", "-o", "name"]));
    let replicas = nodes.lines().count().to_string();
    let printed = run(Command::new(program)
        .args(["install", "--replicas", &replicas])
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

/// What a node says of a usage type.
pub(crate) fn label(node: &str, usage: &str) -> String {
    let path = format!("jsonpath={{.metadata.labels.storage\\.disklet\\.io/{usage}}}");
    run(Command::new("kubectl").args(["get", "node", node, "-o", &path]))
}

/// A VM whose disk is in such a pool.
pub(crate) fn vm(name: &str, usage: &str) -> String {
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

/// No node fits it.
pub(crate) fn until_nothing_fits(tenant: &Tenant, name: &str) {
    let why = ".status.conditions[?(@.type==\"PodScheduled\")].message";
    until(60, "nothing fits a VM without its pool", || {
        let why = tenant.field(&format!("pod/{name}"), why)?;
        why.contains("match").then_some(())
    });
}
