//! A user who is not root.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::Machine;

/// Runs as nobody, who has a home.
pub(crate) struct Nobody {
    home: PathBuf,
    /// What nobody finds in root's data directory.
    system: Option<PathBuf>,
}

impl Nobody {
    /// With a home on a machine, whose name has to be short: below the home
    /// libvirt makes sockets, whose paths may not exceed 107 bytes.
    pub(crate) fn new(machine: &Machine) -> Self {
        let home = machine.path("home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
        let program = env!("CARGO_BIN_EXE_disklet-node");
        std::fs::copy(program, home.join("disklet-node")).unwrap();
        Self { home, system: None }
    }

    /// The same on a machine where root's data is what the machine has.
    pub(crate) fn beside_root(machine: &Machine) -> Self {
        let mut nobody = Self::new(machine);
        nobody.system = Some(machine.path("data"));
        nobody
    }

    /// Where nobody's data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.join(".local/share/disklet")
    }

    /// What root has put into nobody's home becomes nobody's.
    pub(crate) fn own_data(&self) {
        let chown = Command::new("chown")
            .args(["-R", "nobody:nogroup"])
            .arg(self.home.join(".local"))
            .status();
        assert!(chown.unwrap().success());
    }

    /// How many files and directories their VMs have.
    pub(crate) fn things(&self) -> usize {
        let count = |directory: PathBuf| std::fs::read_dir(directory).into_iter().flatten().count();
        ["volumes", "vms", "cloud-init", "run/disklet/vms"]
            .map(|name| count(self.data().join(name)))
            .iter()
            .sum()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A run that must succeed; what it printed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// `disklet-node`, ready to be run.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match &self.system {
            None => Command::new("setpriv"),
            Some(system) => with_system(system),
        };
        command
            .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
            .args(["env", "-i"])
            .arg(format!("HOME={}", self.home.display()))
            .arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin")
            .arg(self.home.join("disklet-node"))
            .args(arguments);
        command
    }
}

/// In mounts of its own, whose /var/lib/disklet is this directory. A daemon that
/// is started there sees the same.
fn with_system(directory: &Path) -> Command {
    const SCRIPT: &str = "mount -t tmpfs -o mode=0755 none /var/lib && mkdir /var/lib/disklet &&
        mount --bind \"$1\" /var/lib/disklet && shift && exec setpriv \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT])
        .arg("sh")
        .arg(directory);
    command
}

impl Drop for Nobody {
    /// libvirt has started a daemon for nobody, which would go by itself, later.
    fn drop(&mut self) {
        let file = self.home.join(".cache/libvirt/libvirtd.pid");
        if let Ok(pid) = std::fs::read_to_string(file) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}
