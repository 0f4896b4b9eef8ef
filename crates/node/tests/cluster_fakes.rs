//! Pods that play a launcher: a tenant can make a pod that says that it is the one of
//! its VM, and put into it what it likes.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::{Child, Command};
use std::time::Duration;

use kube::guests::NODE;
use kube::{Tenant, on_node, repository, until};
use world::{alone, have_idle_guest, idle_vm, processes, tell, until_nothing_is_left};

/// Listens as a launcher does, in the directory of a pod. With a process of the pod it
/// is one, too. Once its guest runs it says what it is told to, again and again.
const LISTENER: &str = r#"
import os, socket, sys, threading
directory, member, line = sys.argv[1:]
if member:
    for group in open(f"/proc/{member}/cgroup"):
        _, controllers, path = group.strip().split(":", 2)
        file = "/sys/fs/cgroup/" + controllers.removeprefix("name=") + path + "/cgroup.procs"
        if controllers and os.path.exists(file):
            open(file, "w").write(str(os.getpid()))
os.chdir(directory)
def listen(name):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name + ".new")
    os.chmod(name + ".new", 0o666)
    listener.listen()
    os.rename(name + ".new", name)
    return listener
def read_all(listener):
    while True:
        connection, _ = listener.accept()
        while connection.recv(65536): pass
for name in ["serial", "net"]:
    threading.Thread(target=read_all, args=[listen(name)], daemon=True).start()
agent = listen("agent")
while True:
    connection, _ = agent.accept()
    try:
        connection.sendall(b'{"type":"hello","version":1}\n')
        heard = b""
        while line and b'"running"' not in heard:
            said = connection.recv(65536)
            if not said: raise OSError
            heard += said
        while line: connection.sendall((line + "\n").encode() * 1000)
        while connection.recv(65536): pass
    except OSError: pass
"#;

/// It, while it runs.
struct Listener(Child);

impl Listener {
    fn start(directory: &str, member: &str, line: &str) -> Self {
        let child = Command::new(repository().join("script/kube"))
            .args(["exec", NODE, "python3", "-c", LISTENER])
            .args([directory, member, line])
            .spawn();
        Self(child.expect("python starts"))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for process in processes("python3 -c") {
            let arguments = on_node(NODE, &["cat", &format!("/proc/{process}/cmdline")]);
            if arguments.contains("\"type\":\"hello\"") {
                world::kill(&process);
            }
        }
        let _ = self.0.wait();
    }
}

/// A pod that sleeps, with the directory of a launcher. Then there is a VM of its name;
/// then the pod says that it belongs to it.
fn fake(tenant: &Tenant, vm: &str, command: &str) -> String {
    tenant.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {vm}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: vm
    image: disklet.test/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, '{command}; exec sleep 3600']
    volumeMounts: [{{name: disklet, mountPath: /run/disklet}}]
  volumes: [{{name: disklet, emptyDir: {{}}}}]
"
    ));
    tenant.await_field(60, &format!("pod/{vm}"), ".status.phase", "Running");
    tenant.apply(&idle_vm(vm, "OnFailure"));
    let accepted = ".status.conditions[?(@.type==\"Accepted\")].reason";
    tenant.await_field(30, &format!("vm/{vm}"), accepted, "NameTaken");
    tenant
        .field(&format!("pod/{vm}"), ".metadata.uid")
        .expect("the pod has a UID")
}

fn belongs(tenant: &Tenant, vm: &str) {
    let uid = tenant.field(&format!("vm/{vm}"), ".metadata.uid");
    let uid = uid.expect("the VM has a UID");
    let change = format!(
        "{{\"metadata\":{{\"labels\":{{\"disklet.io/vm\":\"{vm}\"}},\"finalizers\":[\"disklet.io/agent\"],
        \"ownerReferences\":[{{\"apiVersion\":\"disklet.io/v1alpha1\",\"kind\":\"VM\",\"name\":\"{vm}\",
        \"uid\":\"{uid}\",\"controller\":true}}]}}}}"
    );
    tenant.kubectl(&["patch", "pod", vm, "--type=merge", "-p", &change]);
}

fn directory(uid: &str) -> String {
    format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/disklet")
}

/// The container's first process, by its command line.
fn member(uid: &str) -> String {
    until(30, "the fake sleeps", || {
        processes("sleep 3600").into_iter().find(|process| {
            let groups = on_node(
                NODE,
                &["sh", "-c", "cat /proc/$1/cgroup || true", "sh", process],
            );
            groups.contains(uid)
        })
    })
}

/// The agent's memory in KiB, and the processor time that it has used in ticks.
fn agent() -> (u64, u64) {
    let agents = processes("disklet-node agent");
    assert_eq!(agents.len(), 1, "there is one agent");
    let read = |file: &str| on_node(NODE, &["cat", &format!("/proc/{}/{file}", agents[0])]);
    let status = read("status");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.and_then(|it| it.trim().split(' ').next()?.parse().ok());
    let stat = read("stat");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<_> = fields.split_whitespace().collect();
    let ticks = |nth: usize| fields[nth].parse::<u64>().expect("a number");
    (memory.expect("a number"), ticks(11) + ticks(12))
}

/// It gets its VM, as any pod of its tenant might; the agent takes no harm.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_fake_that_says_stop_without_end_costs_nothing() {
    let _alone = alone();
    have_idle_guest();
    let (tenant, other) = (Tenant::new("flood"), Tenant::new("beside"));
    let uid = fake(&tenant, "flood", "true");
    let stop = "{\"type\":\"stop\",\"grace\":4000000000}";
    let listener = Listener::start(&directory(&uid), &member(&uid), stop);
    let before = agent();
    belongs(&tenant, "flood");
    tenant.await_ready(60, "flood");
    std::thread::sleep(Duration::from_secs(30));
    assert_eq!(tenant.domain_state("flood"), "running", "it has its grace");
    let after = agent();
    tell(&format!(
        "agent before {before:?}, after {after:?} (KiB, ticks)"
    ));
    assert!(
        after.0 < before.0 + (24 << 10),
        "memory: {before:?} to {after:?}"
    );
    assert!(after.1 < before.1 + 600, "ticks: {before:?} to {after:?}");
    other.apply(&idle_vm("beside", "OnFailure"));
    other.await_ready(60, "beside");
    // Whoever still holds the socket when the pod has ended keeps nothing.
    tenant.kubectl(&["delete", "vm", "flood", "--timeout=300s"]);
    other.kubectl(&["delete", "vm", "beside", "--timeout=300s"]);
    until_nothing_is_left(60, "a fake that says stop");
    drop(listener);
}

/// What stands where the launcher's socket should, and does not belong to the pod, is
/// not connected to.
#[test]
#[ignore = "needs a cluster: script/test"]
fn what_is_no_socket_of_the_pod_is_not_taken_for_one() {
    let _alone = alone();
    have_idle_guest();
    let (tenant, victim) = (Tenant::new("sockets"), Tenant::new("socket-victim"));
    victim.apply(&idle_vm("victim", "OnFailure"));
    victim.await_ready(120, "victim");
    let qemu = victim.qemu("victim").expect("QEMU runs");
    let theirs = victim.field("pod/victim", ".metadata.uid").expect("a UID");
    let theirs = directory(&theirs);
    let link = format!("ln -s {theirs}/agent /run/disklet/agent");
    let up = theirs.replacen("/var/lib/kubelet/pods", "../../../..", 1);
    let relative = format!("ln -s {up}/agent /run/disklet/agent");
    let fakes = [
        ("by-link", link.as_str()),
        ("by-relative", &relative),
        ("by-file", "echo > /run/disklet/agent"),
        ("by-pipe", "mkfifo /run/disklet/agent"),
    ];
    for (vm, command) in fakes {
        fake(&tenant, vm, command);
        belongs(&tenant, vm);
    }
    // A socket at which somebody listens who is not of the pod.
    let swapped = fake(&tenant, "swapped", "true");
    let listener = Listener::start(&directory(&swapped), "", "");
    belongs(&tenant, "swapped");
    let why = until(60, "the stranger is refused", || {
        tenant.condition("swapped", "Ready", "message")
    });
    assert!(why.contains("the launcher is in no cgroup of pod"), "{why}");
    std::thread::sleep(Duration::from_secs(5));
    for vm in fakes.map(|(vm, _)| vm).into_iter().chain(["swapped"]) {
        assert_eq!(tenant.qemu(vm), None, "{vm}");
        assert_eq!(tenant.domain_state(vm), "", "{vm}");
    }
    assert_eq!(victim.qemu("victim"), Some(qemu));
    victim.await_ready(5, "victim");
    tenant.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    drop(listener);
    victim.kubectl(&["delete", "vm", "--all", "--timeout=300s"]);
    until_nothing_is_left(60, "sockets that are none");
}
