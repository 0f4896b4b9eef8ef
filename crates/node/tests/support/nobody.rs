//! A user who is not root.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::Machine;

/// Runs as nobody, who has a home.
pub(crate) struct Nobody {
    home: PathBuf,
    /// What nobody finds otherwise than root does: a script that is run before,
    /// as root in mounts of its own, and a directory for it.
    before: Option<(String, PathBuf)>,
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
        Self { home, before: None }
    }

    /// The same on a machine where root's data is what the machine has.
    pub(crate) fn beside_root(machine: &Machine) -> Self {
        let mut nobody = Self::new(machine);
        nobody.before = Some((WITH_SYSTEM.to_owned(), machine.path("data")));
        nobody
    }

    /// The same on a machine where /dev/kvm has these rights.
    pub(crate) fn with_kvm(machine: &Machine, mode: &str) -> Self {
        let mut nobody = Self::new(machine);
        let nodes = machine.path("nodes");
        std::fs::create_dir(&nodes).unwrap();
        nobody.before = Some((WITH_KVM.replace("MODE", mode), nodes));
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
        let mut command = match &self.before {
            None => Command::new("setpriv"),
            Some((script, directory)) => after(script, directory),
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

/// /var/lib/disklet is the directory.
const WITH_SYSTEM: &str = "mount -t tmpfs -o mode=0755 none /var/lib && mkdir /var/lib/disklet &&
    mount --bind \"$1\" /var/lib/disklet";

/// /dev/kvm is a node in the directory.
const WITH_KVM: &str = "mount -t tmpfs -o mode=0755,dev none \"$1\" &&
    mknod -m MODE \"$1/kvm\" c 10 232 && mount --bind \"$1/kvm\" /dev/kvm";

/// `setpriv` after a script, in mounts of its own. A daemon that is started there
/// sees the same.
fn after(script: &str, directory: &Path) -> Command {
    let script = format!("{script} && shift && exec setpriv \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
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
