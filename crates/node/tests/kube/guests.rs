//! VM objects with a guest that says what it sees: Linux with busybox, see
//! `script/lib/guest_image.sh`.

use std::path::Path;
use std::process::Command;

use super::{Tenant, cluster_directory, on_node, repository, run, until};

/// The node that VMs run on.
pub(crate) const NODE: &str = "node1";

/// Takes a disk into the node's image store.
pub(crate) fn have_image(name: &str, file: &Path) {
    let disklet = cluster_directory().join("shared/disklet");
    let (disklet, file) = (disklet.display().to_string(), file.display().to_string());
    let image = format!("virtlet.cloud/{name}");
    on_node(NODE, &[&disklet, "images", "pull", &image, "--from", &file]);
}

/// The guest with Linux is in the node's image store.
pub(crate) fn have_small_guest() {
    let file = cluster_directory().join("shared/small.img");
    if !file.exists() {
        let script = repository().join("script/lib/guest_image.sh");
        let image = run(Command::new("bash").arg(script).arg("small"));
        run(Command::new("cp")
            .args(["--sparse=always", image.trim()])
            .arg(&file));
    }
    have_image("small", &file);
}

/// A VM whose root is the guest, with more disks, in lines of YAML, and commands
/// for the guest.
pub(crate) fn vm(name: &str, disks: &str, guest: &[impl AsRef<str>]) -> String {
    let lines: String = guest
        .iter()
        .map(|line| format!("\n      #guest: {}", line.as_ref()))
        .collect();
    format!(
        "apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  domain:
    memory: 128Mi
    devices:
      disks:
      - source: {{image: {{name: virtlet.cloud/small}}}}
{disks}
  cloudInit:
    userData: |
      #!/bin/sh{lines}
"
    )
}

/// What is on the node because of VMs.
pub(crate) fn things() -> String {
    let looked = "virsh -c qemu:///system list --all --name | sed '/^$/d'; \
        find /var/lib/disklet/vms /var/lib/disklet/volumes /run/disklet/vms -mindepth 1; \
        grep /run/disklet/vms/ /proc/self/mountinfo || true";
    on_node(NODE, &["sh", "-c", looked])
}

/// Deletes a VM; returns when nothing of it is left.
pub(crate) fn delete(tenant: &Tenant, name: &str) {
    tenant.kubectl(&["delete", "vm", name, "--timeout=90s"]);
    until(30, "the VM's things go", || {
        (!things().contains(&format!("-{name}"))).then_some(())
    });
}

/// A guest has written all of these.
pub(crate) fn assert_said(console: &str, wanted: &[&str]) {
    for line in wanted {
        assert!(console.contains(line), "{line} is not in:\n{console}");
    }
}
