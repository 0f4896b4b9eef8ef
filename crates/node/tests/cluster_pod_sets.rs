//! VM pods that others make and replace: Deployments, StatefulSets, the kubelet that
//! restarts, whoever drains a node.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::path::Path;
use std::process::Command;

use kube::guests::{NODE, assert_said, have_small_guest};
use kube::pods::{COUNT, COUNTED, restarts, vm_pod};
use kube::storage::{Folder, Loop, claim, local, write_disk, written};
use kube::{Tenant, run, until};
use world::{alone, have_idle_guest, kill, until_nothing_is_left};

/// The template of a set: a VM pod whose guest does nothing. `version` is a part of
/// what the guest is told.
fn template(version: &str) -> String {
    format!(
        "  template:
    metadata:
      labels: {{app: set}}
      annotations:
        kubernetes.io/target-runtime: virtlet.cloud
        VirtletCloudInitMetaData: '{{version: \"{version}\"}}'
    spec:
      terminationGracePeriodSeconds: 6
      containers:
      - name: set-vm
        image: virtlet.cloud/idle
        resources: {{limits: {{memory: 32Mi}}}}
"
    )
}

fn deployment(version: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: set}}
spec:
  replicas: 2
  strategy: {{rollingUpdate: {{maxSurge: 1, maxUnavailable: 0}}}}
  selector: {{matchLabels: {{app: set}}}}
{}",
        template(version)
    )
}

/// The pods of the set that are not about to go, each with its UID.
fn pods(tenant: &Tenant) -> Vec<(String, String)> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
    let listed = tenant.kubectl(&["get", "pods", "-l", "app=set", "-o", path]);
    let words = listed
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let staying = words.filter(|words| words[2..] == [""]);
    staying
        .map(|words| (words[0].to_owned(), words[1].to_owned()))
        .collect()
}

fn roll_out(tenant: &Tenant) {
    tenant.kubectl(&["rollout", "status", "deployment/set", "--timeout=300s"]);
}

/// A version follows the other only as fast as guests run, and at any time there are
/// as many of them as there shall be.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_deployment_is_rolled_out_guest_by_guest() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("rolled");
    tenant.apply(&deployment("1"));
    roll_out(&tenant);
    let first = pods(&tenant);
    assert_eq!(first.len(), 2, "{first:?}");
    // What is deleted is made anew, by the ReplicaSet.
    tenant.kubectl(&["delete", "pod", &first[0].0, "--wait=false"]);
    until(60, "another pod is made", || {
        let now = pods(&tenant);
        (now.len() == 2 && !now.contains(&first[0])).then_some(())
    });
    roll_out(&tenant);
    tenant.apply(&deployment("2"));
    let ready = "jsonpath={.status.readyReplicas}";
    let mut fewest = 2;
    until(240, "the second version is rolled out", || {
        let now = tenant.kubectl(&["get", "deployment", "set", "-o", ready]);
        fewest = fewest.min(now.parse().unwrap_or(0));
        let (done, _) =
            tenant.try_kubectl(&["rollout", "status", "deployment/set", "--timeout=1s"]);
        done.then_some(())
    });
    assert_eq!(fewest, 2, "guests that ran at any time");
    let second = pods(&tenant);
    assert!(second.iter().all(|pod| !first.contains(pod)), "{second:?}");
    tenant.kubectl(&["delete", "deployment", "set"]);
    until_nothing_is_left(120, "a Deployment");
}

fn stateful_set(device: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: set}}
spec:
  serviceName: set
  replicas: 1
  selector: {{matchLabels: {{app: set}}}}
  template:
    metadata:
      labels: {{app: set}}
      annotations:
        kubernetes.io/target-runtime: virtlet.cloud
        VirtletCloudInitUserDataScript: |
          #!/bin/sh
          #guest: echo BEFORE $(dd if={device} bs=512 skip=1 count=1 2>/dev/null | head -n 1) END
          #guest: echo written by $(cat /proc/sys/kernel/random/boot_id) | dd of={device} bs=512 seek=1 conv=notrunc,fsync
          #guest: stay
    spec:
      terminationGracePeriodSeconds: 20
      containers:
      - name: set-vm
        image: virtlet.cloud/small
        resources: {{limits: {{memory: 128Mi}}}}
        volumeDevices: [{{name: data, devicePath: /dev/data}}]
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec:
      storageClassName: \"\"
      volumeMode: Block
      accessModes: [ReadWriteOnce]
      resources: {{requests: {{storage: 8Mi}}}}
"
    )
}

/// The pod that follows another has its name and its claim, and finds what the guest
/// before it has written.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_stateful_set_keeps_its_disk() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("stateful");
    let folder = Folder::new(&tenant);
    let file = folder.0.join("data");
    write_disk(&file, "of a set");
    let device = Loop::of(&file);
    tenant.apply(&claim(
        &tenant,
        "data-set-0",
        "Block",
        &local(Path::new(&device.path)),
    ));
    tenant.apply(&stateful_set("/dev/disk-by-serial/data"));
    let console = tenant.await_console(180, "set-0", "GUEST-READY");
    assert_said(&console, &["BEFORE END"]);
    let uid = tenant.field("pod/set-0", ".metadata.uid");
    tenant.kubectl(&["delete", "pod", "set-0", "--timeout=300s"]);
    let by_first = written(&file);
    assert!(by_first.starts_with("written by "), "{by_first}");
    until(60, "there is another pod", || {
        let now = tenant.field("pod/set-0", ".metadata.uid");
        (now.is_some() && now != uid).then_some(())
    });
    let console = tenant.await_console(180, "set-0", "GUEST-READY");
    assert_said(&console, &[&format!("BEFORE {by_first} END")]);
    tenant.kubectl(&["delete", "statefulset", "set"]);
    until_nothing_is_left(120, "a StatefulSet");
    assert_ne!(written(&file), by_first);
}

/// The pod stays, and so do its volumes: for a guest that switches itself off, one
/// whose QEMU dies, and one that does not answer.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_is_started_again_in_its_pod() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("again");
    let ends = [&COUNT[..], &["sleep 2"]].concat();
    tenant.apply(&vm_pod("ends", COUNTED, &ends));
    let stay = [&COUNT[..], &["stay"]].concat();
    let probe = "    livenessProbe: {httpGet: {port: 7777}, periodSeconds: 2, failureThreshold: 2, initialDelaySeconds: 25}\n";
    tenant.apply(&vm_pod("deaf", &format!("{probe}{COUNTED}"), &stay));
    tenant.apply(&vm_pod("crashes", COUNTED, &stay));
    let uid = |pod: &str| tenant.field(&format!("pod/{pod}"), ".metadata.uid");
    let before = ["ends", "deaf", "crashes"].map(uid);
    tenant.await_console(180, "crashes", "GUEST-READY");
    kill(&tenant.qemu("crashes-vm").expect("QEMU runs"));
    for (pod, uid_before) in ["crashes", "ends", "deaf"]
        .into_iter()
        .zip([&before[2], &before[0], &before[1]])
    {
        let console = until(240, &format!("{pod} is started again"), || {
            let console = tenant.try_kubectl(&["logs", pod]).1;
            (restarts(&tenant, pod) > 0 && console.contains("STARTS")).then_some(console)
        });
        assert!(
            !console.contains("STARTS 1\r"),
            "{pod} has lost its volume: {console}"
        );
        assert_eq!(uid(pod), *uid_before, "{pod}");
    }
    tenant.kubectl(&["delete", "pod", "--all", "--timeout=300s"]);
    until_nothing_is_left(60, "pods that were restarted");
}

/// Takes the mark off again, whatever happens.
struct Cordoned;

impl Drop for Cordoned {
    fn drop(&mut self) {
        let _ = Command::new("kubectl").args(["uncordon", NODE]).output();
    }
}

/// Guests are asked to switch themselves off, and whoever drains waits for them.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_node_is_drained() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("drained");
    let labelled = "metadata:\n  labels: {app: drained}\n";
    tenant.apply(&vm_pod("drained", "", &["stay"]).replace("metadata:\n", labelled));
    tenant.await_console(180, "drained", "GUEST-READY");
    let cordoned = Cordoned;
    run(Command::new("kubectl").args([
        "drain",
        NODE,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--pod-selector=app=drained",
        "--timeout=90s",
    ]));
    assert_eq!(tenant.field("pod/drained", ".metadata.uid"), None);
    until_nothing_is_left(30, "a node that was drained");
    drop(cordoned);
}
