//! Agents that do not reach what they need: the API server, or libvirt.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;
use std::time::{Duration, Instant};

use kube::guests::{self, NODE, have_small_guest};
use kube::{Tenant, on_node, run, until};
use world::{alone, pod_of, processes, tell, until_nothing_is_left};

/// Packets from the node to the API server come to nothing, and nobody is told so.
struct Silence(String);

impl Silence {
    fn new() -> Self {
        let address = "jsonpath={.subsets[0].addresses[0].ip}";
        let endpoints = [
            "-n",
            "default",
            "get",
            "endpoints",
            "kubernetes",
            "-o",
            address,
        ];
        let silence = Self(run(Command::new("kubectl").args(endpoints)));
        silence.iptables("-I");
        silence
    }

    fn iptables(&self, how: &str) {
        let rule = ["OUTPUT", "-d", &self.0, "-j", "DROP"];
        on_node(NODE, &[&["iptables", "-w", how], &rule[..]].concat());
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.iptables("-D");
    }
}

/// The launcher says stop while the agent waits for an answer that does not come: the
/// guest is asked to switch itself off all the same, and does.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_guest_ends_in_time_while_the_api_server_is_silent() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("silent");
    tenant.apply(&guests::vm("silent", "", &["stay"]));
    tenant.await_console(180, "silent", "GUEST-READY");
    tenant.await_ready(30, "silent");
    let launchers = processes("disklet launch ");
    assert_eq!(launchers.len(), 1);
    let silence = Silence::new();
    // Something to write: an event, and a status.
    for verb in ["suspend", "resume"] {
        let change =
            "virsh -q -c qemu:///system \"$1\" \"$(virsh -q -c qemu:///system list --name)\"";
        on_node(NODE, &["sh", "-ec", change, "sh", verb]);
    }
    std::thread::sleep(Duration::from_secs(3));
    let begun = Instant::now();
    on_node(NODE, &["kill", "-TERM", &launchers[0]]);
    until(24, "the guest has switched itself off", || {
        tenant.qemu("silent").is_none().then_some(())
    });
    tell(&format!(
        "the guest is off after {:.1} s without an API server",
        begun.elapsed().as_secs_f32()
    ));
    // By itself, not by force.
    until(20, "the launcher ends", || {
        processes("disklet launch ").is_empty().then_some(())
    });
    drop(silence);
    tenant.await_field(120, "vm/silent", ".status.phase", "Succeeded");
    let how = tenant.condition("silent", "Launched", "reason");
    assert_eq!(how.as_deref(), Some("SwitchedOff"));
    tenant.kubectl(&["delete", "vm", "silent", "--timeout=300s"]);
    until_nothing_is_left(60, "a VM that ended in silence");
}

fn is_ready(component: &str) -> bool {
    let label = format!("disklet.io/component={component}");
    let path = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
    let pods = ["-n", "disklet", "get", "pods", "-l", &label, "-o", path];
    run(Command::new("kubectl").args(pods)) == "True"
}

/// The libvirt of all nodes is away, as no node is chosen for it.
struct WithoutLibvirt;

impl WithoutLibvirt {
    fn new() -> Self {
        Self::select("\"yes\"");
        Self
    }

    fn select(value: &str) {
        let selector = format!("{{\"nodeSelector\":{{\"disklet.test/away\":{value}}}}}");
        let change = format!("{{\"spec\":{{\"template\":{{\"spec\":{selector}}}}}}}");
        let libvirt = ["-n", "disklet", "patch", "daemonset", "disklet-libvirt"];
        let how = ["--type=merge", "-p", &change];
        run(Command::new("kubectl").args(libvirt).args(how));
    }
}

impl Drop for WithoutLibvirt {
    fn drop(&mut self) {
        Self::select("null");
    }
}

/// Without libvirt no VM can be had here: an administrator sees it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn an_agent_without_libvirt_is_not_ready() {
    let _alone = alone();
    let (agent, _) = (pod_of("agent"), pod_of("libvirt"));
    let without_libvirt = WithoutLibvirt::new();
    until(120, "the agent is not ready", || {
        (!is_ready("agent")).then_some(())
    });
    drop(without_libvirt);
    until(120, "the agent is ready again", || {
        is_ready("agent").then_some(())
    });
    assert_eq!(pod_of("agent"), agent, "it is the same agent");
    pod_of("libvirt");
}
