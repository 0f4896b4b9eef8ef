//! Full boots of a Debian with cloud-init: the guest tells what it sees of each
//! disk and file, and both sides read what the other wrote.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use disklet_block::device::ReadAt;
use support::fixtures::LoopDevice;
use support::{Machine, guest};

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_guest_with_cloud_init_has_its_disks_and_files_on_scsi() {
    boots_with_everything("scsi", "nocloud");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_guest_with_a_config_drive_has_its_disks_and_files_on_virtio() {
    boots_with_everything("virtio", "configdrive");
}

fn boots_with_everything(driver: &str, cloud_init: &str) {
    let name = format!("cloud-{driver}");
    let machine = Machine::new(&name);
    machine.add_image_file("cloud", &guest::bootable("cloud"));
    let archive = archive(&machine);
    let device = LoopDevice::attach(&archive);
    let claimed = machine.write_zeroes("claimed.img", 8 << 20);
    let claimed_device = LoopDevice::attach(&claimed);
    let pod = POD
        .replace("NAME", &name)
        .replace("DRIVER", driver)
        .replace("CLOUD-INIT", cloud_init)
        .replace("LOOP", &device.path)
        .replace("CLAIMED", &claimed_device.path)
        .replace("LOOK", LOOK.trim_end().replace('\n', "\n    ").as_str());
    let manifest = machine.write("pod.yaml", pod).display().to_string();
    let before = machine.things();

    let up = ["up", "-f", &manifest, "--wait", "ready", "--timeout", "15m"];
    let output = machine.node(&up);
    let told = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(
        output.status.success(),
        "{output:?}\n{}",
        log(&machine, &name)
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("default/{name} started\ndefault/{name} is ready\n")
    );
    // Ready is when cloud-init is done, the user's commands included.
    sees_everything(driver, cloud_init, &log(&machine, &name));
    assert!(told.contains("/etc/pod/ip"), "{told}");

    let down = ["down", &name, "--keep-volumes", "--grace", "10m"];
    let begun = Instant::now();
    machine.done(&down);
    assert!(
        begun.elapsed() < Duration::from_secs(590),
        "the guest did not hear the power button"
    );
    host_reads_what_the_guest_wrote(&machine, &archive);
    let bytes = std::fs::read(&claimed).unwrap();
    assert!(bytes.starts_with(b"written by the guest through the link\n"));
    machine.done(&["down", &name]);
    assert_eq!(machine.things(), before);
}

/// What the guest prints, and how it has to begin or be.
fn sees_everything(driver: &str, cloud_init: &str, log: &str) {
    let seen: Vec<_> = log
        .lines()
        .filter_map(|line| line.split_once("SEEN ").map(|(_, seen)| seen.trim_end()))
        .collect();
    assert_eq!(seen.last(), Some(&"end"), "{log}");
    let has = |wanted: &str| assert!(seen.contains(&wanted), "no {wanted:?} in {seen:#?}\n{log}");

    has(match cloud_init {
        "configdrive" => "datasource DataSourceConfigDrive",
        _ => "datasource DataSourceNoCloud",
    });
    // The user's own commands are all there, in order, and their files.
    has("runcmd first");
    has("file 750 /usr/local/bin/look");
    // Disks, with the size that was asked for, and found by serial.
    has("disk root 2147483648 0");
    has("disk data 64000000 0");
    has("disk archive 16777216 0");
    has("disk claimed 8388608 0");
    has("link /dev/disks/claimed 8388608");
    has(&format!("bus {driver}"));
    // The first partition of one, the whole of the other.
    has("mount /data data-part1 ext4 rw");
    has("mount /archive archive ext4 rw");
    has("content /archive/from-host written by the host");
    // Files, with their modes.
    has("file 644 /etc/app/app.conf");
    has("content /etc/app/app.conf colour = blue");
    has("file 751 /etc/app/bin/run");
    has("file 400 /etc/keys/password");
    has("content /etc/keys/password hunter2 und söhne");
    has("content /run/keys/password hunter2 und söhne");
    // On a disk that was mounted before it was written.
    has("content /data/conf/app.conf colour = blue");
    has(&format!("content /etc/pod/name cloud-{driver}"));
    // Nobody ever knows that without a cluster, and nothing stands in for it.
    has("absent /etc/pod/ip");
    has("content /etc/cloud/environment STAGE=test");
    has(&format!("hostname cloud-{driver}"));
}

fn host_reads_what_the_guest_wrote(machine: &Machine, archive: &Path) {
    let wrote = |filesystem: &Path| debugfs(filesystem, "cat /from-guest");
    assert_eq!(wrote(archive), "written by the guest to the archive\n");
    let volume = machine.open_volume(&machine.volume("-data"));
    let mut disk = vec![0; 64_000_000];
    volume.read_at(&mut disk, 0).unwrap();
    let partition = machine.write("partition", &disk[1 << 20..]);
    assert_eq!(wrote(&partition), "written by the guest to the volume\n");
    assert_eq!(debugfs(&partition, "cat /conf/app.conf"), "colour = blue\n");
}

/// A filesystem on a whole disk, with a file of the host's.
fn archive(machine: &Machine) -> std::path::PathBuf {
    std::fs::create_dir(machine.path("tree")).unwrap();
    machine.write("tree/from-host", "written by the host\n");
    let file = machine.write("archive.img", []);
    let made = Command::new("/sbin/mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .arg(machine.path("tree"))
        .arg(&file)
        .arg("16M")
        .status()
        .unwrap();
    assert!(made.success());
    file
}

fn debugfs(filesystem: &Path, request: &str) -> String {
    let output = Command::new("/sbin/debugfs")
        .args(["-R", request])
        .arg(filesystem)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn log(machine: &Machine, name: &str) -> String {
    String::from_utf8_lossy(&machine.node(&["logs", name]).stdout).into_owned()
}

/// Run by the guest. Disks are named by their serials.
const LOOK: &str = r#"#!/bin/sh
links=/dev/disk/by-id
for serial in root data claimed archive; do
    disk=$(readlink -f $links/*[_-]$serial)
    echo "SEEN disk $serial $(lsblk -bdnro SIZE,RO "$disk")"
done
echo "SEEN bus $(basename "$(readlink -f /sys/block/"${disk##*/}"/device/subsystem)")"
echo "SEEN datasource $(cut -d: -f1 /var/lib/cloud/instance/datasource)"
if [ -L /dev/disks/claimed ] && [ /dev/disks/claimed -ef $links/*[_-]claimed ]; then
    echo "SEEN link /dev/disks/claimed $(blockdev --getsize64 /dev/disks/claimed)"
    echo 'written by the guest through the link' | dd of=/dev/disks/claimed conv=fsync status=none
fi
mounted() {
    while read -r device place type options _; do
        [ "$place" = "$1" ] && [ "$device" -ef $links/*[_-]$2 ] &&
            echo "SEEN mount $place $2 $type ${options%%,*}"
    done </proc/mounts
}
mounted /data data-part1
mounted /archive archive
for file in /usr/local/bin/look /etc/app/app.conf /etc/app/bin/run /etc/keys/password; do
    echo "SEEN file $(stat -c %a $file) $file"
done
for file in /archive/from-host /etc/app/app.conf /etc/keys/password /run/keys/password \
    /data/conf/app.conf /etc/pod/name /etc/pod/ip /etc/cloud/environment; do
    if [ -e $file ]; then echo "SEEN content $file $(cat $file)"; else echo "SEEN absent $file"; fi
done
echo "SEEN hostname $(hostname)"
echo 'written by the guest to the volume' >/data/from-guest
echo 'written by the guest to the archive' >/archive/from-guest
echo 'SEEN end'
"#;

const POD: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: NAME
  annotations:
    kubernetes.io/target-runtime: virtlet.cloud
    VirtletDiskDriver: DRIVER
    VirtletCloudInitImageType: CLOUD-INIT
    VirtletRootVolumeSize: 2Gi
    VirtletCloudInitUserData: |
      write_files:
      - path: /etc/motd
        content: hello
      runcmd:
      - echo SEEN runcmd first
      - look
spec:
  containers:
  - name: vm
    image: virtlet.cloud/cloud
    resources: {limits: {memory: 512Mi}}
    env:
    - {name: STAGE, value: test}
    volumeDevices:
    - {name: claimed, devicePath: /dev/disks/claimed}
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: archive, mountPath: /archive}
    - {name: config, mountPath: /etc/app}
    - {name: tools, mountPath: /usr/local/bin}
    - {name: keys, mountPath: /etc/keys}
    - {name: keys, mountPath: /run/keys}
    - {name: more, mountPath: /data/conf}
    - {name: about, mountPath: /etc/pod}
  volumes:
  - name: data
    flexVolume:
      driver: virtlet/flexvolume_driver
      options: {type: qcow2, capacity: 64MB, part: "1"}
  - name: archive
    flexVolume:
      driver: virtlet/flexvolume_driver
      options: {type: raw, path: LOOP, part: "0"}
  - name: claimed
    persistentVolumeClaim: {claimName: claimed}
  - name: config
    configMap:
      name: config
      items:
      - {key: app.conf, path: app.conf}
      - {key: run, path: bin/run, mode: 0751}
  - name: tools
    configMap: {name: tools, defaultMode: 0750}
  - name: more
    configMap: {name: config, items: [{key: app.conf, path: app.conf}]}
  - name: keys
    secret: {secretName: keys, defaultMode: 0400}
  - name: about
    downwardAPI:
      items:
      - {path: name, fieldRef: {fieldPath: metadata.name}}
      - {path: ip, fieldRef: {fieldPath: status.podIP}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data:
  app.conf: |
    colour = blue
  run: exit 0
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tools}
data:
  look: |
    LOOK
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claimed}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: '', resources: {requests: {storage: 4Mi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: claimed}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, capacity: {storage: 8Mi}, hostPath: {path: CLAIMED}}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData:
  password: hunter2 und söhne
"#;
