//! VM objects on a real cluster, as a tenant applies them and sees them.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod kube;

use std::process::Command;

use kube::{Tenant, on_node, repository, run, until};

const NODE: &str = "node1";

/// The guest with Linux is in the node's image store.
fn have_small_guest() {
    let image = run(Command::new("bash").args([
        repository()
            .join("script/lib/guest_image.sh")
            .to_str()
            .expect("a path"),
        "small",
    ]));
    let shared = std::env::var("DISKLET_KUBE_DIR").expect("script/lib/kube/installed.sh runs this");
    let file = format!("{shared}/shared/small.img");
    if !std::path::Path::new(&file).exists() {
        run(Command::new("cp").args(["--sparse=always", image.trim(), &file]));
    }
    let disklet = format!("{shared}/shared/disklet");
    on_node(
        NODE,
        &[
            &disklet,
            "images",
            "pull",
            "virtlet.cloud/small",
            "--from",
            &file,
        ],
    );
}

fn vm(name: &str, disks: &str, guest: &[&str]) -> String {
    let lines: String = guest
        .iter()
        .map(|line| format!("\n      #guest: {line}"))
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
fn things() -> String {
    let looked = "virsh -c qemu:///system list --all --name | sed '/^$/d'; \
        find /var/lib/disklet/vms /var/lib/disklet/volumes /run/disklet/vms -mindepth 1; \
        grep /run/disklet/vms/ /proc/self/mountinfo || true";
    on_node(NODE, &["sh", "-c", looked])
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_runs_is_seen_and_goes() {
    have_small_guest();
    let tenant = Tenant::new("runs");
    tenant.apply(&vm(
        "one",
        "",
        &["echo SEEN $(cat /proc/meminfo | head -n 1)", "stay"],
    ));
    let console = tenant.await_console(180, "one", "GUEST-READY");
    assert!(console.contains("SEEN MemTotal"), "{console}");
    assert!(console.contains("DISK name=sda"), "{console}");
    tenant.await_field(10, "vm/one", ".status.phase", "Running");
    tenant.await_field(10, "vm/one", ".status.node", NODE);
    tenant.await_field(
        10,
        "vm/one",
        ".status.conditions[?(@.type==\"Ready\")].status",
        "True",
    );
    tenant.await_field(
        10,
        "vm/one",
        ".status.conditions[?(@.type==\"DisksReady\")].status",
        "True",
    );
    tenant.await_field(
        10,
        "vm/one",
        ".status.disks[0].source",
        "image virtlet.cloud/small",
    );
    // QEMU is in the cgroup of the launcher's container.
    let uid = tenant
        .field("pod/one", ".metadata.uid")
        .expect("the launcher is there");
    let groups = on_node(
        NODE,
        &[
            "sh",
            "-c",
            "cat /proc/$(cat /run/libvirt/qemu/*-one.pid)/cgroup",
        ],
    );
    let memory = groups
        .lines()
        .find(|line| line.contains("memory") || line.starts_with("0::"));
    assert!(memory.is_some_and(|line| line.contains(&uid)), "{groups}");
    // Nothing is left.
    tenant.kubectl(&["delete", "vm", "one", "--timeout=90s"]);
    until(30, "the VM's things go", || {
        (!things().contains("-one")).then_some(())
    });
    assert_eq!(tenant.field("pod/one", ".metadata.name"), None);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_that_switches_itself_off_ends_its_pod_well() {
    have_small_guest();
    let tenant = Tenant::new("off");
    let manifest =
        vm("brief", "", &["echo SHORT"]).replace("spec:\n", "spec:\n  restartPolicy: Never\n");
    tenant.apply(&manifest);
    tenant.await_console(180, "brief", "GUEST-END");
    tenant.await_field(60, "pod/brief", ".status.phase", "Succeeded");
    until(30, "the VM's things go", || {
        (!things().contains("-brief")).then_some(())
    });
}
