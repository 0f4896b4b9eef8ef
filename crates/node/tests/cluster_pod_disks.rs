//! Disks of VM pods on a real cluster: devices and claims, written as for Virtlet.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::fs::File;
use std::path::Path;

use kube::guests::{assert_said, have_small_guest};
use kube::pods::{delete_pod, vm_pod};
use kube::storage::{
    BYTES, Folder, Loop, claim, host_path, local, read_and_write, write_disk, written,
};
use kube::{Tenant, cluster_directory};

#[test]
#[ignore = "needs a cluster: script/test"]
fn devices_and_claims_are_disks() {
    have_small_guest();
    let tenant = Tenant::new("pod-disks");
    let folder = Folder::new(&tenant);
    let path = folder.volume("path");
    write_disk(&path.join("disk.img"), "from a hostPath");
    let files = ["raw", "named", "unnamed"].map(|name| folder.0.join(name));
    for file in &files {
        write_disk(file, "from a device");
    }
    let [raw, named, unnamed] = files.each_ref().map(|file| Loop::of(file));
    tenant.apply(
        &[
            claim(&tenant, "path", "Filesystem", &host_path(&path)),
            claim(&tenant, "named", "Block", &local(Path::new(&named.path))),
            claim(
                &tenant,
                "unnamed",
                "Block",
                &local(Path::new(&unnamed.path)),
            ),
        ]
        .concat(),
    );
    for name in ["path", "named", "unnamed"] {
        tenant.await_field(60, &format!("pvc/{name}"), ".status.phase", "Bound");
    }
    // All of them are attached, whether or not the container says so.
    let volumes = format!(
        "    volumeDevices: [{{name: named, devicePath: /dev/named}}]
  volumes:
  - {{name: path, persistentVolumeClaim: {{claimName: path}}}}
  - {{name: named, persistentVolumeClaim: {{claimName: named}}}}
  - {{name: unnamed, persistentVolumeClaim: {{claimName: unnamed}}}}
  - name: raw
    flexVolume: {{driver: virtlet/flexvolume_driver, options: {{type: raw, path: {}}}}}",
        raw.path
    );
    let names = ["path", "named", "unnamed", "raw"];
    let mut guest: Vec<_> = names.into_iter().flat_map(read_and_write).collect();
    guest.push("stay".to_owned());
    let manifest = vm_pod("disks", &volumes, &guest);
    let virtio = "  annotations:\n    VirtletDiskDriver: virtio";
    tenant.apply(&manifest.replace("  annotations:", virtio));
    let console = tenant.await_console(240, "disks", "GUEST-READY");
    assert_said(
        &console,
        &[
            "path READS from a hostPath",
            "named READS from a device",
            "unnamed READS from a device",
            "raw READS from a device",
            "DISK name=vda",
        ],
    );
    delete_pod(&tenant, "disks");
    assert_eq!(written(&path.join("disk.img")), "guest wrote path");
    for (file, name) in files.iter().zip(["raw", "named", "unnamed"]) {
        assert_eq!(written(file), format!("guest wrote {name}"));
    }
}

/// What the guest sees ends where the device ends, not where the volume says.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_persistent_root_is_as_large_as_its_device() {
    have_small_guest();
    let tenant = Tenant::new("pod-root");
    let folder = Folder::new(&tenant);
    let image = cluster_directory().join("shared/small.img");
    let image = image.metadata().expect("the image").len();
    let size = image + 3 * BYTES;
    let file = folder.0.join("root");
    let disk = File::create_new(&file).expect("a new file");
    disk.set_len(size).expect("a size");
    let device = Loop::of(&file);
    tenant.apply(&claim(
        &tenant,
        "root",
        "Block",
        &local(Path::new(&device.path)),
    ));
    tenant.await_field(60, "pvc/root", ".status.phase", "Bound");
    let volumes = "    volumeDevices: [{name: root, devicePath: /}]
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: root}}";
    let seen = format!("size={}", size - (1 << 20));
    for (name, kept) in [("first", ""), ("second", "KEPT")] {
        let behind = image / 512;
        let guest = [
            format!(
                "echo {name} HAS $(dd if=/dev/sda bs=512 skip={behind} count=1 | tr -d '\\000')."
            ),
            format!("echo KEPT | dd of=/dev/sda bs=512 seek={behind} conv=notrunc,fsync"),
            "stay".to_owned(),
        ];
        tenant.apply(&vm_pod(name, volumes, &guest));
        let console = tenant.await_console(240, name, "GUEST-READY");
        let has = format!("{name} HAS {kept}.");
        assert_said(&console, &[&seen, &has]);
        delete_pod(&tenant, name);
    }
}
