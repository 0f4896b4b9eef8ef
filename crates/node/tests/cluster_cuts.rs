//! The agent killed at every boundary between two steps of a launcher's VM, and of
//! its end: the next agent finishes it, or undoes it.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::guests::NODE;
use kube::{Tenant, on_node, repository, run, until};
use world::{
    alone, have_idle_guest, idle_vm, kill, pod_of, processes, seed, tell, until_nothing_is_left,
};

/// A guard against an agent that never gets to its end.
const MOST: u32 = 40;
/// Where QEMU is there and nobody has let it run, and around that.
const OF_LAUNCHERS: [&str; 4] = [
    "before ExposeSocket",
    "before StartDomain",
    "before JoinLauncher",
    "before ResumeDomain",
];

/// While it is there, the node has no agent but those of this test.
struct WithoutAgent;

impl WithoutAgent {
    fn new() -> Self {
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
struct Agent {
    process: Child,
    log: String,
}

impl Agent {
    fn start(cut: &str) -> Self {
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
    fn cut(&mut self, mut done: impl FnMut() -> bool) -> Option<String> {
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
    fn stop(mut self) {
        for agent in processes("disklet-node agent ") {
            on_node(NODE, &["kill", "-TERM", &agent]);
        }
        self.process.wait().expect("it ends");
    }
}

fn is_gone(tenant: &Tenant, vm: &str) -> bool {
    !tenant.try_kubectl(&["get", "vm", vm]).0
}

fn is_ready(tenant: &Tenant, vm: &str) -> bool {
    tenant.condition(vm, "Ready", "status").as_deref() == Some("True")
}

/// Applies a VM, kills its agent there, and has the next one go on. Where it was
/// killed; nothing if it got to its end.
fn cut_in_create(tenant: &Tenant, vm: &str, cut: &str, is_wanted: bool) -> Option<String> {
    let begun = Instant::now();
    let mut agent = Agent::start(cut);
    tenant.apply(&idle_vm(vm, "OnFailure"));
    let place = agent.cut(|| is_ready(tenant, vm));
    match &place {
        Some(place) => {
            // Nobody has said that it runs, whatever QEMU does.
            assert!(!is_ready(tenant, vm), "{place}: Ready");
            if !is_wanted {
                tenant.kubectl(&["delete", "vm", vm, "--wait=false"]);
            }
        }
        // The end has boundaries of its own.
        None => agent.stop(),
    }
    let agent = Agent::start("");
    if is_wanted || place.is_none() {
        tenant.await_ready(60, vm);
        tenant.kubectl(&["delete", "vm", vm, "--timeout=60s"]);
    }
    until(60, &format!("{place:?}: the VM is gone"), || {
        is_gone(tenant, vm).then_some(())
    });
    agent.stop();
    let what = format!("agent cut {place:?} ({cut}), VM wanted: {is_wanted}");
    until_nothing_is_left(30, &what);
    tell(&format!("{what}: {:.1} s", begun.elapsed().as_secs_f32()));
    place
}

/// Deletes a VM that runs, kills its agent there, and has the next one go on.
fn cut_in_delete(tenant: &Tenant, vm: &str, boundary: &str) -> Option<String> {
    let first = Agent::start("");
    tenant.apply(&idle_vm(vm, "OnFailure"));
    tenant.await_ready(60, vm);
    first.stop();
    let mut agent = Agent::start(boundary);
    tenant.kubectl(&["delete", "vm", vm, "--wait=false"]);
    let place = agent.cut(|| is_gone(tenant, vm));
    if place.is_some() {
        assert!(!is_gone(tenant, vm), "gone before all is freed: {place:?}");
        agent = Agent::start("");
    }
    until(60, "the VM is gone", || is_gone(tenant, vm).then_some(()));
    agent.stop();
    let what = format!("agent cut {place:?} ({boundary}) in delete");
    until_nothing_is_left(30, &what);
    tell(&what);
    place
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn an_agent_that_was_killed_between_steps_is_followed_by_one_that_goes_on() {
    let _alone = alone();
    have_idle_guest();
    let without = WithoutAgent::new();
    let tenant = Tenant::new("cuts");
    match seed() {
        None => all(&tenant),
        Some(seed) => some(&tenant, seed),
    }
    drop(without);
}

fn all(tenant: &Tenant) {
    let mut places = Vec::new();
    for is_wanted in [true, false] {
        let boundaries = 1..MOST;
        let cut = |boundary: u32| {
            let vm = format!("cut-{boundary}-{is_wanted}");
            cut_in_create(tenant, &vm, &boundary.to_string(), is_wanted)
        };
        places.extend(boundaries.map_while(cut));
    }
    for place in OF_LAUNCHERS {
        let times = places.iter().filter(|cut| *cut == place).count();
        assert!(times >= 2, "cut {times} times {place}: {places:?}");
    }
    let deleting = (1..MOST).map_while(|boundary| {
        let vm = format!("cut-delete-{boundary}");
        cut_in_delete(tenant, &vm, &boundary.to_string())
    });
    let deleting: Vec<_> = deleting.collect();
    assert!(deleting.contains(&"Forgetting".to_owned()), "{deleting:?}");
}

fn some(tenant: &Tenant, seed: u64) {
    // The last one leaves QEMU paused in its launcher's cgroup: always.
    let last = OF_LAUNCHERS[3];
    let chosen = OF_LAUNCHERS[usize::try_from(seed % 3).expect("a small number")];
    for (vm, place, is_wanted) in [("cut-last", last, true), ("cut-chosen", chosen, false)] {
        let cut = cut_in_create(tenant, vm, place, is_wanted);
        assert_eq!(cut.as_deref(), Some(place));
    }
    let removing = (1 + seed % 5).to_string();
    assert!(cut_in_delete(tenant, "cut-delete", &removing).is_some());
}
