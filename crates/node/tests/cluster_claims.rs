//! VM objects whose disks are claims, on a real kubelet: what the host wrote the guest
//! reads, and what the guest wrote is there when the VM is gone.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use kube::guests::{assert_said, delete, have_small_guest, things, vm};
use kube::storage::{
    BYTES, CsiDriver, Folder, Iscsi, Loop, claim, disk, host_path, local, read_and_write,
    read_only, write_disk, written,
};
use kube::{Tenant, run, until};

/// Why it was not.
fn await_not_started(tenant: &Tenant, name: &str) -> String {
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    let vm = format!("vm/{name}");
    tenant.await_field(90, &vm, &format!("{ready}.reason"), "NotStarted");
    let message = tenant.field(&vm, &format!("{ready}.message"));
    message.expect("a message")
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn files_and_devices_of_the_node_are_disks() {
    have_small_guest();
    let tenant = Tenant::new("near");
    let folder = Folder::new(&tenant);
    let [path, new, files] = ["path", "new", "files"].map(|it| folder.volume(it));
    write_disk(&path.join("disk.img"), "from a hostPath");
    write_disk(&files.join("disk.img"), "from a local volume");
    let file = folder.0.join("device");
    write_disk(&file, "from a device");
    let device = Loop::of(&file);
    tenant.apply(
        &[
            claim(&tenant, "path", "Filesystem", &host_path(&path)),
            claim(&tenant, "new", "Filesystem", &local(&new)),
            claim(&tenant, "files", "Filesystem", &local(&files)),
            claim(&tenant, "device", "Block", &local(Path::new(&device.path))),
        ]
        .concat(),
    );
    let disks = [
        disk("path", ""),
        disk("new", "").replace("claimname: new", "claimname: new, create: true"),
        disk("files", ""),
        disk("device", ""),
    ];
    let mut guest: Vec<_> = ["path", "new", "files", "device"]
        .into_iter()
        .flat_map(read_and_write)
        .collect();
    guest.push("stay".to_owned());
    tenant.apply(&vm("near", &disks.concat(), &guest));

    let console = tenant.await_console(240, "near", "GUEST-READY");
    assert_said(
        &console,
        &[
            "path READS from a hostPath",
            "files READS from a local volume",
            "device READS from a device",
            &format!("size={BYTES} ro=0 serial=new"),
        ],
    );
    let source = ".status.disks[?(@.name==\"sde\")].source";
    let source = tenant.field("vm/near", source).expect("a disk");
    assert!(source.contains("device"), "{source}");
    // Nobody else has them meanwhile, although each pod has paths of its own to them.
    for name in ["files", "device"] {
        let other = format!("second-{name}");
        tenant.apply(&vm(&other, &disk(name, ""), &["stay"]));
        let message = await_not_started(&tenant, &other);
        let holder = format!("is in use by VM {}/near", tenant.name);
        assert!(message.contains(&holder), "{message}");
        delete(&tenant, &other);
    }
    delete(&tenant, "near");
    assert_eq!(written(&path.join("disk.img")), "guest wrote path");
    assert_eq!(written(&new.join("disk.img")), "guest wrote new");
    assert_eq!(written(&files.join("disk.img")), "guest wrote files");
    assert_eq!(written(&file), "guest wrote device");
    // It is as large as the claim, and takes no room for what nobody wrote.
    let made = fs::metadata(new.join("disk.img")).expect("it stays");
    assert_eq!(made.size(), BYTES);
    assert!(made.blocks() * 512 < BYTES / 2, "{}", made.blocks());
}

/// An ext4 with a disk image in it.
fn write_filesystem(file: &Path, scratch: &Path, text: &str) {
    fs::create_dir(scratch).expect("a directory");
    write_disk(&scratch.join("disk.img"), text);
    let mut mke2fs = Command::new("/sbin/mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-d"]).arg(scratch);
    run(mke2fs.arg(file).arg("24M"));
}

/// Gets the disk image out of an ext4 again.
fn read_filesystem(file: &Path, to: &Path) {
    let request = format!("dump disk.img {}", to.display());
    run(Command::new("/sbin/debugfs")
        .args(["-R", &request])
        .arg(file));
}

/// The volumes of the driver are mounted and mapped when the agent has long been
/// running.
#[test]
#[ignore = "needs a cluster: script/test"]
fn volumes_of_drivers_and_servers_are_disks() {
    have_small_guest();
    let tenant = Tenant::new("far");
    let folder = Folder::new(&tenant);
    let volumes = folder.volume("csi");
    let driver = CsiDriver::start(&tenant, &volumes);
    let server = Iscsi::start(&tenant);
    write_filesystem(
        &volumes.join("files"),
        &folder.0.join("tree"),
        "from a CSI filesystem",
    );
    write_filesystem(
        &volumes.join("shown"),
        &folder.0.join("shown"),
        "only to be read",
    );
    write_disk(&volumes.join("device"), "from a CSI device");
    // Mounted so that nobody can write.
    let shown = driver.volume("shown") + "\n  mountOptions: [ro]";
    let (lun, secret) = server.chap_volume(&tenant);
    tenant.apply(
        &[
            secret,
            claim(&tenant, "files", "Filesystem", &driver.volume("files")),
            claim(&tenant, "device", "Block", &driver.volume("device")),
            claim(&tenant, "shown", "Filesystem", &shown),
            claim(&tenant, "lun", "Block", &lun),
        ]
        .concat(),
    );
    let disks = [
        disk("files", ""),
        disk("device", ""),
        disk("shown", ", access-mode: read-shared"),
        disk("lun", ""),
    ];
    let guest = ["files", "device", "lun"].into_iter();
    let mut guest: Vec<_> = guest.flat_map(read_and_write).collect();
    guest.extend([read_only("shown"), "stay".to_owned()]);
    tenant.apply(&vm("far", &disks.concat(), &guest));

    let console = tenant.await_console(240, "far", "GUEST-READY");
    assert_said(
        &console,
        &[
            "files READS from a CSI filesystem",
            "device READS from a CSI device",
            "lun READS disk of iscsi chap",
            "shown READS only to be read",
            "ro=1 serial=shown",
        ],
    );
    // QEMU opens the unit itself: it is in no pod, and held by us.
    let carried = ".spec.volumes[*].persistentVolumeClaim.claimName";
    let carried = tenant.field("pod/far", carried);
    assert_eq!(carried.as_deref(), Some("files device shown"));
    let held = tenant.field("pvc/lun", ".metadata.finalizers");
    assert!(held.expect("finalizers").contains("disklet.io/in-use"));
    delete(&tenant, "far");
    until(60, "the driver's volumes are no more used", || {
        let used = tenant.try_kubectl(&["get", "pods", "-o", "name"]).1;
        let loops = run(Command::new("losetup").args(["--list", "--noheadings"]));
        let used = used.contains("pod/") || loops.contains(&*volumes.to_string_lossy());
        (!used).then_some(())
    });
    let image = folder.0.join("disk.img");
    read_filesystem(&volumes.join("files"), &image);
    assert_eq!(written(&image), "guest wrote files");
    assert_eq!(written(&volumes.join("device")), "guest wrote device");
    assert_eq!(
        written(&server.directory().join("chap.raw")),
        "guest wrote lun"
    );
    let held = tenant.field("pvc/lun", ".metadata.finalizers");
    assert!(!held.expect("finalizers").contains("disklet.io/in-use"));
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_missing_disk_image_is_told_and_made_only_if_somebody_asks() {
    have_small_guest();
    let tenant = Tenant::new("missing");
    let folder = Folder::new(&tenant);
    let volume = folder.volume("empty");
    tenant.apply(&claim(&tenant, "empty", "Filesystem", &local(&volume)));
    tenant.apply(&vm("missing", &disk("empty", ""), &["stay"]));
    let message = await_not_started(&tenant, "missing");
    for part in ["disk sdb", "disk.img is missing", "create: true"] {
        assert!(message.contains(part), "{message}");
    }
    let events = tenant.kubectl(&["get", "events", "--field-selector", "reason=NotStarted"]);
    assert!(events.contains("disk.img is missing"), "{events}");
    let left = fs::read_dir(&volume).expect("the volume is there").count();
    assert_eq!(left, 0, "something was made unasked");
    assert!(!things().contains("-missing"), "{}", things());
}
