//! A real cluster with Disklet installed: `script/lib/kube/installed.sh` starts
//! it, runs these tests and ends it.

pub(crate) mod guests;
pub(crate) mod images;
pub(crate) mod pods;
pub(crate) mod storage;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cluster's own directory.
pub(crate) fn cluster_directory() -> PathBuf {
    let directory = std::env::var("DISKLET_KUBE_DIR");
    directory
        .expect("script/lib/kube/installed.sh runs this")
        .into()
}

/// What a command says; it must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    assert_success(command, &output);
    String::from_utf8(output.stdout).expect("the output is text")
}

fn assert_success(command: &Command, output: &Output) {
    assert!(
        output.status.success(),
        "{command:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs something on a node.
pub(crate) fn on_node(node: &str, command: &[&str]) -> String {
    run(Command::new(repository().join("script/kube"))
        .args(["exec", node])
        .args(command))
}

/// Until one looks again: what has taken long may take a little longer. To ask kubectl takes
/// a tenth of a second of a processor, which guests would have used.
pub(crate) fn pause(begun: Instant) {
    let pause = begun.elapsed() / 8;
    std::thread::sleep(pause.clamp(Duration::from_millis(100), Duration::from_secs(1)));
}

/// Whether a test has waited long enough. The seconds are what an idle machine needs at most;
/// one that has other work to do takes longer, and what is waited for is not how fast it is.
pub(crate) fn is_too_long(begun: Instant, seconds: u64) -> bool {
    begun.elapsed() >= 3 * Duration::from_secs(seconds)
}

/// Waits until there is an answer. What is waited for is named in the failure.
pub(crate) fn until<T>(seconds: u64, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(!is_too_long(begun, seconds), "not in {seconds} s: {what}");
        pause(begun);
    }
}

/// A finalizer of a test: what has ended is still to be seen.
const SEEN: &str = "disklet.test/seen";

/// A namespace of a test's own, which goes with it.
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// As whom kubectl is asked; absent: as the cluster's administrator.
    account: Option<String>,
}

/// What tenants may do, in their own namespace.
const TENANT: &str = r#"---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant}
rules:
- apiGroups: [disklet.io]
  resources: [vms]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, secrets, services]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [endpoints, events, pods, pods/log]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: tenant}]
"#;

impl Tenant {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        run(Command::new("kubectl").args(["create", "namespace", &name]));
        Self {
            name,
            account: None,
        }
    }

    /// Runs kubectl in Disklet's own namespace, which stays.
    pub(crate) fn apply_to_disklet(manifest: &str) {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(["-n", "disklet"]);
        let (applied, told) = try_apply(kubectl, manifest);
        assert!(applied, "{told}\n{manifest}");
    }

    /// One who has rights in its namespace, and nowhere else.
    pub(crate) fn with_own_rights(name: &str) -> Self {
        let mut tenant = Self::new(name);
        tenant.apply(TENANT);
        let account = format!("--as=system:serviceaccount:{}:tenant", tenant.name);
        tenant.account = Some(account);
        tenant
    }

    fn command(&self) -> Command {
        let mut command = Command::new("kubectl");
        command.args(["-n", &self.name]).args(&self.account);
        command
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        run(self.command().args(arguments))
    }

    /// What it says, whether or not it succeeds.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command().args(arguments).output();
        let output = output.expect("kubectl starts");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    pub(crate) fn apply(&self, manifest: &str) {
        let (done, told) = self.try_apply(manifest);
        assert!(done, "{told}\n{manifest}");
    }

    /// What kubectl says to a manifest, whether or not it is taken.
    pub(crate) fn try_apply(&self, manifest: &str) -> (bool, String) {
        try_apply(self.command(), manifest)
    }

    /// One field of an object; nothing if there is no such thing.
    pub(crate) fn field(&self, object: &str, path: &str) -> Option<String> {
        let path = format!("jsonpath={{{path}}}");
        let (found, text) = self.try_kubectl(&["get", object, "-o", &path]);
        (found && !text.is_empty()).then_some(text)
    }

    pub(crate) fn await_field(&self, seconds: u64, object: &str, path: &str, wanted: &str) {
        let what = || {
            format!(
                "{object}{path} is {:?}, not {wanted:?}\n{}",
                self.field(object, path),
                self.told(object)
            )
        };
        let begun = Instant::now();
        while self.field(object, path).as_deref() != Some(wanted) {
            assert!(
                !is_too_long(begun, seconds),
                "not in {seconds} s: {}",
                what()
            );
            pause(begun);
        }
    }

    /// What the guest wrote to its console, as `kubectl logs` has it.
    pub(crate) fn await_console(&self, seconds: u64, vm: &str, wanted: &str) -> String {
        let mut last = String::new();
        let begun = Instant::now();
        while !last.contains(wanted) {
            assert!(
                !is_too_long(begun, seconds),
                "in {seconds} s {vm} has not written {wanted:?}:\n{last}\n{}",
                self.told(&format!("vm/{vm}"))
            );
            pause(begun);
            last = self.try_kubectl(&["logs", vm]).1;
        }
        last
    }

    fn told(&self, object: &str) -> String {
        let object = self.try_kubectl(&["get", object, "-o", "yaml"]).1;
        let events = self.try_kubectl(&["get", "events"]).1;
        format!("{object}\n{events}")
    }
}

/// What kubectl says to a manifest, and whether it is taken.
fn try_apply(mut kubectl: Command, manifest: &str) -> (bool, String) {
    kubectl.args(["apply", "-f", "-"]);
    kubectl
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = kubectl.spawn().expect("kubectl starts");
    let mut stdin = child.stdin.take().expect("there is a pipe");
    stdin.write_all(manifest.as_bytes()).expect("kubectl reads");
    drop(stdin);
    let output = child.wait_with_output().expect("kubectl ends");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

impl Tenant {
    /// For whoever reads why a test has failed: what it has left, and what was said of it.
    fn tell_all(&self) {
        for what in [["pods,vms,events", "wide"], ["pods", "yaml"]] {
            let (_, told) = self.try_kubectl(&["get", what[0], "-o", what[1]]);
            let _ = writeln!(std::io::stderr(), "{told}");
        }
    }

    /// Pods that wait until a test has seen their end, which it will not: it has failed. What
    /// others still have to do about them stays.
    fn let_pods_go(&self) {
        let (_, pods) = self.try_kubectl(&["get", "pods", "-o", "name"]);
        for pod in pods.lines() {
            let finalizers = self.field(pod, ".metadata.finalizers");
            let finalizers: Option<Vec<String>> =
                finalizers.and_then(|it| serde_json::from_str(&it).ok());
            let mut left = finalizers.unwrap_or_default();
            left.retain(|it| it != SEEN);
            let patch = serde_json::json!({"metadata": {"finalizers": left}});
            self.try_kubectl(&["patch", pod, "--type=merge", "-p", &patch.to_string()]);
        }
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell_all();
            self.let_pods_go();
        }
        let _ = Command::new("kubectl")
            .args(["delete", "namespace", &self.name, "--wait=false"])
            .output();
        // What is not in the namespace has its name.
        let _ = Command::new("kubectl")
            .args(["delete", "pv,storageclass,csidriver", "--wait=false"])
            .args(["-l", &format!("tenant={}", self.name)])
            .output();
    }
}
