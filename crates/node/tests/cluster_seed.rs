//! The examples of Virtlet's document on volumes, applied to a real cluster as they
//! are in `crates/disklet/tests/golden/seed000`, where it is said how they were
//! completed. Here they are completed further, by what the functions below replace:
//!
//! - the addresses, names and keys of devices and servers are those of this test;
//! - the guest is told by user data what to look at, and has little memory;
//! - a volume that need not be that large for the test is smaller;
//! - the four fragments about mounts and files are parts of one pod.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/ceph.rs"]
mod ceph;
#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::fs;
use std::path::Path;
use std::process::Command;

use ceph::Ceph;
use kube::guests::{NODE, assert_said, have_cloud_guest, have_small_guest_as};
use kube::pods::delete_pod;
use kube::storage::{Folder, Loop, read_and_write, write_disk, written};
use kube::{Tenant, on_node, repository, run};
use world::{alone, until_nothing_is_left};

const CIRROS: &str = "virtlet.cloud/cirros";
const CIRROS_BY_ADDRESS: &str = "download.cirros-cloud.net/0.3.4/cirros-0.3.4-x86_64-disk.img";
const UBUNTU: &str =
    "virtlet.cloud/cloud-images.ubuntu.com/xenial/current/xenial-server-cloudimg-amd64-disk1.img";

fn example(name: &str) -> String {
    let examples = repository().join("crates/disklet/tests/golden/seed000");
    let file = examples.join(name).join("manifest.yaml");
    fs::read_to_string(file).expect("the example is there")
}

/// The example with commands for the small guest.
fn told(example: &str, commands: &[impl AsRef<str>]) -> String {
    let lines = commands
        .iter()
        .map(|line| format!("      #guest: {}\n", line.as_ref()));
    let lines: String = lines.collect();
    let annotation = "    kubernetes.io/target-runtime: virtlet.cloud\n";
    let script =
        format!("{annotation}    VirtletCloudInitUserDataScript: |\n      #!/bin/sh\n{lines}");
    example.replace(annotation, &script)
}

/// Replaces what must be there.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in:\n{text}");
        text.replace(from, to)
    })
}

/// What libvirt says on the node.
fn virsh(arguments: &[&str]) -> String {
    let virsh = ["virsh", "-q", "-c", "qemu:///system"];
    on_node(NODE, &[&virsh[..], arguments].concat())
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn driver_and_ephemeral_volumes() {
    let _alone = alone();
    have_small_guest_as(CIRROS);
    have_small_guest_as(CIRROS_BY_ADDRESS);
    let tenant = Tenant::new("seed-volumes");
    tenant.apply(&told(&example("01-disk-driver-virtio"), &["stay"]));
    tenant.apply(&told(&example("02-ephemeral-volumes"), &["stay"]));
    let console = tenant.await_console(180, "cirros-vm", "GUEST-READY");
    assert_said(&console, &["DISK name=vda", "bus=virtio"]);
    assert!(!console.contains("bus=scsi"), "{console}");
    let console = tenant.await_console(180, "test-vm-pod", "GUEST-READY");
    assert_said(
        &console,
        &[
            "DISK name=sdb size=1024000000 ro=0 serial=vol1 bus=scsi",
            "DISK name=sdc size=1024000000 ro=0 serial=vol2 bus=scsi",
        ],
    );
    // Where the document says that they are, under the names that it gives them.
    virsh(&["pool-refresh", "volumes"]);
    let volumes = virsh(&["vol-list", "volumes"]);
    let domain = virsh(&["list", "--uuid", "--name"]);
    let domain = domain.lines().find(|line| line.contains("test-vm"));
    let uuid = domain
        .and_then(|line| line.split_whitespace().next())
        .expect("the domain");
    for name in [
        format!("{uuid}-vol1"),
        format!("{uuid}-vol2"),
        format!("virtlet_root_{uuid}"),
    ] {
        assert_said(&volumes, &[&name]);
    }
    delete_pod(&tenant, "cirros-vm");
    delete_pod(&tenant, "test-vm-pod");
    until_nothing_is_left(30, "the examples");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn ceph_in_the_pod_and_by_claim() {
    let _alone = alone();
    have_small_guest_as(CIRROS);
    let tenant = Tenant::new("seed-ceph");
    let ceph = Ceph::start(&tenant);
    ceph.copy("another");
    let guest = [&read_and_write("test")[..], &["stay".to_owned()]].concat();
    let in_pod = with(
        &told(&example("03-ceph-in-the-pod"), &guest),
        &[
            ("10.192.0.1:6789", &ceph.monitor),
            ("libvirt-pool", &ceph.pool),
            ("AQDTwuVY8rA8HxAAthwOKaQPr0hRc7kCmR/9Qg==", &ceph.key),
            ("User: libvirt", &format!("User: {}", ceph.user)),
            ("rbd-test-image", &ceph.image),
            ("cirros-vm-rbd", "in-pod"),
        ],
    );
    let labelled = format!("pv-rbd-virtlet\n  labels: {{tenant: {}}}", tenant.name);
    let by_claim = with(
        &told(&example("04-ceph-by-claim"), &guest),
        &[
            ("10.192.0.1:6789", &ceph.monitor),
            ("libvirt-pool", &ceph.pool),
            ("AQA1VTpZMnf7ChAAqWQPmvq8pIXPYIDBiRsXeA==", &ceph.key),
            ("user: libvirt", &format!("user: {}", ceph.user)),
            ("rbd-test-image-pv", "another"),
            ("pv-rbd-virtlet", &labelled),
            ("cirros-vm-rbd", "by-claim"),
        ],
    );
    tenant.apply(&in_pod);
    tenant.apply(&by_claim);
    for pod in ["in-pod", "by-claim"] {
        let console = tenant.await_console(240, pod, "GUEST-READY");
        assert_said(&console, &["test READS disk of ceph"]);
    }
    // The key is in libvirt's memory only while a VM starts.
    let secrets = virsh(&["secret-list"]);
    assert_eq!(secrets.trim(), "");
    let shown = on_node(
        NODE,
        &[
            "sh",
            "-c",
            "cat /run/disklet/libvirt/qemu/*.xml; cat /proc/[0-9]*/cmdline",
        ],
    );
    assert!(!shown.contains(&ceph.key), "the key shows");
    for pod in ["in-pod", "by-claim"] {
        delete_pod(&tenant, pod);
    }
    until_nothing_is_left(30, "VM pods with disks in Ceph");
    for image in [&ceph.image, "another"] {
        assert_eq!(ceph.second_sector(image), "guest wrote test");
    }
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_raw_device() {
    let _alone = alone();
    have_small_guest_as(CIRROS_BY_ADDRESS);
    let tenant = Tenant::new("seed-raw");
    let folder = Folder::new(&tenant);
    let file = folder.0.join("raw");
    write_disk(&file, "from the node");
    let device = Loop::of(&file);
    let guest = [&read_and_write("raw")[..], &["stay".to_owned()]].concat();
    let pod = with(
        &told(&example("05-raw-device"), &guest),
        &[("path: /dev/loop0", &format!("path: {}", device.path))],
    );
    tenant.apply(&pod);
    let console = tenant.await_console(180, "test-vm-pod", "GUEST-READY");
    assert_said(&console, &["raw READS from the node"]);
    delete_pod(&tenant, "test-vm-pod");
    assert_eq!(written(&file), "guest wrote raw");
}

/// What cloud-init has done, as the guest sees it.
const LOOK: &str = r#"    VirtletCloudInitUserData: |
      runcmd:
      - echo "SEEN docker $(findmnt -nro FSTYPE,SIZE -b /var/lib/docker)"
      - echo "SEEN raw $(cat /mnt/raw/from-host)"
      - echo by the guest >/mnt/raw/from-guest
      - echo "SEEN how $(cat /etc/config/special.how) type $(cat /etc/config/special.type)"
      - echo "SEEN key $(stat -c %a /etc/secret-volume/ssh-publickey) $(cut -d ' ' -f 1 /etc/secret-volume/ssh-publickey)"
      - cd /var/run/secrets/kubernetes.io/serviceaccount && echo "SEEN account $(cat namespace) $(head -n 1 ca.crt) $(tr -dc . <token)"
      - sync; echo SEEN end
"#;

#[test]
#[ignore = "needs a cluster: script/test"]
fn mounted_volumes_partitions_files_and_the_token() {
    let _alone = alone();
    have_cloud_guest(UBUNTU);
    let tenant = Tenant::new("seed-files");
    let folder = Folder::new(&tenant);
    let disk = folder.0.join("partitions");
    two_partitions(&folder.0, &disk);
    let device = Loop::of(&disk);
    let first = |name: &str| {
        example(name)
            .split("---")
            .next()
            .map(str::to_owned)
            .expect("an object")
    };
    tenant.apply(&first("09-config-map-as-files"));
    tenant.apply(&first("10-secret-as-files"));
    let mounts = "    volumeMounts:
    - {name: raw, mountPath: /mnt/raw}
    - {name: config-volume, mountPath: /etc/config}
    - {name: secret-volume, readOnly: true, mountPath: /etc/secret-volume}
";
    let volumes = format!(
        "  volumes:
  - {{name: config-volume, configMap: {{name: special-config}}}}
  - {{name: secret-volume, secret: {{secretName: ssh-key-secret}}}}
  - name: raw
    flexVolume: {{driver: virtlet/flexvolume_driver, options: {{type: raw, path: {}, part: \"2\"}}}}
",
        device.path
    );
    let annotation = "    kubernetes.io/target-runtime: virtlet.cloud\n";
    let pod = with(
        &example("07-mounted-volume"),
        &[
            (annotation, &format!("{annotation}{LOOK}")),
            (
                "    volumeMounts:\n",
                &format!("    resources: {{limits: {{memory: 512Mi}}}}\n{mounts}"),
            ),
            ("  volumes:\n", &volumes),
            ("2048MB", "64MB"),
        ],
    );
    tenant.apply(&pod);
    let console = tenant.await_console(400, "ubuntu-vm", "SEEN end");
    assert_said(
        &console,
        &[
            "SEEN docker ext4 ",
            "SEEN raw by the host",
            "SEEN how very type charm",
            "SEEN key 644 ssh-ed25519",
            &format!(
                "SEEN account {} -----BEGIN CERTIFICATE----- ..",
                tenant.name
            ),
        ],
    );
    tenant.kubectl(&["delete", "pod", "ubuntu-vm", "--timeout=300s"]);
    until_nothing_is_left(60, "a pod with files");
    run(Command::new("dd")
        .arg(format!("if={}", disk.display()))
        .arg(format!("of={}", folder.0.join("second").display()))
        .args(["bs=1M", "skip=5", "status=none"]));
    let wrote = run(Command::new("/sbin/debugfs")
        .args(["-R", "cat /from-guest"])
        .arg(folder.0.join("second")));
    assert_eq!(wrote, "by the guest\n");
}

/// A disk whose second partition, from 5 MiB on, has a filesystem with a file.
fn two_partitions(scratch: &Path, disk: &Path) {
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("a directory");
    fs::write(tree.join("from-host"), "by the host\n").expect("a file");
    let make = "truncate -s 32M \"$1\"
        printf 'label: gpt\\nstart=1MiB, size=4MiB\\nstart=5MiB, size=24MiB\\n' | /sbin/sfdisk -q \"$1\"
        /sbin/mke2fs -q -F -t ext4 -d \"$2\" -E offset=$((5 << 20)) \"$1\" 24M";
    run(Command::new("sh")
        .args(["-ec", make, "sh"])
        .arg(disk)
        .arg(&tree));
}
