//! A place to mount things: a mount namespace of its own, which takes all mounts
//! with it when it goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(crate) const DRIVER: &str = env!("CARGO_BIN_EXE_disklet-flexvolume");
pub(crate) const UID: &str = "0a1b2c3d-0000-4000-8000-000000000001";
pub(crate) const KEY: &str = "AQDTwuVY8rA8HxAAthwOKaQPr0hRc7kCmR/9Qg==";
pub(crate) const SUCCESS: &str = "{\"status\":\"Success\"}\n";

/// A node with a kubelet's root, and the pod's directory for volumes in it.
pub(crate) struct Node {
    root: PathBuf,
    holder: Child,
}

impl Node {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("disklet-flexvolume-{test}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(root.join(format!("pods/{UID}/volumes/virtlet~flexvolume_driver")))
            .unwrap();
        // It says so when it is in the namespace. The mount is shared with itself,
        // as a node's root is: mounts that cannot be passed on would be refused.
        let script = "mount --bind $0 $0 && mount --make-shared $0 && echo && exec sleep infinity";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(&root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        let stdout = holder.stdout.as_mut().unwrap();
        std::io::Read::read_exact(stdout, &mut ready).expect("no mount namespace: root is needed");
        Self { root, holder }
    }

    pub(crate) fn directory(&self, volume: &str) -> String {
        let root = self.root.display();
        format!("{root}/pods/{UID}/volumes/virtlet~flexvolume_driver/{volume}")
    }

    /// A path of the node as this process can reach it.
    pub(crate) fn seen(&self, path: impl AsRef<Path>) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(path.as_ref().strip_prefix("/").unwrap())
    }

    /// A command on the node.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        // Cargo's would have the driver's libraries looked for in dozens of places.
        command.env_remove("LD_LIBRARY_PATH").arg(program);
        command
    }

    /// The driver's answer.
    pub(crate) fn call(&self, arguments: &[&str]) -> String {
        let output = self.command(DRIVER).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn mount(&self, volume: &str, options: &str) -> String {
        self.call(&["mount", &self.directory(volume), &json(volume, options)])
    }

    pub(crate) fn unmount(&self, volume: &str) -> String {
        self.call(&["unmount", &self.directory(volume)])
    }

    /// What the node agent finds.
    pub(crate) fn file(&self, volume: &str) -> Option<String> {
        let path = self
            .seen(self.directory(volume))
            .join("disklet-volume.json");
        fs::read_to_string(path).ok()
    }

    /// The mounts at a volume's directory: filesystem, source, options.
    pub(crate) fn mounts(&self, volume: &str) -> Vec<String> {
        let directory = self.directory(volume);
        let all = fs::read_to_string(format!("/proc/{}/mountinfo", self.holder.id())).unwrap();
        let at = all
            .lines()
            .filter(|line| line.split(' ').nth(4) == Some(&directory));
        at.map(|line| line.split_once(" - ").unwrap().1.to_owned())
            .collect()
    }

    /// All that is on the disk below the kubelet's root, whatever is mounted there.
    pub(crate) fn on_disk(&self) -> Vec<String> {
        let output = Command::new("find").arg(&self.root).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// What the kubelet says of a volume with these options.
pub(crate) fn json(volume: &str, options: &str) -> String {
    format!(
        r#"{{"kubernetes.io/fsType":"","kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"default","kubernetes.io/pod.uid":"{UID}","kubernetes.io/pvOrVolumeName":"{volume}","kubernetes.io/readwrite":"rw","kubernetes.io/serviceAccount.name":"default",{options}}}"#
    )
}

pub(crate) fn ceph() -> String {
    format!(r#""type":"ceph","monitor":"mon","pool":"p","volume":"v","secret":"{KEY}""#)
}
