//! A network namespace as a pod has it: `eth0` with an address, and a gateway
//! in another namespace, where whoever connects to the pod is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::fs::{XattrFlags, setxattr};

use crate::launched::{Launched, Launcher, Scratch, wait_until};

/// With all rights of the last process gone, as a container's user.
const AS_IN_A_CONTAINER: [&str; 10] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--no-new-privs",
    "--bounding-set=-all",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--pdeathsig=keep",
    "--",
];
/// One of them is left, as in a pod that has it.
const WITH_LOW_PORTS: [&str; 10] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--no-new-privs",
    "--bounding-set=-all,+net_bind_service",
    "--inh-caps=-all,+net_bind_service",
    "--ambient-caps=-all,+net_bind_service",
    "--pdeathsig=keep",
    "--",
];
/// What `script/images` says of the program's file: it may have the same.
const MAY_HAVE_LOW_PORTS: [u32; 5] = [0x0200_0000, 1 << 10, 0, 0, 0];

/// The namespaces.
pub(crate) struct Pod {
    pod: String,
    peer: String,
    address: String,
}

impl Pod {
    pub(crate) fn new(name: &str, address: &str, gateway: &str) -> Self {
        let name = format!("disklet-{}-{name}", std::process::id());
        let (pod, peer) = (format!("{name}-pod"), format!("{name}-peer"));
        let this = Self {
            pod,
            peer,
            address: address.to_owned(),
        };
        let (pod, peer) = (this.pod.as_str(), this.peer.as_str());
        run(&["ip", "netns", "add", pod]);
        run(&["ip", "netns", "add", peer]);
        run(&[
            "ip", "-n", peer, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0",
            "netns", pod,
        ]);
        for (namespace, address) in [(pod, address), (peer, gateway)] {
            let address = format!("{address}/24");
            run(&[
                "ip", "-n", namespace, "addr", "add", &address, "dev", "eth0",
            ]);
            run(&["ip", "-n", namespace, "link", "set", "lo", "up"]);
            run(&["ip", "-n", namespace, "link", "set", "eth0", "up"]);
        }
        run(&["ip", "-n", pod, "route", "add", "default", "via", gateway]);
        this.sysctl("net.ipv4.ip_unprivileged_port_start=0");
        this.sysctl("net.ipv4.ping_group_range=0 2147483647");
        this
    }

    pub(crate) fn name(&self) -> &str {
        &self.pod
    }

    pub(crate) fn sysctl(&self, setting: &str) {
        run(&["ip", "netns", "exec", &self.pod, "sysctl", "-qw", setting]);
    }

    /// A launcher in it, with no more rights than in a cluster.
    pub(crate) fn launch(&self, args: &[&str]) -> Launched {
        self.launch_as(&AS_IN_A_CONTAINER, args)
    }

    /// One that may have ports below 1024.
    pub(crate) fn launch_with_low_ports(&self, args: &[&str]) -> Launched {
        self.launch_as(&WITH_LOW_PORTS, args)
    }

    /// One without any right, started by another program.
    pub(crate) fn launch_by(&self, by: &[&str], args: &[&str]) -> Launched {
        self.launch_as(&[by, &AS_IN_A_CONTAINER].concat(), args)
    }

    fn launch_as(&self, by: &[&str], args: &[&str]) -> Launched {
        let scratch = Scratch::new();
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(scratch.path(), mode.clone()).unwrap();
        // Where the build is, others may not look.
        let program: PathBuf = scratch.path().join("disklet");
        run(&[
            "cp",
            env!("CARGO_BIN_EXE_disklet"),
            &program.display().to_string(),
        ]);
        let rights: Vec<u8> = MAY_HAVE_LOW_PORTS
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let no_flags = XattrFlags::empty();
        setxattr(&program, "security.capability", &rights, no_flags).unwrap();
        let mut launcher = Launcher::within(scratch, args);
        let log = launcher.scratch.path().join("log");
        fs::set_permissions(log, mode).unwrap();
        let mut outer = Command::new("ip");
        outer.args(["netns", "exec", &self.pod]).args(by);
        outer.arg(program).args(launcher.command.get_args());
        outer.stdin(Stdio::piped());
        outer.stdout(Stdio::piped()).stderr(Stdio::piped());
        launcher.command = outer;
        launcher.start()
    }

    /// What a script in the other namespace prints.
    pub(crate) fn peer(&self, script: &str, args: &[&str]) -> String {
        let mut command = self.in_peer(script);
        let output = command.args(args).stderr(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What the guest's web server answers; nothing if it does not.
    pub(crate) fn get(&self, port: u16) -> String {
        let script = "exec 3<>/dev/tcp/$0/$1 || exit; printf 'GET /x HTTP/1.0\\r\\n\\r\\n' >&3; \
                      timeout 20 cat <&3";
        self.peer(script, &[&self.address, &port.to_string()])
    }

    /// Somebody who listens in the other namespace.
    pub(crate) fn peer_server(&self, script: &str, port: u16) -> PeerServer {
        let child = self.in_peer(script).stdout(Stdio::piped()).spawn().unwrap();
        let listens = format!(":{port:04X} 00000000:0000 0A");
        wait_until("the server listens", || {
            let script = "cat /proc/net/tcp /proc/net/tcp6";
            let all = self.peer(script, &[]);
            all.contains(&listens) || all.contains(&format!(":{port:04X} 0000"))
        });
        PeerServer(child)
    }

    fn in_peer(&self, script: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.peer, "bash", "-c", script]);
        command
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for name in [&self.pod, &self.peer] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

pub(crate) struct PeerServer(Child);

impl PeerServer {
    /// What it has printed when it has ended.
    pub(crate) fn wait(self) -> String {
        let output = self.0.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn run(command: &[&str]) {
    let status = Command::new(command[0]).args(&command[1..]).status();
    assert!(status.unwrap().success(), "{command:?}");
}

/// The children of a process.
pub(crate) fn children(of: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).unwrap();
    let lists = tasks.filter_map(|task| {
        let path = task.ok()?.path().join("children");
        fs::read_to_string(path).ok()
    });
    let all: String = lists.collect();
    all.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}
