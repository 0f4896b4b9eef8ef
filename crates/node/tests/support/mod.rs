//! A machine of its own for a test: data directory, configuration, program.

#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod guest;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  annotations:
    kubernetes.io/target-runtime: virtlet.cloud
spec:
  containers:
  - name: vm
    image: virtlet.cloud/tiny
    resources: {limits: {memory: 64Mi}}
  volumes:
  - name: data
    flexVolume:
      driver: virtlet/flexvolume_driver
      options: {type: qcow2, capacity: CAPACITY}
";

/// A data directory that goes with the test.
pub(crate) struct Machine {
    folder: PathBuf,
    libvirt: String,
}

impl Machine {
    pub(crate) fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("disklet-node-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = format!(
            "dataDir: {0}/data\nrunDir: {0}/run\ndomainType: qemu\n",
            folder.display()
        );
        std::fs::write(folder.join("config.yaml"), config).unwrap();
        Self {
            folder,
            libvirt: std::env::var("DISKLET_TEST_LIBVIRT_URI")
                .expect("run by script/test, which starts a private libvirtd"),
        }
    }

    fn folder(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// `disklet-node`, with this machine's configuration and daemon.
    pub(crate) fn node(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The same, killed at a boundary between two steps; whether it got there.
    pub(crate) fn killed(&self, arguments: &[&str], boundary: u32) -> bool {
        let status = self
            .command(arguments)
            .env("DISKLET_CUT", boundary.to_string())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}");
        !status.success()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disklet-node"));
        command
            .args(arguments)
            .arg("--config")
            .arg(self.path("config.yaml"))
            .env("LIBVIRT_DEFAULT_URI", &self.libvirt);
        command
    }

    /// The same, which must succeed; what it printed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.node(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, which must fail; what it said.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.node(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// A manifest of a VM with one new volume. The tests share the daemon, so
    /// each gives its VM a name of its own.
    pub(crate) fn pod(&self, name: &str, capacity: &str) -> String {
        let text = POD.replace("NAME", name).replace("CAPACITY", capacity);
        let path = self.write("pod.yaml", text);
        path.to_str().unwrap().to_owned()
    }

    /// Takes a disk into the image store.
    pub(crate) fn add_image(&self, name: &str, disk: &[u8]) {
        let store = disklet::store::Store::of(self.path("data").to_str().unwrap());
        let incoming = disklet::store::Incoming {
            name,
            stream: disk,
            digest: None,
            most: disklet_core::units::ByteSize::from_bytes(1 << 30),
        };
        store
            .add(incoming, &disklet_block::convert::Unwatched)
            .unwrap();
    }

    /// Files and domains that are there because of this machine's VMs.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        for directory in ["volumes", "vms", "cloud-init"] {
            list(&self.path("data").join(directory), &mut found);
        }
        let uuids = self.virsh(&["list", "--all", "--uuid"]).unwrap();
        // Another test's may be gone by now.
        let ours = |uuid: &&str| {
            let xml = self.virsh(&["dumpxml", uuid]);
            xml.is_some_and(|xml| xml.contains(self.folder()))
        };
        found.extend(
            uuids
                .lines()
                .filter(|line| !line.is_empty())
                .filter(ours)
                .map(str::to_owned),
        );
        found
    }

    /// What virsh prints, if it succeeds.
    fn virsh(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("virsh")
            .args(["-q", "-c", &self.libvirt])
            .args(arguments)
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }
}

fn list(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, found);
        } else {
            found.push(path.display().to_string());
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
