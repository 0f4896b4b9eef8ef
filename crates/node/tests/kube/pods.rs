//! VM pods, as users of Virtlet write them, with the guest that says what it sees.

use std::process::Command;

use super::guests::{NODE, things};
use super::{Tenant, on_node, run, until};

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
    tenant.kubectl(&["delete", &object, "--timeout=90s"]);
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
