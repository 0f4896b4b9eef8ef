//! What `disklet install` gives to a real cluster: a libvirt whose pod may go, the
//! definition of VM objects as an API server takes it, and rights that end where
//! docs/rbac.md says.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "VMs need the rest")]
mod kube;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output, Stdio};

use kube::guests::{delete, have_small_guest, vm};
use kube::{Tenant, on_node, repository, run, until};

const NODE: &str = "node1";
const VIRSH: [&str; 4] = ["virsh", "-q", "-c", "qemu:///system"];

fn virsh(arguments: &[&str]) -> String {
    on_node(NODE, &[&VIRSH, arguments].concat())
}

fn kubectl(arguments: &[&str]) -> String {
    run(Command::new("kubectl").args(arguments))
}

/// The pod of libvirt, once it answers.
fn libvirt_pod() -> String {
    until(120, "the pod of libvirt is ready", || {
        let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp} {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
        let selector = ["-l", "disklet.io/component=libvirt", "-o", path];
        let pods = kubectl(&[&["-n", "disklet", "get", "pods"], &selector[..]].concat());
        let words = pods.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut ready = words.filter(|words| words[1..] == ["", "True"]);
        ready.next().map(|words| words[0].to_owned())
    })
}

/// Starts a machine without disks, which does nothing, and tells its process.
fn start_probe(name: &str) -> String {
    let domain = format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>\
         <os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features></domain>"
    );
    let file = format!("/run/{name}.xml");
    on_node(
        NODE,
        &["sh", "-c", &format!("echo \"$1\" >{file}"), "sh", &domain],
    );
    virsh(&["create", "--paused", &file]);
    let pid = on_node(
        NODE,
        &["cat", &format!("/run/disklet/libvirt/qemu/{name}.pid")],
    );
    pid.trim().to_owned()
}

/// Moves a process out of the cgroup that it has from its container.
const MOVE: &str = r#"
for file in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs); do
    own=${file%/cgroup.procs}/probe
    mkdir -p "$own"
    for set in cpuset.cpus cpuset.mems; do
        [ ! -e "$own/$set" ] || cat "$own/../$set" >"$own/$set"
    done
    echo "$1" >"$own/cgroup.procs"
done"#;

fn lives(pid: &str) -> bool {
    let alive = "[ -e /proc/$1/exe ] && echo yes || echo no";
    on_node(NODE, &["sh", "-c", alive, "sh", pid]).trim() == "yes"
}

/// Whether a process sees what the node mounts where disks are shown.
fn sees_new_mounts(pid: &str) -> bool {
    let mount = r#"
mkdir -p /run/disklet/probe
mount -t tmpfs probe /run/disklet/probe
touch /run/disklet/probe/seen
[ -e "/proc/$1/root/run/disklet/probe/seen" ] && echo yes || echo no
umount /run/disklet/probe
rmdir /run/disklet/probe"#;
    on_node(NODE, &["sh", "-ec", mount, "sh", pid]).trim() == "yes"
}

/// The runtime kills what is in the container's cgroup, the kubelet what is in the
/// pod's; a machine that was moved out of both stays, and the next libvirtd has it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_machine_outlives_the_pod_of_libvirt_once_it_is_moved() {
    let first = libvirt_pod();
    let (moved, left) = (start_probe("moved"), start_probe("left"));
    on_node(NODE, &["sh", "-ec", MOVE, "sh", &moved]);
    kubectl(&["-n", "disklet", "delete", "pod", &first]);
    let second = libvirt_pod();
    assert_ne!(first, second);
    assert!(lives(&moved), "the machine that was moved has ended");
    assert!(!lives(&left), "nothing ends a machine that was not moved");
    let pid = on_node(NODE, &["cat", "/run/disklet/libvirt/qemu/moved.pid"]);
    assert_eq!(pid.trim(), moved);
    assert_eq!(virsh(&["domstate", "moved"]).trim(), "paused");
    assert!(
        sees_new_mounts(&moved),
        "what is mounted now is not seen by the machine"
    );
    virsh(&["resume", "moved"]);
    assert_eq!(virsh(&["domstate", "moved"]).trim(), "running");
    virsh(&["destroy", "moved"]);
    assert!(!lives(&moved));
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn qemu_runs_as_a_user_of_its_own_on_the_nodes_network() {
    libvirt_pod();
    let pid = start_probe("whoami");
    let status = on_node(NODE, &["cat", &format!("/proc/{pid}/status")]);
    let uid = status.lines().find(|line| line.starts_with("Uid:"));
    assert_eq!(uid.expect("a user"), "Uid:\t64055\t64055\t64055\t64055");
    let links = "readlink /proc/$1/ns/net /proc/1/ns/net | uniq | wc -l";
    assert_eq!(on_node(NODE, &["sh", "-c", links, "sh", &pid]).trim(), "1");
    virsh(&["destroy", "whoami"]);
}

/// Applies a part of a VM's status, as `manager`.
fn apply_status(tenant: &Tenant, manager: &str, condition: &str) {
    let object = format!(
        "{{\"apiVersion\": \"disklet.io/v1alpha1\", \"kind\": \"VM\", \"status\": {{\"conditions\": [{{\
         \"type\": \"{condition}\", \"status\": \"True\", \"reason\": \"Tested\", \"message\": \"tested\", \
         \"lastTransitionTime\": \"2026-01-01T00:00:00Z\"}}]}}}}"
    );
    let config = kubectl(&[
        "config",
        "view",
        "--raw",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ]);
    let dir = std::env::var("DISKLET_KUBE_DIR").expect("script/lib/kube/installed.sh runs this");
    let token = std::fs::read_to_string(format!("{dir}/token")).expect("a token");
    let url = format!(
        "{config}/apis/disklet.io/v1alpha1/namespaces/{}/vms/two/status?fieldManager={manager}&force=true",
        tenant.name
    );
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "--fail-with-body",
        "--cacert",
        &format!("{dir}/pki/ca.crt"),
        "-X",
        "PATCH",
    ]);
    curl.args(["-H", &format!("Authorization: Bearer {}", token.trim())]);
    curl.args([
        "-H",
        "Content-Type: application/apply-patch+yaml",
        "-d",
        &object,
        &url,
    ]);
    run(&mut curl);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn conditions_of_two_writers_stay() {
    let tenant = Tenant::new("writers");
    tenant.apply("---\n{apiVersion: disklet.io/v1alpha1, kind: VM, metadata: {name: two}, spec: {running: false, domain: {}}}");
    apply_status(&tenant, "one", "First");
    apply_status(&tenant, "other", "Second");
    apply_status(&tenant, "one", "First");
    let types = tenant.field("vm/two", ".status.conditions[*].type");
    let types = types.expect("there are conditions");
    let found = |wanted: &str| types.split(' ').any(|found| found == wanted);
    assert!(found("First") && found("Second"), "{types}");
}

/// The API server keeps what it does not know, or nobody could refuse it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn unknown_fields_are_kept() {
    let tenant = Tenant::new("unknown");
    let dry = ["apply", "--dry-run=server", "-o", "json", "-f", "-"];
    let vm = "---\n{apiVersion: disklet.io/v1alpha1, kind: VM, metadata: {name: vm}, spec: {runing: true, domain: {\
        memory: {value: 1, unti: GiB}, cpu: 2, devices: {disks: [{source: {image: {name: a, nmae: b}}, sreial: 1}]}}}}";
    let mut kubectl = Command::new("sh");
    kubectl.args(["-c", "echo \"$1\" | kubectl -n \"$2\" \"$3\" \"$4\" \"$5\" \"$6\" \"$7\" \"$8\" --validate=false"]);
    kubectl.args(["sh", vm, &tenant.name]).args(dry);
    let Output { stdout, stderr, .. } = kubectl.output().expect("kubectl starts");
    let told = [stdout, stderr].concat();
    let told = String::from_utf8_lossy(&told);
    for unknown in ["runing", "unti", "nmae", "sreial"] {
        assert!(told.contains(unknown), "{unknown} was dropped: {told}");
    }
}

const WRONG: &str = "---\n{apiVersion: disklet.io/v1alpha1, kind: VM, metadata: {name: wrong}, spec: {running: false, domain: {memory: 1Mi}}}";

/// What kubectl says to it, and whether it was taken.
fn try_apply(tenant: &Tenant, manifest: &str) -> (bool, String) {
    let mut kubectl = Command::new("sh");
    kubectl.args(["-c", "echo \"$1\" | kubectl -n \"$2\" apply -f - 2>&1"]);
    kubectl.args(["sh", manifest, &tenant.name]);
    let output = kubectl.output().expect("kubectl starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), said)
}

/// By the Service, with certificates that nobody has made by hand. Without a
/// controller VM objects are taken, and refused when it is back.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_bad_vm_is_refused_unless_nobody_is_there() {
    let tenant = Tenant::new("judged");
    let refusal = until(60, "the webhook answers", || {
        let (taken, said) = try_apply(&tenant, WRONG);
        tenant.try_kubectl(&["delete", "vm", "wrong", "--ignore-not-found"]);
        (!taken).then_some(said)
    });
    for wanted in [
        "admission webhook \"vms.disklet.io\" denied the request: ",
        "spec.domain.memory: too little memory for a VM (found: \"1Mi\"",
    ] {
        assert!(refusal.contains(wanted), "{wanted}: {refusal}");
    }
    let scale = |replicas: &str| {
        kubectl(&[
            "-n",
            "disklet",
            "scale",
            "deployment/disklet-controller",
            replicas,
        ]);
    };
    scale("--replicas=0");
    let taken = std::panic::catch_unwind(|| {
        until(120, "a VM is taken while nobody is there", || {
            try_apply(&tenant, WRONG).0.then_some(())
        });
    });
    scale("--replicas=1");
    assert!(taken.is_ok(), "no VM can be written without a controller");
    tenant.await_field(
        120,
        "vm/wrong",
        ".status.conditions[?(@.type==\"Accepted\")].reason",
        "Refused",
    );
    let why = tenant.field(
        "vm/wrong",
        ".status.conditions[?(@.type==\"Accepted\")].message",
    );
    let why = why.unwrap_or_default();
    assert!(refusal.contains(&why), "{why}\n{refusal}");
}

/// As a program of the cluster would be asked.
fn may(account: &str, what: &str) -> bool {
    let who = format!("--as=system:serviceaccount:disklet:disklet-{account}");
    let mut kubectl = Command::new("kubectl");
    kubectl
        .args(["auth", "can-i"])
        .args(what.split(' '))
        .arg(who);
    kubectl.stderr(Stdio::null());
    let answer = kubectl.output().expect("kubectl starts").stdout;
    String::from_utf8_lossy(&answer).trim() == "yes"
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn nobody_may_do_more_than_is_written() {
    let for_nobody = [
        "list secrets --all-namespaces",
        "watch secrets --all-namespaces",
        "update pods",
        "create pods --subresource=exec",
        "delete vms.disklet.io",
        "create vms.disklet.io",
        "delete nodes",
        "create clusterrolebindings",
        "update daemonsets.apps -n disklet",
        "patch validatingwebhookconfigurations/other",
        "impersonate users",
        "get nodes --subresource=proxy",
    ];
    for account in ["controller", "agent", "libvirt"] {
        for what in for_nobody {
            assert!(!may(account, what), "{account} may {what}");
        }
    }
    for (account, may_do, may_not) in [
        ("controller", "create pods", "get secrets -n kube-system"),
        (
            "controller",
            "patch vms.disklet.io --subresource=status",
            "patch nodes",
        ),
        (
            "controller",
            "get leases.coordination.k8s.io/disklet-controller -n disklet",
            "get configmaps",
        ),
        (
            "controller",
            "update secrets/disklet-webhook -n disklet",
            "get secrets/other -n disklet",
        ),
        (
            "controller",
            "patch validatingwebhookconfigurations/disklet-webhook",
            "update validatingwebhookconfigurations/disklet-webhook",
        ),
        ("agent", "get secrets -n kube-system", "create pods"),
        (
            "agent",
            "patch vms.disklet.io --subresource=status",
            "patch vms.disklet.io",
        ),
        ("agent", "patch pods --subresource=status", "delete pods"),
        ("agent", "patch pods --subresource=status", "patch pods"),
        // For VM pods that slipped past the webhook.
        ("controller", "patch pods", "delete nodes"),
    ] {
        assert!(may(account, may_do), "{account} may not {may_do}");
        assert!(!may(account, may_not), "{account} may {may_not}");
    }
}

/// Resource, names and verb.
type Right = (String, String, String);

/// What `kubectl auth can-i --list` says, in Disklet's own namespace.
fn listed(account: &str) -> BTreeSet<Right> {
    let who = format!("--as=system:serviceaccount:disklet:{account}");
    let list = kubectl(&[
        "auth",
        "can-i",
        "--list",
        "--no-headers",
        "-n",
        "disklet",
        &who,
    ]);
    let mut rights = BTreeSet::new();
    for line in list.lines() {
        let (resource, rest) = line.split_once('[').expect("a list");
        let lists: Vec<_> = rest
            .split('[')
            .map(|list| list.trim_end().trim_end_matches(']'))
            .collect();
        let [_, names, verbs] = lists[..] else {
            panic!("{line}");
        };
        for verb in verbs
            .split_whitespace()
            .filter(|_| !resource.trim().is_empty())
        {
            rights.insert((
                resource.trim().to_owned(),
                names.to_owned(),
                verb.to_owned(),
            ));
        }
    }
    rights
}

/// What docs/rbac.md says, in the words of kubectl.
fn documented(account: &str) -> BTreeSet<Right> {
    let document = repository().join("docs/rbac.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let (_, section) = document
        .split_once(&format!("\n## {account}\n"))
        .expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut rights = BTreeSet::new();
    for row in section
        .lines()
        .filter(|line| line.starts_with("| cluster") || line.starts_with("| namespace"))
    {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let mut words = cells[2].split('`').skip(1).step_by(2);
        let resource = words.next().expect("a resource");
        let names: Vec<_> = words.collect();
        // A group has a dot in it, and comes after the resource for kubectl.
        let resource = match resource.split_once('/') {
            Some((group, resource)) if group.contains('.') => match resource.split_once('/') {
                Some((resource, part)) => format!("{resource}.{group}/{part}"),
                None => format!("{resource}.{group}"),
            },
            _ => resource.to_owned(),
        };
        for verb in cells[3].split(", ") {
            rights.insert((resource.clone(), names.join(" "), verb.to_owned()));
        }
    }
    rights
}

/// What everybody may, and then what is written, no more and no less.
#[test]
#[ignore = "needs a cluster: script/test"]
fn rights_are_those_that_are_written() {
    let everybodys = listed("disklet-libvirt");
    assert!(
        everybodys
            .iter()
            .all(|(resource, ..)| resource.starts_with("selfsubject")),
        "{everybodys:?}"
    );
    for account in ["disklet-controller", "disklet-agent"] {
        let own: BTreeSet<_> = listed(account).difference(&everybodys).cloned().collect();
        assert_eq!(own, documented(account), "{account}");
    }
}

/// The metrics that sections of docs/metrics.md name, with their types, and whether
/// they have labels: those may not have been needed yet.
fn metrics_of(sections: &[&str]) -> BTreeMap<(String, String), bool> {
    let document = repository().join("docs/metrics.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let mut metrics = BTreeMap::new();
    for section in sections {
        let (_, section) = document
            .split_once(&format!("\n## {section}\n"))
            .expect("a section");
        let section = section.split("\n## ").next().unwrap_or_default();
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let has_labels = cells.len() > 5 && !cells[3].is_empty();
            for name in cells[1].split('`').skip(1).step_by(2) {
                metrics.insert((name.to_owned(), cells[2].to_owned()), has_labels);
            }
        }
    }
    metrics
}

/// Those that a program serves.
fn served(page: &str) -> BTreeSet<(String, String)> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let types = types.map(|line| {
        let (name, kind) = line.split_once(' ').expect("a type");
        let ending = if kind == "counter" { "_total" } else { "" };
        (format!("{name}{ending}"), kind.to_owned())
    });
    types.collect()
}

fn assert_served(page: &str, sections: &[&str]) {
    let (served, written) = (served(page), metrics_of(sections));
    let unwritten: Vec<_> = served
        .iter()
        .filter(|metric| !written.contains_key(metric))
        .collect();
    assert!(unwritten.is_empty(), "not in the table: {unwritten:?}");
    let missing = written
        .iter()
        .filter(|(metric, has_labels)| !served.contains(metric) && !**has_labels);
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "not served: {missing:?}\n{page}");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn metrics_are_those_that_are_written() {
    let agent = on_node(
        NODE,
        &["curl", "-sS", "--fail", "http://127.0.0.1:9473/metrics"],
    );
    assert_served(&agent, &["All programs", "disklet-node agent"]);
    let addresses = "jsonpath={.items[*].status.podIP}";
    let label = "disklet.io/component=controller";
    // Another test has it go for a while.
    let controller = until(90, "the controller serves its metrics", || {
        let found = kubectl(&["-n", "disklet", "get", "pods", "-l", label, "-o", addresses]);
        let address = found.split(' ').next_back()?;
        let url = format!("http://{address}:8080/metrics");
        let curl = Command::new("curl").args(["-sS", "--fail", &url]).output();
        let served = curl.expect("curl starts");
        let text = String::from_utf8_lossy(&served.stdout).into_owned();
        served.status.success().then_some(text)
    });
    assert_served(&controller, &["All programs", "disklet controller"]);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn uninstall_refuses_while_a_vm_is_on_a_node() {
    have_small_guest();
    let tenant = Tenant::new("in-the-way");
    tenant.apply(&vm("guest", "", &["stay"]));
    tenant.await_field(60, "pod/guest", ".status.phase", "Running");
    let dir = std::env::var("DISKLET_KUBE_DIR").expect("script/lib/kube/installed.sh runs this");
    let mut disklet = Command::new(format!("{dir}/shared/disklet"));
    let output = disklet.arg("uninstall").output().expect("disklet starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("{}/guest", tenant.name)), "{told}");
    assert_eq!(output.stdout, b"", "something was done");
    libvirt_pod();
    delete(&tenant, "guest");
}

/// All VMs of the repository are VMs for the API server.
#[test]
#[ignore = "needs a cluster: script/test"]
fn examples_are_taken() {
    let tenant = Tenant::new("examples");
    for example in ["10-vm-object", "11-network-disks"] {
        let file = repository().join(format!("examples/{example}/vm.yaml"));
        let file = file.to_str().expect("a path");
        tenant.kubectl(&["apply", "--dry-run=server", "-f", file]);
    }
}
