//! What is on the node and in the cluster because of VMs, and tests that disturb
//! everybody else's.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::kube::guests::{NODE, have_image};
use super::kube::{Tenant, cluster_directory, is_too_long, on_node, pause, repository, run, until};

/// Everything that VMs leave while they are there. Names of VMs are in most lines.
const LOOK: &str = r#"
virsh -q -c qemu:///system list --all --name | sed '/^$/d; s/^/domain /'
virsh -q -c qemu:///system secret-list | sed '/^$/d; s/^/secret /'
virsh -q -c qemu:///system pool-list --all --name | sed '/^$/d; s/^/pool /'
for made in vms volumes cloud-init ceph uefi; do
    [ ! -e "/var/lib/disklet/$made" ] || find "/var/lib/disklet/$made" -mindepth 1
done
[ ! -e /run/disklet/vms ] || find /run/disklet/vms -mindepth 1
grep -o ' /run/disklet/vms/[^ ]*' /proc/self/mountinfo || true
for qemu in $(grep -la -e '^/usr/bin/qemu-system' -e '^\(/usr/bin/\)\?qemu-storage-daemon' /proc/[0-9]*/cmdline 2>/dev/null || true); do
    tr '\0' ' ' <"$qemu" | sed 's/^/process /' || true
done"#;

/// What VMs have left; nothing when all of them are gone.
pub(crate) fn left() -> String {
    let on_the_node = on_node(NODE, &["sh", "-c", LOOK]);
    let pods = ["get", "pods", "-A", "-l", "disklet.io/vm", "-o", "name"];
    let pods = run(Command::new("kubectl").args(pods));
    let name = "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}";
    let leases = run(Command::new("kubectl").args(["-n", "disklet", "get", "leases", "-o", name]));
    let leases = leases.lines().filter(|it| *it != "disklet-controller");
    let leases: String = leases.map(|it| format!("lease {it}\n")).collect();
    format!("{on_the_node}{pods}{leases}")
}

/// Nothing is left of any VM.
pub(crate) fn until_nothing_is_left(seconds: u64, of: &str) {
    until_none_is_left(seconds, of, |_| true);
}

/// Nothing is left of VMs whose names have this in them, whatever others do.
pub(crate) fn until_nothing_is_left_of(seconds: u64, vm: &str) {
    until_none_is_left(seconds, vm, |line| line.contains(vm));
}

fn until_none_is_left(seconds: u64, of: &str, is_of: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let left = left();
        let left: Vec<_> = left.lines().filter(|line| is_of(line)).collect();
        if left.is_empty() {
            return;
        }
        assert!(
            !is_too_long(begun, seconds),
            "after {seconds} s something is left of {of}:\n{}",
            left.join("\n")
        );
        pause(begun);
    }
}

static ALONE: Mutex<()> = Mutex::new(());

/// For a test that disturbs VMs of others: nobody else is there.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    assert!(
        std::env::var_os("DISKLET_TEST_BESIDE").is_none(),
        "script/lib/kube/alone has to name this test: it runs beside others"
    );
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    until_nothing_is_left(120, "earlier tests");
    alone
}

/// A guest that does nothing: its disk is blank, and the BIOS gives up.
pub(crate) fn have_idle_guest() {
    let file = cluster_directory().join("shared/idle.img");
    run(Command::new("truncate").args(["-s", "1M"]).arg(&file));
    have_image("idle", &file);
}

/// A VM that does nothing, and that goes soon.
pub(crate) fn idle_vm(name: &str, policy: &str) -> String {
    format!(
        "apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 2
  domain:
    memory: 32Mi
    devices:
      disks:
      - source: {{image: {{name: virtlet.cloud/idle}}}}
"
    )
}

impl Tenant {
    /// A condition's field, such as `status`.
    pub(crate) fn condition(&self, vm: &str, condition: &str, field: &str) -> Option<String> {
        let path = format!(".status.conditions[?(@.type==\"{condition}\")].{field}");
        self.field(&format!("vm/{vm}"), &path)
    }

    /// The VM runs, says so, and its guest does not stand still.
    pub(crate) fn await_ready(&self, seconds: u64, vm: &str) {
        let path = ".status.conditions[?(@.type==\"Ready\")].status";
        self.await_field(seconds, &format!("vm/{vm}"), path, "True");
        self.await_field(10, &format!("vm/{vm}"), ".status.phase", "Running");
        assert_eq!(self.domain_state(vm), "running", "{vm} is Ready");
    }

    /// The VM's domain has the UUID before its name.
    pub(crate) fn domain_state(&self, vm: &str) -> String {
        let state =
            "domain=$(virsh -q -c qemu:///system list --all --name | grep -e \"-$1\\$\") || exit 0
            virsh -q -c qemu:///system domstate \"$domain\"";
        on_node(NODE, &["sh", "-c", state, "sh", vm])
            .trim()
            .to_owned()
    }

    /// The VM's QEMU.
    pub(crate) fn qemu(&self, vm: &str) -> Option<String> {
        let pid = "cat /run/disklet/libvirt/qemu/*-$1.pid 2>/dev/null || true";
        let pid = on_node(NODE, &["sh", "-c", pid, "sh", vm]);
        let pid = pid.trim();
        (!pid.is_empty()).then(|| pid.to_owned())
    }
}

/// For whoever runs the tests, also if they succeed.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "  {text}");
}

/// The processes on the node whose command line begins like this.
pub(crate) fn processes(beginning: &str) -> Vec<String> {
    // Between two words there is a zero.
    let beginning = format!("^{}", beginning.replace(' ', "."));
    let find = "cd /proc && grep -la \"$1\" [0-9]*/cmdline 2>/dev/null || true";
    let found = on_node(NODE, &["sh", "-c", find, "sh", &beginning]);
    let found = found
        .lines()
        .filter_map(|line| line.strip_suffix("/cmdline"));
    found.map(str::to_owned).collect()
}

/// Kills a process of the node.
pub(crate) fn kill(process: &str) {
    on_node(NODE, &["kill", "-KILL", process]);
}

/// The pod of a part of Disklet, once it is ready.
pub(crate) fn pod_of(component: &str) -> String {
    let what = format!("the pod of {component} is ready");
    until(180, &what, || {
        let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp} {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
        let label = format!("disklet.io/component={component}");
        let output = Command::new("kubectl")
            .args(["-n", "disklet", "get", "pods", "-l", &label, "-o", path])
            .output()
            .expect("kubectl starts");
        let pods = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = pods.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut ready = words.filter(|words| words[1..] == ["", "True"]);
        ready.next().map(|words| words[0].to_owned())
    })
}

/// Deletes the pod of a part of Disklet, and waits for the next.
pub(crate) fn replace_pod(component: &str) {
    let old = pod_of(component);
    run(Command::new("kubectl").args(["-n", "disklet", "delete", "pod", &old]));
    until(180, "there is another pod", || {
        (pod_of(component) != old).then_some(())
    });
}

/// What the tests of a matrix are chosen by: all of them, or some by the commit.
pub(crate) fn seed() -> Option<u64> {
    (!all_is_wanted()).then(commit)
}

/// Whether all that could be tested shall be.
pub(crate) fn all_is_wanted() -> bool {
    std::env::var_os("DISKLET_ALL_KILLS").is_some()
}

/// A number that the commit decides.
pub(crate) fn commit() -> u64 {
    let commit = run(Command::new("git")
        .arg("-C")
        .arg(repository())
        .args(["rev-parse", "HEAD"]));
    u64::from_str_radix(&commit[..8], 16).expect("a commit has digits")
}

/// Numbers that only their seed decides.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        // Xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("a number") % end
    }

    /// The same things in another order.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}
