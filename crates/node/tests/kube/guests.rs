//! VM objects with a guest that says what it sees: Linux with busybox, see
//! `script/lib/guest_image.sh`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Tenant, cluster_directory, on_node, repository, run, until};

/// The node that VMs run on.
pub(crate) const NODE: &str = "node1";

/// Takes a disk into the node's image store.
pub(crate) fn have_image(name: &str, file: &Path) {
    have_image_as(&format!("virtlet.cloud/{name}"), file);
}

/// The same, under its whole name.
fn have_image_as(image: &str, file: &Path) {
    have_image_on(NODE, image, file);
}

fn have_image_on(node: &str, image: &str, file: &Path) {
    let disklet = cluster_directory().join("shared/disklet");
    let (disklet, file) = (disklet.display().to_string(), file.display().to_string());
    on_node(node, &[&disklet, "images", "pull", image, "--from", &file]);
}

/// The guest with Linux is in the node's image store.
pub(crate) fn have_small_guest() {
    have_small_guest_as("virtlet.cloud/small");
}

/// It is there on another node as well.
pub(crate) fn have_small_guest_on(node: &str) {
    have_image_on(node, "virtlet.cloud/small", &guest("small"));
}

pub(crate) fn have_small_guest_as(image: &str) {
    have_image_as(image, &guest("small"));
}

/// One that boots with cloud-init is there.
pub(crate) fn have_cloud_guest(image: &str) {
    have_image_as(image, &guest("cloud"));
}

/// A guest's disk, where the node sees it. One test copies it, and the others wait until
/// all of it is there, whatever process they are in.
fn guest(kind: &str) -> PathBuf {
    let file = cluster_directory().join(format!("shared/{kind}.img"));
    let copying = File::create(file.with_extension("lock")).expect("a file can be made");
    copying.lock().expect("it can be locked");
    if !file.exists() {
        let script = repository().join("script/lib/guest_image.sh");
        let image = run(Command::new("bash").arg(script).arg(kind));
        let copy = file.with_extension("copy");
        run(Command::new("cp")
            .args(["--sparse=always", image.trim()])
            .arg(&copy));
        std::fs::rename(copy, &file).expect("it has its name");
    }
    file
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
    tenant.kubectl(&["delete", "vm", name, "--timeout=300s"]);
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
