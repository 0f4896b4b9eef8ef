//! The FlexVolume driver, as the real kubelet calls it.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use kube::{Tenant, on_node, until};
use serde_json::Value;

const NODE: &str = "node1";
const KEY: &str = "QVFEVHd1Vlk4ckE4SHhBQXRod09LYVFQcjBoUmM3a0NtUi85UWc9PQ==";

fn pod(name: &str, volumes: &[(&str, &str)]) -> String {
    let mounts = volumes
        .iter()
        .map(|(volume, _)| format!("{{name: {volume}, mountPath: /mnt/{volume}}}"));
    let mounts: Vec<_> = mounts.collect();
    let volumes = volumes
        .iter()
        .map(|(volume, text)| format!("\n  - {{name: {volume}, flexVolume: {text}}}"));
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: waits
    image: disklet.test/busybox:1
    imagePullPolicy: Never
    command: [sleep, \"1000\"]
    volumeMounts: [{}]
  volumes:{}
",
        mounts.join(", "),
        volumes.collect::<String>()
    )
}

fn volumes_of(tenant: &Tenant, pod: &str) -> String {
    let uid = tenant
        .field(&format!("pod/{pod}"), ".metadata.uid")
        .expect("the pod is there");
    format!("/var/lib/kubelet/pods/{uid}/volumes")
}

fn told_of(directory: &str) -> Value {
    let file = format!("{directory}/disklet-volume.json");
    let mode = on_node(NODE, &["stat", "-c", "%a %u", &file]);
    assert_eq!(mode.trim(), "600 0");
    let kind = on_node(NODE, &["stat", "-f", "-c", "%T", directory]);
    assert_eq!(kind.trim(), "ramfs");
    serde_json::from_str(&on_node(NODE, &["cat", &file])).expect("JSON")
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn the_kubelet_has_volumes_described_and_removed() {
    let tenant = Tenant::new("flex");
    // The kubelet hands only Secrets of the driver's own type to it.
    tenant.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: ceph}}\ntype: kubernetes.io/flexvolume_driver\ndata: {{key: {KEY}}}\n"
    ));
    let disk =
        "{driver: virtlet/flexvolume_driver, options: {type: qcow2, capacity: 64MB, part: \"1\"}}";
    let ceph = "{driver: kubernetes.io/flexvolume_driver, readOnly: true, secretRef: {name: ceph}, \
        options: {Type: ceph, Monitor: \"10.9.8.7:6789\", Pool: rbd, Volume: data, User: admin}}";
    tenant.apply(&pod("described", &[("disk", disk), ("ceph", ceph)]));
    tenant.await_field(60, "pod/described", ".status.phase", "Running");
    let volumes = volumes_of(&tenant, "described");
    let told = told_of(&format!("{volumes}/virtlet~flexvolume_driver/disk"));
    assert_eq!(told["type"], "qcow2");
    assert_eq!(told["capacity"], "64000000B");
    assert_eq!(told["part"], "1");
    assert_eq!(told["kubernetes.io/readwrite"], "rw");
    assert_eq!(told["kubernetes.io/pod.namespace"], tenant.name);
    let told = told_of(&format!("{volumes}/kubernetes.io~flexvolume_driver/ceph"));
    assert_eq!(told["monitor"], "10.9.8.7:6789");
    assert_eq!(told["kubernetes.io/readwrite"], "ro");
    let key = told["secret"].as_str().expect("the key").to_owned();
    // The container cannot change what the volume says, even as its root.
    let inside = [
        "exec",
        "described",
        "--",
        "sh",
        "-c",
        "echo x >/mnt/disk/disklet-volume.json",
    ];
    assert!(!tenant.try_kubectl(&inside).0, "it is read-only");
    for log in ["kubelet", "containerd"] {
        let shared = std::env::var("DISKLET_KUBE_DIR").expect("script/lib/kube/installed.sh");
        let said = std::fs::read_to_string(format!("{shared}/{NODE}/log/{log}.log"));
        let said = said.expect("a log");
        assert!(
            !said.contains(&key) && !said.contains(KEY),
            "{log} tells the key"
        );
    }
    tenant.kubectl(&["delete", "pod", "described", "--timeout=300s"]);
    until(60, "the volumes go", || {
        let left = on_node(
            NODE,
            &["sh", "-c", &format!("ls {volumes} 2>/dev/null || true")],
        );
        left.trim().is_empty().then_some(())
    });
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn what_the_driver_refuses_is_told_in_the_pods_events() {
    let tenant = Tenant::new("flexbad");
    let disk = "{driver: virtlet/flexvolume_driver, options: {type: qcow2, capasity: 1Gi}}";
    tenant.apply(&pod("refused", &[("disk", disk)]));
    let told = until(60, "an event of the mount", || {
        let events = [
            "get",
            "events",
            "-o",
            "jsonpath={.items[?(@.reason==\"FailedMount\")].message}",
        ];
        let told = tenant.kubectl(&events);
        told.contains("capasity").then_some(told)
    });
    assert!(told.contains("capacity"), "it tells what was meant: {told}");
    assert_eq!(
        tenant.field("pod/refused", ".status.phase").as_deref(),
        Some("Pending")
    );
    let volumes = volumes_of(&tenant, "refused");
    let left = on_node(
        NODE,
        &[
            "sh",
            "-c",
            &format!("grep {volumes}/virtlet /proc/self/mountinfo || true"),
        ],
    );
    assert_eq!(left, "");
}
