//! A guest with Linux sees each kind of disk: where it is, how large, what the
//! machine wrote on it; and the machine sees what the guest wrote.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use support::Machine;
use support::daemon::repository;
use support::fixtures::LoopDevice;

/// What the guest does. Each disk has a mark of the machine at its fifth
/// sector, and gets one of the guest's at its sixth.
const SCRIPT: &str = "#!/bin/sh
#guest: echo MARK raw $(dd if=/dev/disk-by-serial/raw bs=512 skip=5 count=1 2>/dev/null | head -c 9)
#guest: echo MARK block $(dd if=/dev/disk-by-serial/block bs=512 skip=5 count=1 2>/dev/null | head -c 11)
#guest: echo MARK image $(dd if=/dev/disk-by-serial/image bs=512 skip=5 count=1 2>/dev/null | head -c 11)
#guest: for d in raw block image; do echo guest-$d | dd of=/dev/disk-by-serial/$d bs=512 seek=6 conv=sync,fsync 2>/dev/null; done
#guest: mkdir -p /v && mount -t ext4 /dev/disk-by-serial/new-part1 /v && df -k /v | tail -n 1 && echo kept by the volume >/v/file && umount /v
#guest: echo guest-root | dd of=/dev/disk-by-serial/root bs=512 seek=60000 conv=sync,fsync 2>/dev/null
#guest: ip link set eth0 up && udhcpc -i eth0 -n -q -s /bin/true 2>&1
";

fn manifest(name: &str, driver: &str, raw: &str, block: &str, directory: &str) -> String {
    let script = SCRIPT.replace('\n', "\n      ");
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  annotations:
    kubernetes.io/target-runtime: virtlet.cloud
    VirtletDiskDriver: {driver}
    VirtletRootVolumeSize: 32Mi
    VirtletCloudInitUserDataScript: |
      {script}
spec:
  containers:
  - name: vm
    image: virtlet.cloud/small
    resources: {{limits: {{memory: 256Mi}}}}
    volumeDevices: [{{name: block, devicePath: /dev/block}}]
  volumes:
  - {{name: new, flexVolume: {{driver: virtlet/flexvolume_driver, options: {{type: qcow2, capacity: 64Mi}}}}}}
  - {{name: raw, flexVolume: {{driver: virtlet/flexvolume_driver, options: {{type: raw, path: {raw}}}}}}}
  - {{name: block, persistentVolumeClaim: {{claimName: block}}}}
  - {{name: image, persistentVolumeClaim: {{claimName: image}}}}
---
{}---
{}",
        claim("block", "Block", block),
        claim("image", "Filesystem", directory)
    )
}

fn claim(name: &str, mode: &str, path: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{accessModes: [ReadWriteOnce], volumeMode: {mode}, storageClassName: '', volumeName: {name}, resources: {{requests: {{storage: 4Mi}}}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec: {{accessModes: [ReadWriteOnce], volumeMode: {mode}, capacity: {{storage: 8Mi}}, hostPath: {{path: {path}}}}}
"
    )
}

fn small_guest() -> Vec<u8> {
    let output = Command::new("bash")
        .arg(repository().join("script/lib/guest_image.sh"))
        .arg("small")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::read(String::from_utf8(output.stdout).unwrap().trim()).unwrap()
}

fn marked(machine: &Machine, name: &str, size: usize) -> std::path::PathBuf {
    let mut disk = vec![0; size];
    let mark = format!("host-{name}");
    disk[5 * 512..5 * 512 + mark.len()].copy_from_slice(mark.as_bytes());
    machine.write(&format!("{name}.disk"), disk)
}

fn sixth_sector(path: impl AsRef<std::path::Path>) -> String {
    let mut sector = [0; 512];
    let disk = File::open(path).unwrap();
    disk.read_exact_at(&mut sector, 6 * 512).unwrap();
    String::from_utf8(sector.to_vec())
        .unwrap()
        .trim_matches(['\0', '\n'])
        .to_owned()
}

/// Both kinds of volumes that are on the machine itself.
fn local_volumes(text: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    text.replace("hostPath:", &format!(
        "nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{host}]}}]}}]}}}}, local:"
    ))
}

fn disks_are_seen_from_both_sides(driver: &str, change: impl Fn(&str) -> String) {
    let name = format!("guest-{driver}");
    let machine = Machine::new(&name);
    machine.add_image("small", &small_guest());
    let raw = LoopDevice::attach(&marked(&machine, "raw", 6 << 20));
    let block = LoopDevice::attach(&marked(&machine, "block", 7 << 20));
    let image = marked(&machine, "image", 8 << 20);
    let directory = machine.path("volume");
    std::fs::create_dir(&directory).unwrap();
    std::fs::rename(image, directory.join("disk.img")).unwrap();
    let before = machine.things();
    let directory = directory.to_str().unwrap();
    let text = manifest(&name, driver, &raw.path, &block.path, directory);
    let manifest = machine.write("pod.yaml", change(&text));
    let manifest = manifest.display().to_string();
    machine.run_to_end(&manifest);
    let log = machine.done(&["logs", &name]);

    // The image is larger than its 15 MiB by the annotation's word.
    for (serial, size) in [
        ("root", 32 << 20),
        ("new", 64 << 20),
        ("raw", 6 << 20),
        ("block", 7 << 20),
        ("image", 8 << 20),
    ] {
        let line = log
            .lines()
            .find(|line| line.starts_with("DISK ") && line.contains(&format!("serial={serial} ")))
            .unwrap_or_else(|| panic!("no disk {serial}: {log}"));
        assert!(line.contains(&format!("size={size} ")), "{line}");
        assert!(line.contains(&format!("bus={driver} ")), "{line}");
    }
    for disk in ["raw", "block", "image"] {
        assert!(log.contains(&format!("MARK {disk} host-{disk}")), "{log}");
    }
    assert_eq!(log.matches("GUEST-DONE rc=0").count(), 7, "{log}");

    assert!(log.contains("lease of 10.0.2."), "the network: {log}");

    machine.done(&["down", &name, "--grace", "0", "--keep-volumes"]);
    assert_eq!(sixth_sector(&raw.path), "guest-raw");
    assert_eq!(sixth_sector(&block.path), "guest-block");
    assert_eq!(sixth_sector(format!("{directory}/disk.img")), "guest-image");
    let partition = machine.path("partition");
    let volume = machine.volume("-new");
    machine.read_volume(&volume, 1 << 20, &partition);
    let output = Command::new("/sbin/debugfs")
        .args(["-R", "cat /file"])
        .arg(&partition)
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"kept by the volume\n", "{output:?}");
    let root = machine.path("root");
    machine.read_volume(&machine.volume("virtlet_root_"), 60_000 * 512, &root);
    assert!(std::fs::read(root).unwrap().starts_with(b"guest-root\n"));

    machine.done(&["down", &name]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn disks_on_scsi_are_seen_from_both_sides() {
    disks_are_seen_from_both_sides("scsi", str::to_owned);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn disks_on_virtio_are_seen_from_both_sides() {
    disks_are_seen_from_both_sides("virtio", local_volumes);
}
