//! The controller as a process, with no more rights than it should have.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::cluster::{eventually, kubectl, kubectl_with};

pub(crate) struct Controller {
    child: Child,
    port: u16,
    /// Where its webhook listens; 0 if it has none.
    pub(crate) webhook: u16,
}

impl Controller {
    /// One that leads.
    pub(crate) fn start() -> Self {
        let controller = Self::with(&["--lease-seconds=3"]);
        eventually("the controller leads", || {
            controller.leads() && controller.is_ready()
        });
        controller
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let log = scratch().join(format!("controller-{port}.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_disklet"))
            .args([
                "controller",
                "--launcher-image=example.com/disklet",
                "--namespace",
                NAMESPACE,
            ])
            .arg(format!("--listen=127.0.0.1:{port}"))
            .args(args)
            .env("KUBECONFIG", kubeconfig())
            .env(
                "DISKLET_LOG",
                "debug,hyper=info,tower=info,kube_client=info",
            )
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            port,
            webhook: 0,
        }
    }

    fn ask(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn metrics(&self) -> String {
        self.ask("/metrics").unwrap_or_default()
    }

    pub(crate) fn leads(&self) -> bool {
        self.metrics().contains("\ndisklet_controller_leader 1\n")
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ask("/readyz")
            .is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// One number.
    pub(crate) fn metric(&self, name: &str) -> Option<String> {
        let metrics = self.metrics();
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
        lines
            .find_map(|rest| rest.strip_prefix(' '))
            .map(str::to_owned)
    }

    /// Whether API servers have asked it.
    pub(crate) fn has_refused(&self) -> bool {
        let name = "disklet_controller_webhook_requests_total{outcome=\"refused\"}";
        self.metric(name).is_some_and(|count| count != "0")
    }

    /// All writes that it has made, sorted, in one line.
    pub(crate) fn writes(&self) -> String {
        let metrics = self.metrics();
        let mut writes: Vec<_> = metrics
            .lines()
            .filter_map(|line| {
                let labels = line.strip_prefix("disklet_controller_writes_total{")?;
                let (labels, count) = labels.split_once("} ")?;
                let values: Vec<_> = labels.split('"').skip(1).step_by(2).collect();
                Some(format!("{} {count}", values.join(" ")))
            })
            .collect();
        writes.sort();
        writes.join(", ")
    }

    /// As a power cut ends it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As the kubelet ends it.
    pub(crate) fn end(mut self) {
        self.terminate();
    }

    fn terminate(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            let pid = Pid::from_child(&self.child);
            kill_process(pid, Signal::TERM).unwrap();
            let code = self.child.wait().unwrap();
            assert!(code.success() || std::thread::panicking(), "{code}");
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.terminate();
    }
}

/// Where its Lease and its Secret are.
pub(crate) const NAMESPACE: &str = "disklet-controller-test";

/// In the cluster's own directory: another cluster has another account.
fn scratch() -> PathBuf {
    // script/lib/kube/bare.sh says where.
    let cluster = std::env::var_os("DISKLET_KUBE_DIR").unwrap();
    let directory = PathBuf::from(cluster).join("controllers");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// What an installation gives to the controller, and nothing else of it.
fn rights() -> String {
    let mut disklet = Command::new(env!("CARGO_BIN_EXE_disklet"));
    disklet.args(["install", "--namespace", NAMESPACE]);
    let installed = String::from_utf8(disklet.output().unwrap().stdout).unwrap();
    let rights = installed.split("\n---\n").filter(|document| {
        let is = |kind: &str| document.contains(&format!("\nkind: {kind}\n"));
        let is_right = is("ServiceAccount")
            || ["Role", "RoleBinding"]
                .iter()
                .any(|kind| is(kind) || is(&format!("Cluster{kind}")));
        is_right && document.contains("\n  name: disklet-controller\n")
    });
    let rights: Vec<_> = rights.collect();
    assert_eq!(rights.len(), 5, "{rights:?}");
    rights.join("\n---\n")
}

/// The controller's namespace, account and rights are there.
pub(crate) fn have_rights() {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    kubectl_with(&["apply", "-f", "-"], &namespace.to_string());
    kubectl_with(&["apply", "-f", "-"], &rights());
}

/// A kubeconfig for an account that has these rights and no others.
fn kubeconfig() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        have_rights();
        let config = kubectl(&[
            "config",
            "view",
            "--raw",
            "--minify",
            "--flatten",
            "-o",
            "json",
        ]);
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["users"][0]["user"] = json!({"token": token()});
        let path = scratch().join("kubeconfig");
        fs::write(&path, config.to_string()).unwrap();
        path
    });
    made.clone()
}

/// Clusters up to 1.23 make a Secret with it.
fn token() -> String {
    let mut token = String::new();
    eventually("the account has a token", || {
        let template = "{{range .items}}{{if eq .type \"kubernetes.io/service-account-token\"}}{{index .metadata.annotations \"kubernetes.io/service-account.name\"}} {{.data.token}}\n{{end}}{{end}}";
        let secrets = kubectl(&[
            "-n",
            NAMESPACE,
            "get",
            "secrets",
            "-o",
            &format!("go-template={template}"),
        ]);
        let mut lines = secrets.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(account, _)| *account == "disklet-controller");
        let decode = |text: &str| base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text);
        if let Some((_, encoded)) = found {
            token = String::from_utf8(decode(encoded).unwrap()).unwrap();
        }
        !token.is_empty()
    });
    token
}
