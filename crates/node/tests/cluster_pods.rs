//! VM pods on a real cluster: ordinary Pods, as users of Virtlet apply them.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;
use std::sync::RwLock;
use std::time::Duration;

use kube::guests::{NODE, assert_said, have_small_guest};
use kube::pods::{
    delete_pod, end_of, end_within, gone, have_controllers, idle_pod, restarts, to_be_seen, vm_pod,
};
use kube::{Tenant, on_node, run, until};
use serde_json::Value;
use world::{alone, have_idle_guest, kill};

/// Held alone by the test that has no controller answer.
static CONTROLLERS: RwLock<()> = RwLock::new(());

/// The first example of Virtlet's document on volumes, with a smaller first volume.
const VOLUMES: &str = "  volumes:
  - name: vol1
    flexVolume:
      driver: virtlet/flexvolume_driver
      options:
        type: qcow2
        capacity: 64MB
  - name: vol2
    flexVolume:
      driver: virtlet/flexvolume_driver
      options:
        type: qcow2";

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_pod_runs_is_seen_and_goes() {
    let _there = CONTROLLERS.read();
    have_small_guest();
    let tenant = Tenant::new("pod-runs");
    let commands = [
        "echo SEEN $(head -n 1 /proc/meminfo)",
        // The power button runs this.
        "printf '#!/bin/sh\\necho HEARD >/dev/console\\nexec /bin/off\\n' >/run/heard",
        "chmod +x /run/heard; ln -sf /run/heard /etc/acpi/PWRF/00000080",
        "stay",
    ];
    // However busy the node is, the guest has time to hear.
    let (grace, more) = ("GracePeriodSeconds: 20", "GracePeriodSeconds: 90");
    let manifest = to_be_seen(&vm_pod("one", VOLUMES, &commands)).replace(grace, more);
    tenant.apply(&manifest);
    let console = tenant.await_console(180, "one", "GUEST-READY");
    assert_said(
        &console,
        &[
            "SEEN MemTotal",
            "DISK name=sda",
            "size=64000000",
            "size=1024000000",
        ],
    );
    // The pod is ready because the guest runs.
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    tenant.await_field(20, "pod/one", ready, "True");
    let running = ".status.conditions[?(@.type==\"disklet.io/running\")].status";
    tenant.await_field(5, "pod/one", running, "True");
    let events = tenant.kubectl(&["describe", "pod", "one"]);
    assert_said(&events, &["the guest runs on node node1"]);
    // The kubelet has called the driver.
    let uid = tenant.field("pod/one", ".metadata.uid").expect("the pod");
    let told = |volume: &str| -> Value {
        let told = format!(
            "/var/lib/kubelet/pods/{uid}/volumes/virtlet~flexvolume_driver/{volume}/disklet-volume.json"
        );
        serde_json::from_str(&on_node(NODE, &["cat", &told])).expect("JSON")
    };
    assert_eq!(told("vol1")["capacity"], "64000000B");
    assert_eq!(told("vol2")["type"], "qcow2");
    // Applied again, it is as it was.
    let pod = |tenant: &Tenant| tenant.field("pod/one", ".spec").expect("the pod");
    let before = pod(&tenant);
    tenant.apply(&manifest);
    assert_eq!(pod(&tenant), before);
    // The guest is asked, switches itself off, and that is well.
    let end = end_of(&tenant, "one");
    assert_eq!(end.exit_code, 0, "{}", end.message);
    assert_said(&end.console, &["HEARD"]);
    assert!(end.took < Duration::from_secs(85), "{:?}", end.took);
}

/// It has until 5 seconds before the end of its grace, and no longer.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_that_does_not_hear_has_its_grace() {
    let _alone = alone();
    have_idle_guest();
    let tenant = Tenant::new("pod-deaf");
    let (grace, less) = ("GracePeriodSeconds: 20", "GracePeriodSeconds: 12");
    tenant.apply(&to_be_seen(&idle_pod("silent", "")).replace(grace, less));
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    tenant.await_field(60, "pod/silent", ready, "True");
    let end = end_of(&tenant, "silent");
    assert_eq!(end.exit_code, 137, "{}", end.message);
    assert_said(&end.message, &["did not switch itself off in time"]);
    let at = end.took.as_secs_f32();
    assert!((6.5..13.0).contains(&at), "{at}");
    // Whoever deletes it may leave it more time.
    let short = ("GracePeriodSeconds: 20", "GracePeriodSeconds: 2");
    tenant.apply(&to_be_seen(&idle_pod("patient", "")).replace(short.0, short.1));
    tenant.await_field(60, "pod/patient", ready, "True");
    let end = end_within(&tenant, "patient", Some(14));
    assert_said(&end.message, &["did not switch itself off in time"]);
    let at = end.took.as_secs_f32();
    assert!((8.5..15.0).contains(&at), "{at}");
}

/// One that ends by itself, says so, and is not started again; by its runtime class. One that
/// crashes is, unless its policy is another.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_pod_ends_as_its_restart_policy_says() {
    let _there = CONTROLLERS.read();
    have_small_guest();
    have_idle_guest();
    let tenant = Tenant::new("pod-off");
    tenant.apply(&vm_pod(
        "quits",
        "  restartPolicy: OnFailure",
        &["echo SHORT"],
    ));
    tenant.apply(&idle_pod("fails", "  restartPolicy: Never"));
    tenant.apply(&idle_pod("retries", "  restartPolicy: OnFailure"));
    let manifest = vm_pod(
        "brief",
        "  runtimeClassName: disklet\n  restartPolicy: Never",
        &["echo SHORT"],
    )
    .replace("    kubernetes.io/target-runtime: virtlet.cloud\n", "");
    tenant.apply(&manifest);
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    for pod in ["fails", "retries"] {
        tenant.await_field(120, &format!("pod/{pod}"), ready, "True");
        kill(&tenant.qemu(&format!("{pod}-vm")).expect("QEMU runs"));
    }
    tenant.await_field(60, "pod/fails", ".status.phase", "Failed");
    let code = ".status.containerStatuses[0].state.terminated.exitCode";
    assert_eq!(tenant.field("pod/fails", code).as_deref(), Some("1"));
    for pod in ["brief", "quits"] {
        tenant.await_console(180, pod, "GUEST-END");
        tenant.await_field(60, &format!("pod/{pod}"), ".status.phase", "Succeeded");
        assert_eq!(restarts(&tenant, pod), 0, "{pod}");
    }
    for pod in ["brief", "quits", "fails"] {
        let uid = tenant.field(&format!("pod/{pod}"), ".metadata.uid");
        gone(pod, &uid.expect("the pod"));
    }
    until(60, "the one that may is started again", || {
        (restarts(&tenant, "retries") > 0).then_some(())
    });
    tenant.await_field(60, "pod/retries", ready, "True");
    delete_pod(&tenant, "retries");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn what_a_plan_refuses_is_refused_when_it_is_applied() {
    let _there = CONTROLLERS.read();
    let tenant = Tenant::new("pod-refused");
    let volumes = "  hostNetwork: true
  volumes:
  - name: disk
    flexVolume: {driver: virtlet/flexvolume_driver, options: {type: qcow2, capasity: 1Gi}}";
    let (applied, told) = tenant.try_apply(&vm_pod("bad", volumes, &["stay"]));
    assert!(!applied, "{told}");
    assert_said(
        &told,
        &[
            "2 problems",
            "spec.hostNetwork",
            "spec.volumes[0].flexVolume.options.capasity",
        ],
    );
    assert_eq!(tenant.field("pod/bad", ".metadata.name"), None);
}

/// Nobody but the controller can let go of it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_pod_that_never_had_a_node_goes() {
    let _there = CONTROLLERS.read();
    let tenant = Tenant::new("pod-nowhere");
    tenant.apply(&vm_pod(
        "waits",
        "  nodeSelector: {no-node: has-this}",
        &["stay"],
    ));
    let reason = ".status.conditions[?(@.type==\"PodScheduled\")].reason";
    tenant.await_field(30, "pod/waits", reason, "Unschedulable");
    tenant.kubectl(&["delete", "pod", "waits", "--timeout=300s"]);
}

/// A pod with all that pods have.
const ORDINARY: &str = "apiVersion: v1
kind: Pod
metadata: {name: ordinary, annotations: {kubernetes.io/target-runtime: docker}}
spec:
  terminationGracePeriodSeconds: 0
  initContainers:
  - {name: first, image: \"disklet.test/busybox:1\", imagePullPolicy: Never, command: [\"true\"]}
  containers:
  - name: works
    image: disklet.test/busybox:1
    imagePullPolicy: Never
    command: [sleep, \"1000\"]
    readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1}
    lifecycle: {preStop: {exec: {command: [\"true\"]}}}
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes:
  - {name: scratch, emptyDir: {}}
";

/// The spec of the ordinary pod. The API server makes up a name for the token's volume.
fn ordinary_spec(tenant: &Tenant) -> String {
    let spec = tenant.field("pod/ordinary", ".spec").expect("the pod");
    let parsed: Value = serde_json::from_str(&spec).expect("JSON");
    let volumes = parsed["volumes"].as_array().expect("volumes");
    let names = volumes.iter().filter_map(|it| it["name"].as_str());
    let made_up = names.filter(|name| *name != "scratch");
    made_up.fold(spec.clone(), |spec, name| spec.replace(name, "TOKEN"))
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn other_pods_are_as_if_we_were_not_there() {
    let _there = CONTROLLERS.read();
    let tenant = Tenant::new("pod-ordinary");
    // Of pods in such a namespace nobody asks us.
    let unseen = Tenant::new("pod-unseen");
    run(Command::new("kubectl").args([
        "label",
        "namespace",
        &unseen.name,
        "disklet.io/installed=test",
    ]));
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    for tenant in [&tenant, &unseen] {
        tenant.apply(ORDINARY);
        tenant.await_field(60, "pod/ordinary", ready, "True");
    }
    assert_eq!(ordinary_spec(&tenant), ordinary_spec(&unseen));
    let meta = |path: &str| tenant.field("pod/ordinary", path);
    assert_eq!(meta(".metadata.finalizers"), None);
    assert_eq!(meta(".metadata.labels"), None);
    let said = tenant.kubectl(&["exec", "ordinary", "-c", "works", "--", "echo", "HERE"]);
    assert_said(&said, &["HERE"]);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn without_us_other_pods_are_created_and_launchers_stay() {
    let _alone = CONTROLLERS.write();
    have_small_guest();
    let tenant = Tenant::new("pod-outage");
    tenant.apply(&vm_pod("before", "", &["stay"]));
    tenant.await_console(180, "before", "GUEST-READY");
    have_controllers(0);
    tenant.apply(ORDINARY);
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    tenant.await_field(60, "pod/ordinary", ready, "True");
    // Nobody can put something else into the place of a launcher meanwhile.
    let image = tenant.field("pod/before", ".spec.containers[0].image");
    let other = [
        "set",
        "image",
        "pod/before",
        "before-vm=disklet.test/busybox:1",
    ];
    let (done, told) = tenant.try_kubectl(&other);
    assert!(!done, "{told}");
    assert_eq!(
        tenant.field("pod/before", ".spec.containers[0].image"),
        image
    );
    // Its node lets go of a VM pod without them.
    delete_pod(&tenant, "before");
    // No runtime has the handler of the class.
    let by_class = vm_pod("slipped", "  runtimeClassName: disklet", &["stay"]);
    tenant.apply(&by_class.replace("virtlet.cloud/small", "disklet.test/busybox:1"));
    until(60, "the kubelet says that it cannot run it", || {
        let told = tenant.kubectl(&["describe", "pod", "slipped"]);
        told.contains("FailedCreatePodSandBox").then_some(())
    });
    assert_eq!(
        tenant.field("pod/slipped", ".status.phase").as_deref(),
        Some("Pending")
    );
    have_controllers(1);
}

/// Files come out of a ConfigMap and a Secret; the image for cloud-init has them in
/// base64. The patterns do not find themselves.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_has_its_files() {
    let _there = CONTROLLERS.read();
    have_small_guest();
    let tenant = Tenant::new("pod-files");
    tenant.apply(
        "apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: FROM-CONFIGMAP}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {key: FROM-SECRET}
",
    );
    let volumes = "    volumeMounts:
    - {name: settings, mountPath: /etc/settings}
    - {name: hidden, mountPath: /etc/hidden}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: hidden, secret: {secretName: hidden}}";
    let user_data = "    VirtletCloudInitUserData: |
      write_files:
      - path: /etc/commands
        content: |
          #guest: mkdir -p /s; mount -t iso9660 -o ro /dev/sr0 /s
          #guest: echo CONFIGMAPS $(grep -c RlJPTS1DT05GSUdNQV[A]= /s/user-data)
          #guest: echo SECRETS $(grep -c RlJPTS1TRUNSRV[Q]= /s/user-data)
          #guest: stay";
    let manifest = vm_pod("files", volumes, &["x"]);
    let (before, after) = manifest
        .split_once("    VirtletCloudInit")
        .expect("the script");
    let (_, after) = after.split_once("\nspec:").expect("the spec");
    tenant.apply(&format!("{before}{user_data}\nspec:{after}"));
    let console = tenant.await_console(180, "files", "GUEST-READY");
    assert_said(&console, &["CONFIGMAPS 1", "SECRETS 1"]);
    // The launcher has none of them, but what the kubelet has to request: the token.
    let mounts = tenant.field("pod/files", ".spec.containers[0].volumeMounts[*].name");
    let mounts = mounts.expect("the launcher's volume");
    let mut mounts = mounts
        .split(' ')
        .filter(|name| !name.starts_with("kube-api-access"));
    assert_eq!((mounts.next(), mounts.next()), (Some("disklet"), None));
    delete_pod(&tenant, "files");
}
