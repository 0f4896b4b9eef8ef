//! VMs with each kind of disk.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::things::{WithSecrets, with_secrets};
use super::{Machine, guest};

/// What a VM has beside its root overlay and cloud-init image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    NewVolume,
    RawDevice,
    BlockClaim,
    DiskImage,
    /// Instead of the overlay.
    PersistentRoot,
    Ceph,
    /// A VM object: a clone of the image, and a claim whose disk image has to
    /// be made.
    Object,
    /// The same with UEFI, which does not boot the smallest guest.
    Uefi,
}

impl Kind {
    pub(crate) const LOCAL: [Self; 6] = [
        Self::Object,
        Self::NewVolume,
        Self::RawDevice,
        Self::BlockClaim,
        Self::DiskImage,
        Self::PersistentRoot,
    ];
}

/// A VM's manifest, and what it refers to on this machine.
pub(crate) struct Fixture {
    pub(crate) manifest: String,
    /// The bytes behind its disk, if they are there without the VM.
    pub(crate) disk: Option<PathBuf>,
    kind: Kind,
    device: Option<LoopDevice>,
    /// Nobody else's secrets are there meanwhile.
    _secrets: Option<WithSecrets>,
}

impl Fixture {
    /// A VM of the smallest guest with one more disk.
    pub(crate) fn new(machine: &Machine, name: &str, kind: Kind) -> Self {
        Self::of_guest(machine, name, kind, &guest::disk())
    }

    /// The same with another guest.
    pub(crate) fn of_guest(machine: &Machine, name: &str, kind: Kind, guest: &[u8]) -> Self {
        Self::build(machine, name, kind, guest, 8 << 20)
    }

    /// A persistent root of a size.
    pub(crate) fn sized(machine: &Machine, name: &str, guest: &[u8], size: u64) -> Self {
        Self::build(machine, name, Kind::PersistentRoot, guest, size)
    }

    fn build(machine: &Machine, name: &str, kind: Kind, guest: &[u8], size: u64) -> Self {
        machine.add_image("tiny", guest);
        let (disk, device) = match kind {
            Kind::NewVolume | Kind::Ceph => (None, None),
            Kind::Object | Kind::Uefi => {
                std::fs::create_dir_all(machine.path("volume")).unwrap();
                std::fs::create_dir_all(machine.path("volume-master")).unwrap();
                machine.write_zeroes("volume-master/disk.img", 1 << 20);
                (Some(machine.path("volume/disk.img")), None)
            }
            Kind::DiskImage => {
                std::fs::create_dir_all(machine.path("volume")).unwrap();
                (Some(machine.write_zeroes("volume/disk.img", size)), None)
            }
            Kind::RawDevice | Kind::BlockClaim | Kind::PersistentRoot => {
                let file = machine.write_zeroes("device.img", size);
                let device = LoopDevice::attach(&file);
                (Some(file), Some(device))
            }
        };
        let path = match (&device, &disk) {
            (Some(device), _) => device.path.clone(),
            (None, Some(disk)) => disk.parent().unwrap().display().to_string(),
            _ => String::new(),
        };
        let text = match kind {
            Kind::Object => object(name, "bios", &path),
            Kind::Uefi => object(name, "uefi", &path),
            kind => manifest(name, kind, &path),
        };
        let manifest = machine.write("pod.yaml", text).display().to_string();
        Self {
            manifest,
            disk,
            kind,
            device,
            _secrets: (kind == Kind::Ceph).then(with_secrets),
        }
    }

    /// The device behind its disk.
    pub(crate) fn device(&self) -> &str {
        &self.device.as_ref().unwrap().path
    }

    /// Writes to the disk as the machine sees it.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let open = std::fs::File::options()
            .write(true)
            .open(self.device())
            .unwrap();
        open.write_all_at(bytes, offset).unwrap();
        open.sync_all().unwrap();
    }

    /// Reads the disk as the machine sees it.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let open = std::fs::File::open(self.device()).unwrap();
        open.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    /// Makes a root's device blank, so that it has to be filled again.
    pub(crate) fn reset(&self) {
        if self.kind == Kind::PersistentRoot {
            self.write(0, &vec![0; 8 << 20]);
        }
    }
}

/// A VM whose guest waits for a key.
pub(crate) fn waiting(name: &str) -> (Machine, Fixture) {
    let machine = Machine::new(name);
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, name, Kind::NewVolume, &guest);
    (machine, fixture)
}

fn manifest(name: &str, kind: Kind, path: &str) -> String {
    let flex = |options: &str| {
        format!(
            "  volumes:\n  - name: data\n    flexVolume:\n      driver: virtlet/flexvolume_driver\n      options: {options}\n"
        )
    };
    let claim = "  volumes:\n  - name: data\n    persistentVolumeClaim: {claimName: data}\n";
    let (devices, volumes) = match kind {
        Kind::NewVolume => (String::new(), flex("{type: qcow2, capacity: 8MB}")),
        Kind::RawDevice => (String::new(), flex(&format!("{{type: raw, path: {path}}}"))),
        Kind::Ceph => (
            String::new(),
            flex(
                "{type: ceph, monitor: 'localhost:1', pool: p, volume: v, user: u, secret: QVFEZA==}",
            ),
        ),
        Kind::DiskImage | Kind::Object | Kind::Uefi => (String::new(), claim.to_owned()),
        Kind::BlockClaim => (devices_at("/dev/data"), claim.to_owned()),
        Kind::PersistentRoot => (devices_at("/"), claim.to_owned()),
    };
    let mut text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    kubernetes.io/target-runtime: virtlet.cloud\n\
         spec:\n  containers:\n  - name: vm\n    image: virtlet.cloud/tiny\n    resources: {{limits: {{memory: 64Mi}}}}\n{devices}{volumes}"
    );
    if volumes == claim {
        let mode = match kind {
            Kind::DiskImage => "Filesystem",
            _ => "Block",
        };
        text += &claimed(mode, path);
    }
    text
}

/// A VM object. Its disk image is the claim's, and stays.
fn object(name: &str, firmware: &str, path: &str) -> String {
    format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata:\n  name: {name}\nspec:\n  domain:\n    memory: 64Mi\n    firmware: {{type: {firmware}}}\n\
         \x20   devices:\n      disks:\n      - source: {{image: {{name: virtlet.cloud/tiny}}}}\n        copy: {{mode: clone}}\n\
         \x20     - type: PersistentVolumeClaim\n        source: {{name: data, create: true}}\n        target: {{bus: scsi, device: sdb}}\n\
         \x20     - source: {{pvc: {{claimname: master}}}}\n        copy: {{mode: clone}}\n{}",
        claimed("Filesystem", path)
            + &claimed_as("master", "Filesystem", &format!("{path}-master"))
    )
}

fn claimed(mode: &str, path: &str) -> String {
    claimed_as("data", mode, path)
}

fn claimed_as(name: &str, mode: &str, path: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\n\
             spec: {{volumeName: {name}, accessModes: [ReadWriteOnce], volumeMode: {mode}, storageClassName: '', resources: {{requests: {{storage: 4Mi}}}}}}\n\
             ---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\n\
             spec: {{accessModes: [ReadWriteOnce], volumeMode: {mode}, capacity: {{storage: 8Mi}}, hostPath: {{path: {path}}}}}\n"
    )
}

fn devices_at(path: &str) -> String {
    format!("    volumeDevices: [{{name: data, devicePath: {path}}}]\n")
}

/// A file as a block device; it goes with this.
pub(crate) struct LoopDevice {
    pub(crate) path: String,
}

impl LoopDevice {
    pub(crate) fn attach(file: &Path) -> Self {
        Self::attach_with(file, &[])
    }

    /// The same, which nobody can write to.
    pub(crate) fn attach_read_only(file: &Path) -> Self {
        Self::attach_with(file, &["--read-only"])
    }

    /// The same with one partition. The kernel is told of it, rather than left
    /// to find it: not every kernel reads the usual tables.
    pub(crate) fn attach_partitioned(file: &Path) -> Self {
        let disk = Self::attach_with(file, &["--partscan"]);
        let add = Command::new("addpart")
            .args([&disk.path, "1", "2048", "2048"])
            .status();
        assert!(add.unwrap().success());
        disk
    }

    /// Its first partition.
    pub(crate) fn partition(&self) -> String {
        format!("{}p1", self.path)
    }

    fn attach_with(file: &Path, more: &[&str]) -> Self {
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=off"])
            .args(more)
            .arg(file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        Self {
            path: String::from_utf8(output.stdout).unwrap().trim().to_owned(),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}
