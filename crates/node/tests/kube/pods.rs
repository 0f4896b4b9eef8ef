//! VM pods, as users of Virtlet write them, with the guest that says what it sees.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::guests::{NODE, things};
use super::{SEEN, Tenant, on_node, run, until};

/// A VM pod in the form that Virtlet's documents have, with more of its spec, in lines of YAML, and
/// commands for the guest.
pub(crate) fn vm_pod(name: &str, volumes: &str, guest: &[impl AsRef<str>]) -> String {
    let lines: String = guest
        .iter()
        .map(|line| format!("\n      #guest: {}", line.as_ref()))
        .collect();
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  annotations:
    kubernetes.io/target-runtime: virtlet.cloud
    VirtletCloudInitUserDataScript: |
      #!/bin/sh{lines}
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - key: extraRuntime
            operator: In
            values: [virtlet]
  terminationGracePeriodSeconds: 20
  containers:
  - name: {name}-vm
    image: virtlet.cloud/small
    resources: {{limits: {{memory: 128Mi}}}}
{volumes}
"
    )
}

/// Deletes a VM pod; returns when nothing of it is left.
pub(crate) fn delete_pod(tenant: &Tenant, name: &str) {
    let object = format!("pod/{name}");
    let uid = tenant.field(&object, ".metadata.uid").expect("the pod");
    tenant.kubectl(&["delete", &object, "--timeout=300s"]);
    gone(name, &uid);
}

/// Nothing is left of a VM pod on its node, for us or for the kubelet.
pub(crate) fn gone(name: &str, uid: &str) {
    until(60, "the VM's things go", || {
        (!things().contains(&format!("-{name}-vm"))).then_some(())
    });
    let mounts = format!("grep {uid} /proc/self/mountinfo || true");
    until(60, "the kubelet's mounts go", || {
        let left = on_node(NODE, &["sh", "-c", &mounts]);
        left.is_empty().then_some(())
    });
}

/// A VM pod whose guest does nothing and hears nothing, with more of its spec, in lines of
/// YAML. Its image is that of `have_idle_guest`.
pub(crate) fn idle_pod(name: &str, more: &str) -> String {
    vm_pod(name, more, &["stay"])
        .replace("virtlet.cloud/small", "virtlet.cloud/idle")
        .replace("memory: 128Mi", "memory: 32Mi")
}

/// The same VM pod, which does not go before [`end_of`] has seen its end.
pub(crate) fn to_be_seen(pod: &str) -> String {
    pod.replacen(
        "metadata:\n",
        &format!("metadata:\n  finalizers: [{SEEN}]\n"),
        1,
    )
}

/// How a container has ended.
pub(crate) struct EndOfPod {
    pub(crate) exit_code: i32,
    pub(crate) message: String,
    /// How long it took after the pod was deleted.
    pub(crate) took: Duration,
    pub(crate) console: String,
}

/// Deletes a VM pod that is [`to_be_seen`]; returns when nothing of it is left.
pub(crate) fn end_of(tenant: &Tenant, name: &str) -> EndOfPod {
    end_within(tenant, name, None)
}

/// The same within a grace of the deletion's own.
pub(crate) fn end_within(tenant: &Tenant, name: &str, grace: Option<u32>) -> EndOfPod {
    let object = format!("pod/{name}");
    let uid = tenant.field(&object, ".metadata.uid").expect("the pod");
    // The kubelet removes the container, with what it has said.
    let mut follow = tenant.command();
    let follow = follow.args(["logs", "-f", name]).stdout(Stdio::piped());
    let follow = follow.spawn().expect("kubectl starts");
    let begun = Instant::now();
    let grace = grace.map(|seconds| format!("--grace-period={seconds}"));
    let delete = ["delete", &object, "--wait=false"].into_iter();
    let delete: Vec<_> = delete.chain(grace.as_deref()).collect();
    tenant.kubectl(&delete);
    let (exit_code, message) = until(90, &format!("{name} ends"), || {
        told_of_end(tenant, &object).or_else(|| lost_end(tenant, &object))
    });
    let took = begun.elapsed();
    let console = follow.wait_with_output().expect("kubectl ends").stdout;
    // What is not ours is not taken away by us.
    let finalizers = ".metadata.finalizers";
    until(60, "the agent lets go", || {
        let left = tenant.field(&object, finalizers)?;
        (!left.contains("disklet.io/agent") && left.contains(SEEN)).then_some(())
    });
    let patch = r#"{"metadata": {"finalizers": null}}"#;
    tenant.kubectl(&["patch", &object, "--type=merge", "-p", patch]);
    gone(name, &uid);
    EndOfPod {
        exit_code,
        message,
        took,
        console: String::from_utf8_lossy(&console).into_owned(),
    }
}

/// How the container has ended, as the kubelet tells it.
fn told_of_end(tenant: &Tenant, object: &str) -> Option<(i32, String)> {
    let ended = ".status.containerStatuses[0].state.terminated";
    let exit_code = tenant.field(object, &format!("{ended}.exitCode"))?;
    let message = tenant.field(object, &format!("{ended}.message"));
    let exit_code = exit_code.parse().expect("a number");
    Some((exit_code, message.unwrap_or_default()))
}

/// The same as the agent tells it. A kubelet that is busy removes the container of a pod that
/// goes before it has looked how that ended, and then does not know.
fn lost_end(tenant: &Tenant, object: &str) -> Option<(i32, String)> {
    let before = ".status.containerStatuses[0].lastState.terminated.reason";
    tenant
        .field(object, before)
        .filter(|it| it == "ContainerStatusUnknown")?;
    let name = object.strip_prefix("pod/").expect("a pod");
    let vm = format!("{}/{name}", tenant.name);
    let agents = ["-n", "disklet", "logs", "-l", "disklet.io/component=agent"];
    let log = run(Command::new("kubectl").args(agents).arg("--tail=-1"));
    let lines = log
        .lines()
        .rev()
        .filter_map(|it| serde_json::from_str(it).ok());
    let mut ends = lines.filter(|it: &Value| it["vm"] == vm.as_str() && !it["how"].is_null());
    let end = ends.next()?;
    let exit_code = match end["how"].as_str() {
        Some("Off") => 0,
        Some("Killed") => 137,
        other => panic!("{other:?}"),
    };
    Some((
        exit_code,
        end["message"].as_str().unwrap_or_default().to_owned(),
    ))
}

/// How many controllers there shall be; returns when there are so many.
pub(crate) fn have_controllers(count: u32) {
    let kubectl = |arguments: &[&str]| {
        run(Command::new("kubectl")
            .args(["-n", "disklet"])
            .args(arguments))
    };
    kubectl(&[
        "scale",
        "deployment/disklet-controller",
        &format!("--replicas={count}"),
    ]);
    until(120, "the controllers are so many", || {
        let path = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        let ready = kubectl(&[
            "get",
            "pods",
            "-l",
            "disklet.io/component=controller",
            "-o",
            path,
        ]);
        let wanted = vec!["True"; count as usize].join(" ");
        (ready.trim() == wanted).then_some(())
    });
}

/// How often the kubelet has started its container again.
pub(crate) fn restarts(tenant: &Tenant, pod: &str) -> u32 {
    let count = tenant.field(
        &format!("pod/{pod}"),
        ".status.containerStatuses[0].restartCount",
    );
    count.and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// A volume that lives as long as its pod.
pub(crate) const COUNTED: &str = "  volumes:
  - name: kept
    flexVolume:
      driver: virtlet/flexvolume_driver
      options: {type: qcow2, capacity: 16MB}";

/// The guest counts on its volume, in a sector that nobody uses, how often it was
/// started.
pub(crate) const COUNT: [&str; 2] = [
    "(dd if=/dev/disk-by-serial/kept bs=512 skip=2000 count=1 2>/dev/null | tr -d '\\000'; echo x) >/run/starts",
    "dd if=/run/starts of=/dev/disk-by-serial/kept bs=512 seek=2000 conv=notrunc,fsync; echo STARTS $(wc -l </run/starts)",
];
