//! VM pods that were created while nobody answered for us, on a real cluster: they end,
//! and say why; who makes pods makes them anew.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::guests::{assert_said, have_small_guest};
use kube::pods::{have_controllers, vm_pod};
use kube::{Tenant, run, until};

/// What makes a pod a launcher.
const SAVED: &str = ".metadata.annotations.disklet\\.io/vm-pod";

static OUTAGE: Mutex<()> = Mutex::new(());

/// For a test that has no controller answer: there is one such test at a time.
fn outage() -> MutexGuard<'static, ()> {
    OUTAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A VM pod whose image a container runtime can run.
fn runnable(name: &str) -> String {
    let container = "image: disklet.test/busybox:1
    imagePullPolicy: Never
    command: [sleep, \"1000\"]";
    let pod = vm_pod(name, "", &["stay"]);
    // The time that it has to end is a container's, which hears no signal.
    pod.replace("image: virtlet.cloud/small", container)
        .replace(
            "terminationGracePeriodSeconds: 20",
            "terminationGracePeriodSeconds: 1",
        )
}

/// A VM pod, made by a Deployment.
fn deployment(name: &str, pod: &str) -> String {
    let (_, template) = pod.split_once("kind: Pod\n").expect("a pod");
    let template: String = template
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    let labels = format!("    metadata:\n      labels: {{app: {name}}}");
    let template = template.replacen("    metadata:", &labels, 1);
    let template = template.replacen(&format!("      name: {name}\n"), "", 1);
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
{template}"
    )
}

/// The pod of a Deployment, and whether it is a launcher.
fn pod_of(tenant: &Tenant, name: &str) -> Option<(String, bool)> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations.disklet\\.io/vm-pod}{\"\\n\"}{end}";
    let label = format!("app={name}");
    let (_, pods) = tenant.try_kubectl(&["get", "pods", "-l", &label, "-o", path]);
    let pods: Vec<_> = pods
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    match pods[..] {
        [(name, saved)] => Some((name.to_owned(), !saved.is_empty())),
        _ => None,
    }
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn vm_pods_that_slipped_past_do_not_run_as_something_else() {
    let _outage = outage();
    let tenant = Tenant::new("slipped");
    // Of pods in such a namespace nobody asks us: what is there is somebody else's.
    let unasked = Tenant::new("slipped-unasked");
    run(Command::new("kubectl").args([
        "label",
        "namespace",
        &unasked.name,
        "disklet.io/installed=test",
    ]));
    have_controllers(0);
    for tenant in [&tenant, &unasked] {
        tenant.apply(&runnable("bare"));
        tenant.await_field(90, "pod/bare", ".status.phase", "Running");
    }
    tenant.apply(&deployment("made", &runnable("made")));
    let (first, _) = until(60, "the Deployment has a pod", || pod_of(&tenant, "made"));
    tenant.await_field(90, &format!("pod/{first}"), ".status.phase", "Running");
    let uid = tenant.field("pod/bare", ".metadata.uid");
    have_controllers(1);

    // Nobody deletes a pod that nobody would make again; nothing of it runs.
    let waits = ".status.containerStatuses[0].state.waiting.reason";
    tenant.await_field(90, "pod/bare", waits, "InvalidImageName");
    assert_eq!(tenant.field("pod/bare", ".metadata.uid"), uid);
    let told = || tenant.kubectl(&["describe", "pod", "bare"]);
    until(30, "an event says why", || {
        told().contains("NotLaunched").then_some(())
    });
    assert_said(&told(), &["delete it, and create it again"]);
    // Its maker has made the other one anew, and this time through us.
    until(120, "the Deployment has a launcher", || {
        let (name, is_launcher) = pod_of(&tenant, "made")?;
        (is_launcher && name != first).then_some(())
    });
    let events = tenant.kubectl(&["get", "events"]);
    assert_said(&events, &["ReplicaSet made-", "makes it anew"]);

    // Applied again it is stopped again, and deleted first it becomes a VM.
    tenant.apply(&runnable("bare"));
    tenant.await_field(
        60,
        "pod/bare",
        ".spec.containers[0].image",
        "NOT-A-VM:delete-this-pod-and-create-it-again",
    );
    assert_eq!(tenant.field("pod/bare", SAVED), None);
    tenant.kubectl(&["delete", "pod", "bare", "--timeout=300s"]);
    tenant.apply(&runnable("bare"));
    assert!(tenant.field("pod/bare", SAVED).is_some());

    let image = unasked.field("pod/bare", ".spec.containers[0].image");
    assert_eq!(image.as_deref(), Some("disklet.test/busybox:1"));
    assert_eq!(
        unasked.field("pod/bare", ".status.phase").as_deref(),
        Some("Running")
    );
    tenant.kubectl(&["delete", "deployment", "made", "--timeout=300s"]);
    tenant.kubectl(&["delete", "pods", "--all", "--timeout=300s"]);
}

/// What the kubelet says that it has ever started of a pod, one container a word.
fn started(tenant: &Tenant) -> String {
    let of = ".items[*].status.containerStatuses[*]";
    let path = format!("jsonpath={{{of}.containerID}} {{{of}.lastState.terminated.containerID}}");
    tenant.kubectl(&["get", "pods", "-o", &path])
}

/// VM pods as users write them: the name of a VM's image is none that a container runtime
/// could run something by, and a class has no runtime. So nothing runs in an outage, and
/// after it there are VMs, or it is said why there are none.
#[test]
#[ignore = "needs a cluster: script/test"]
fn vm_pods_of_an_outage_run_nothing_until_it_is_over() {
    let _outage = outage();
    have_small_guest();
    let tenant = Tenant::new("slipped-vms");
    have_controllers(0);
    let classed = "  runtimeClassName: disklet";
    tenant.apply(&vm_pod("alone", "", &["stay"]));
    tenant.apply(&vm_pod("classed", classed, &["stay"]));
    tenant.apply(&deployment("made", &vm_pod("made", "", &["stay"])));
    let (first, _) = until(60, "the Deployment has a pod", || pod_of(&tenant, "made"));
    let waits = ".status.containerStatuses[0].state.waiting.reason";
    for pod in ["alone", &first] {
        until(
            90,
            &format!("the kubelet does not find {pod}'s image"),
            || {
                let why = tenant.field(&format!("pod/{pod}"), waits);
                why.filter(|why| ["ErrImagePull", "ImagePullBackOff"].contains(&why.as_str()))
            },
        );
    }
    until(60, "no runtime has the class", || {
        let told = tenant.kubectl(&["describe", "pod", "classed"]);
        told.contains("FailedCreatePodSandBox").then_some(())
    });
    // The kubelet tries again and again.
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        assert_eq!(started(&tenant).trim(), "");
        for pod in ["alone", "classed", &first] {
            let phase = tenant.field(&format!("pod/{pod}"), ".status.phase");
            assert_eq!(phase.as_deref(), Some("Pending"), "{pod}");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    have_controllers(1);

    let image = ".spec.containers[0].image";
    for pod in ["alone", "classed"] {
        let nothing = "NOT-A-VM:delete-this-pod-and-create-it-again";
        tenant.await_field(60, &format!("pod/{pod}"), image, nothing);
        until(30, "an event says why", || {
            let told = tenant.kubectl(&["describe", "pod", pod]);
            told.contains("NotLaunched").then_some(())
        });
    }
    assert_eq!(started(&tenant).trim(), "");
    let made = until(120, "the Deployment has a launcher", || {
        let (name, is_launcher) = pod_of(&tenant, "made")?;
        is_launcher.then_some(name)
    });
    assert_ne!(made, first);
    tenant.await_console(180, &made, "GUEST-READY");
    assert!(
        started(&tenant).contains("containerd://"),
        "that would be seen"
    );
    // What is said to do about the others helps.
    for (pod, more) in [("alone", ""), ("classed", classed)] {
        tenant.kubectl(&["delete", "pod", pod, "--timeout=300s"]);
        tenant.apply(&vm_pod(pod, more, &["stay"]));
        tenant.await_console(180, pod, "GUEST-READY");
    }
    tenant.kubectl(&["delete", "deployment", "made", "--timeout=300s"]);
    tenant.kubectl(&["delete", "pods", "--all", "--timeout=300s"]);
}
