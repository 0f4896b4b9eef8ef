//! Storage for claims: files and devices of the node, and servers and drivers that
//! really serve it.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::guests::NODE;
use super::{Tenant, cluster_directory, on_node, repository, run};

/// Whom QEMU runs as.
pub(crate) const QEMU: u32 = 64055;
/// The size of all disks here, also as claims write it.
pub(crate) const BYTES: u64 = 8 << 20;
pub(crate) const SIZE: &str = "8Mi";

/// A directory that has the same path here, on the node and in pods of the node.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(tenant: &Tenant) -> Self {
        let path = cluster_directory().join("shared").join(&tenant.name);
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    /// A directory in it.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir(&path).expect("a directory");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A disk whose first sector says something; QEMU may write to it.
pub(crate) fn write_disk(file: &Path, text: &str) {
    let disk = write_blank(file);
    disk.write_all_at(format!("{text}\n").as_bytes(), 0)
        .expect("room");
}

/// A disk without anything; QEMU may write to it.
pub(crate) fn write_blank(file: &Path) -> File {
    let disk = File::create_new(file).expect("a new file");
    disk.set_len(BYTES).expect("a size");
    fs::set_permissions(file, Permissions::from_mode(0o600)).expect("a mode");
    chown(file, Some(QEMU), Some(QEMU)).expect("root");
    disk
}

/// What a guest has written to the second sector.
pub(crate) fn written(file: &Path) -> String {
    let mut sector = [0; 512];
    let file = File::open(file).expect("the disk is there");
    file.read_exact_at(&mut sector, 512).expect("it has bytes");
    let text = sector.split(|byte| [0, b'\n'].contains(byte)).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

/// Whether a process of the node has this file open.
pub(crate) fn is_open(file: &Path) -> bool {
    let meta = fs::metadata(file).expect("it is there");
    let wanted = format!("{}:{}", meta.dev(), meta.ino());
    let all = "stat -L -c %d:%i /proc/[0-9]*/fd/* 2>/dev/null || true";
    let open = on_node(NODE, &["sh", "-c", all]);
    open.lines().any(|line| line == wanted)
}

/// What a guest says and does with a disk of this serial number: it reads the first
/// sector, and writes to the second.
pub(crate) fn read_and_write(serial: &str) -> [String; 2] {
    let disk = format!("/dev/disk-by-serial/{serial}");
    [
        read_only(serial),
        format!("echo guest wrote {serial} | dd of={disk} bs=512 seek=1 conv=notrunc,fsync"),
    ]
}

/// The first half of it.
pub(crate) fn read_only(serial: &str) -> String {
    format!("echo {serial} READS $(head -n 1 /dev/disk-by-serial/{serial})")
}

/// A loop device. It goes when nobody uses it any more.
pub(crate) struct Loop {
    pub(crate) path: String,
    _held: File,
}

impl Loop {
    pub(crate) fn of(file: &Path) -> Self {
        let path = run(Command::new("losetup").args(["--find", "--show"]).arg(file));
        let path = path.trim().to_owned();
        let held = File::open(&path).expect("the device is there");
        run(Command::new("losetup").args(["--detach", &path]));
        Self { path, _held: held }
    }
}

/// A disk from a claim, with the claim's name as its serial number.
pub(crate) fn disk(claim: &str, more: &str) -> String {
    format!("      - {{source: {{pvc: {{claimname: {claim}}}}}, serial: {claim}{more}}}\n")
}

/// A claim and the volume that is kept for it. `volume` is more of its spec.
pub(crate) fn claim(tenant: &Tenant, name: &str, mode: &str, volume: &str) -> String {
    let namespace = &tenant.name;
    format!(
        "{}
  claimRef: {{namespace: {namespace}, name: {name}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  storageClassName: \"\"
  volumeName: {namespace}-{name}
  volumeMode: {mode}
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: {SIZE}}}}}
---
",
        volume_of(tenant, name, "", mode, volume)
    )
}

/// A volume of a class.
pub(crate) fn volume_of(
    tenant: &Tenant,
    name: &str,
    class: &str,
    mode: &str,
    volume: &str,
) -> String {
    let namespace = &tenant.name;
    format!(
        "apiVersion: v1
kind: PersistentVolume
metadata: {{name: {namespace}-{name}, labels: {{tenant: {namespace}}}}}
spec:
  storageClassName: \"{class}\"
  capacity: {{storage: {SIZE}}}
  volumeMode: {mode}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  {volume}"
    )
}

/// The spec of a volume that is at a path of the node.
pub(crate) fn local(path: &Path) -> String {
    format!(
        "local: {{path: {}}}
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, \
         values: [{NODE}]}}]}}]}}}}",
        path.display()
    )
}

pub(crate) fn host_path(path: &Path) -> String {
    format!("hostPath: {{path: {}}}", path.display())
}

/// A process that lives until its stdin ends: when this is dropped, or when the test
/// is gone.
pub(crate) struct Tied(Child);

impl Tied {
    /// Returns its first line.
    pub(crate) fn start(command: &mut Command) -> (Self, String) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        (Self(child), line)
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// `script/lib/kube/csi/driver.py` on the node, and the cluster knows it.
pub(crate) struct CsiDriver {
    name: String,
    _process: Tied,
}

impl CsiDriver {
    pub(crate) fn start(tenant: &Tenant, volumes: &Path) -> Self {
        let name = format!("{}.csi.test", tenant.name);
        tenant.apply(&format!(
            "apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {{name: {name}, labels: {{tenant: {}}}}}
spec: {{attachRequired: false}}
",
            tenant.name
        ));
        // The node does not see the repository.
        let here = volumes.join("driver");
        fs::create_dir(&here).expect("a directory");
        for file in ["driver.py", "csi.proto", "registration.proto"] {
            let from = repository().join("script/lib/kube/csi").join(file);
            fs::copy(from, here.join(file)).expect("a copy");
        }
        let mut command = Command::new(repository().join("script/kube"));
        command.args(["exec", NODE, "/usr/bin/python3"]);
        command.arg(here.join("driver.py")).arg(&name).arg(volumes);
        let (process, said) = Tied::start(command.arg("/var/lib/kubelet"));
        assert_eq!(said.trim(), "registered");
        Self {
            name,
            _process: process,
        }
    }

    /// The spec of a volume of its own.
    pub(crate) fn volume(&self, handle: &str) -> String {
        format!("csi: {{driver: {}, volumeHandle: {handle}}}", self.name)
    }
}

/// A server of `script/lib/servers`, on the node's loopback.
pub(super) fn server_on_node(script: &str, directory: &Path) -> Command {
    let machine = cluster_directory().join(NODE).join("machine.pid");
    let machine = fs::read_to_string(machine).expect("the node runs");
    let machine = machine.split(' ').next().expect("a process");
    let mut command = Command::new(repository().join("script/lib/servers").join(script));
    command.arg("run").arg(directory);
    command.env("SERVER_NETWORK", format!("/proc/{machine}/ns/net"));
    command
}

/// A server of `script/lib/servers` on the node's loopback, where volumes of its VMs
/// reach it, and at its address, where VMs may name it.
pub(crate) struct Server {
    pub(crate) facts: serde_json::Value,
    pub(crate) address: String,
    pub(crate) directory: PathBuf,
    _process: Tied,
}

/// A server that is not there for a while.
pub(crate) struct Away(PathBuf);

impl Drop for Away {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Server {
    pub(crate) fn start(tenant: &Tenant, kind: &str) -> Self {
        Self::start_as(tenant, kind, "no")
    }

    fn start_as(tenant: &Tenant, kind: &str, again: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("disklet-{kind}-{}", tenant.name));
        let mut command = server_on_node(&format!("{kind}.sh"), &directory);
        let address = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
        let address = run(Command::new("kubectl").args(["get", "node", NODE, "-o", address]));
        command.env("SERVER_ADDRESS", &address);
        command.env("SERVER_AGAIN", again);
        let (process, facts) = Tied::start(&mut command);
        Self {
            facts: serde_json::from_str(&facts).expect("facts"),
            address,
            directory,
            _process: process,
        }
    }
}

/// One for iSCSI.
pub(crate) struct Iscsi(Server);

impl Iscsi {
    pub(crate) fn start(tenant: &Tenant) -> Self {
        Self(Server::start(tenant, "iscsi"))
    }

    /// One that comes again after it was killed.
    pub(crate) fn start_lasting(tenant: &Tenant) -> Self {
        Self(Server::start_as(tenant, "iscsi", "yes"))
    }

    /// Kills it. It comes again when what is returned is dropped.
    pub(crate) fn vanish(&self) -> Away {
        let away = Away(self.0.directory.join("away"));
        File::create_new(&away.0).expect("it is there");
        // Nothing else has its control socket, which is named after it.
        let kill = "for p in /proc/[0-9]*; do
            tr '\\0' '\\n' <\"$p/environ\" 2>/dev/null | grep -qxF \"TGT_IPC_SOCKET=$1\" || continue
            [ \"$(cat \"$p/comm\")\" = tgtd ] && kill -KILL \"${p#/proc/}\"; done; true";
        let socket = self.0.directory.join("control");
        run(Command::new("sh").args(["-c", kill, "sh"]).arg(socket));
        away
    }

    /// What those have to know who come by CHAP, as the target reads it when it comes again.
    pub(crate) fn password_file(&self) -> &Path {
        let file = self.0.facts["chap"]["passwordFile"].as_str();
        Path::new(file.expect("a path"))
    }

    /// The node's address, at which it is reached.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// Where its disks are.
    pub(crate) fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// The spec of a volume at its target for everybody.
    pub(crate) fn open_volume(&self) -> String {
        format!("iscsi: {{{}}}", self.target("open"))
    }

    /// The same, as other nodes reach it.
    pub(crate) fn open_volume_for_all(&self) -> String {
        self.open_volume().replace("127.0.0.1", self.address())
    }

    /// The same target as a source that a VM names itself.
    pub(crate) fn open_source(&self) -> String {
        let facts = &self.0.facts["open"];
        format!(
            "iscsi: {{host: {{name: {}, port: \"{}\"}}, portal: {}, lun: {}}}",
            self.0.address, self.0.facts["port"], facts["iqn"], facts["lun"]
        )
    }

    /// That of one whose target wants to know who comes; and the Secret.
    pub(crate) fn chap_volume(&self, tenant: &Tenant) -> (String, String) {
        let volume = format!(
            "iscsi: {{{}, chapAuthSession: true, secretRef: {{namespace: {}, name: chap}}}}",
            self.target("chap"),
            tenant.name
        );
        (volume, self.chap_secret())
    }

    /// The same target as a source that a VM names itself, at a host; and the Secret.
    pub(crate) fn chap_source(&self, host: &str) -> (String, String) {
        let facts = &self.0.facts["chap"];
        let source = format!(
            "iscsi: {{host: {{name: {host}, port: \"{}\"}}, portal: {}, lun: {}, auth: {{secretRef: chap}}}}",
            self.0.facts["port"], facts["iqn"], facts["lun"]
        );
        (source, self.chap_secret())
    }

    fn chap_secret(&self) -> String {
        let facts = &self.0.facts["chap"];
        let text = |key: &str| facts[key].as_str().expect("a text");
        let password = fs::read_to_string(text("passwordFile")).expect("a password");
        format!(
            "apiVersion: v1
kind: Secret
metadata: {{name: chap}}
type: kubernetes.io/iscsi-chap
stringData: {{node.session.auth.username: {}, node.session.auth.password: {password}}}
---
",
            text("user")
        )
    }

    fn target(&self, name: &str) -> String {
        let facts = &self.0.facts[name];
        format!(
            "targetPortal: \"127.0.0.1:{}\", iqn: {}, lun: {}",
            self.0.facts["port"], facts["iqn"], facts["lun"]
        )
    }
}
