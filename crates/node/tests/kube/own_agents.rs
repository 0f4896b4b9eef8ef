//! Agents of a test's own, in the place of the cluster's: they can be killed where the test
//! wants it (`crates/node/src/cut.rs`).

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::kube::guests::NODE;
use super::kube::{on_node, repository, run, until};
use super::world::{kill, pod_of, processes};

/// While it is there, the node has no agent but those of this test.
pub(crate) struct WithoutAgent;

impl WithoutAgent {
    pub(crate) fn new() -> Self {
        select("\"yes\"");
        until(60, "the agent is gone", || {
            processes("disklet-node agent ").is_empty().then_some(())
        });
        let dir = directory();
        let program = format!("{dir}/shared/disklet-node");
        run(Command::new("cp").args([env!("CARGO_BIN_EXE_disklet-node"), &program]));
        let flat = ["config", "view", "--raw", "--flatten"];
        let flat = run(Command::new("kubectl").args(flat));
        std::fs::write(format!("{dir}/shared/kubeconfig"), flat).expect("a file can be written");
        Self
    }
}

impl Drop for WithoutAgent {
    fn drop(&mut self) {
        for left in processes("disklet-node agent ") {
            kill(&left);
        }
        select("null");
        if !std::thread::panicking() {
            pod_of("agent");
        }
    }
}

/// Has agents run on nodes with a label that none has, or on all.
fn select(value: &str) {
    let selector = format!("{{\"nodeSelector\":{{\"disklet.io/nowhere\":{value}}}}}");
    let patch = format!("{{\"spec\":{{\"template\":{{\"spec\":{selector}}}}}}}");
    run(Command::new("kubectl")
        .args(["-n", "disklet", "patch", "daemonset", "disklet-agent"])
        .args(["--type", "merge", "-p", &patch]));
}

fn directory() -> String {
    std::env::var("DISKLET_KUBE_DIR").expect("script/lib/kube/installed.sh runs this")
}

/// An agent of this test, on the node itself.
pub(crate) struct Agent {
    process: Child,
    log: String,
}

impl Agent {
    pub(crate) fn start(cut: &str) -> Self {
        let shared = format!("{}/shared", directory());
        let log = format!("{shared}/agent.log");
        let file = std::fs::File::create(&log).expect("a log can be written");
        let process = Command::new(repository().join("script/kube"))
            .args(["exec", NODE, "env"])
            .args([
                &format!("DISKLET_CUT={cut}"),
                &format!("KUBECONFIG={shared}/kubeconfig"),
            ])
            // As other agents are called, whose first word is their name.
            .args(["bash", "-c", "exec -a disklet-node \"$@\"", "bash"])
            .args([&format!("{shared}/disklet-node"), "agent", "--node", NODE])
            .args(["--namespace", "disklet"])
            .args(["--qemu-run", "/run/disklet/libvirt/qemu"])
            .args([
                "--connect",
                "qemu+unix:///system?socket=/run/disklet/libvirt/libvirt-sock",
            ])
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a log can be shared"))
            .stderr(file)
            .spawn()
            .expect("script/kube starts");
        Self { process, log }
    }

    /// Waits until it was cut; where. Nothing if that does not happen, and
    /// `done` does instead.
    pub(crate) fn cut(&mut self, mut done: impl FnMut() -> bool) -> Option<String> {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let ended = self.process.try_wait().expect("it can be waited for");
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            let cut = said.lines().find_map(|line| line.strip_prefix("cut: "));
            if let (Some(_), Some(cut)) = (ended, cut) {
                return Some(cut.to_owned());
            }
            assert!(ended.is_none(), "the agent has ended: {said}");
            if done() {
                return None;
            }
            assert!(Instant::now() < end, "neither cut nor done: {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends it as its pod's end does; VMs run on.
    pub(crate) fn stop(mut self) {
        for agent in processes("disklet-node agent ") {
            on_node(NODE, &["kill", "-TERM", &agent]);
        }
        self.process.wait().expect("it ends");
    }
}
