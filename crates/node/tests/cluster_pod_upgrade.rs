//! Agents and libvirt are replaced under VM pods that run, as an upgrade does.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;

use kube::guests::{NODE, have_small_guest};
use kube::pods::{delete_pod, restarts, vm_pod};
use kube::{Tenant, on_node, run, until};
use world::{alone, pod_of, replace_pod, until_nothing_is_left};

const POD: &str = "lasting";

fn disklet(arguments: &[&str]) -> String {
    run(Command::new("kubectl")
        .args(["-n", "disklet"])
        .args(arguments))
}

/// QEMU's process, and when it was started: numbers are used again.
fn qemu(tenant: &Tenant) -> (String, String) {
    let pid = tenant.qemu(&format!("{POD}-vm")).expect("QEMU runs");
    let stat = on_node(NODE, &["cat", &format!("/proc/{pid}/stat")]);
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let started = fields.split(' ').nth(19).expect("a time");
    (pid, started.to_owned())
}

fn ticks(tenant: &Tenant) -> usize {
    tenant.kubectl(&["logs", POD]).matches("TICK").count()
}

fn await_ticks(tenant: &Tenant) {
    let before = ticks(tenant);
    until(30, "the guest goes on", || {
        (ticks(tenant) > before + 2).then_some(())
    });
}

/// What the pod says of itself: two conditions, each with the time since when.
fn standing(tenant: &Tenant) -> [Option<String>; 2] {
    ["Ready", "disklet.io/running"].map(|condition| {
        let path = format!(
            ".status.conditions[?(@.type==\"{condition}\")]['status','lastTransitionTime']"
        );
        tenant.field(&format!("pod/{POD}"), &path)
    })
}

/// Agents go to nodes with this label only; to all if there is none.
fn have_agents_where(label: &str) {
    let patch = format!("{{\"spec\":{{\"template\":{{\"spec\":{{\"nodeSelector\":{label}}}}}}}}}");
    let patch = [
        "patch",
        "daemonset/disklet-agent",
        "--type=merge",
        "-p",
        &patch,
    ];
    disklet(&patch);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_pod_outlives_agents_and_libvirt() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("upgraded");
    let guest = ["(while :; do echo TICK; sleep 1; done) &", "stay"];
    tenant.apply(&vm_pod(POD, "", &guest));
    tenant.await_console(180, POD, "GUEST-READY");
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    tenant.await_field(60, &format!("pod/{POD}"), ready, "True");
    let (before, stands) = (qemu(&tenant), standing(&tenant));
    let is_as_before = |when: &str| {
        await_ticks(&tenant);
        assert_eq!(qemu(&tenant), before, "{when}");
        assert_eq!(standing(&tenant), stands, "{when}");
        assert_eq!(restarts(&tenant, POD), 0, "{when}");
    };

    // As an upgrade does it: another template, another pod.
    let old = pod_of("agent");
    disklet(&["rollout", "restart", "daemonset/disklet-agent"]);
    disklet(&[
        "rollout",
        "status",
        "daemonset/disklet-agent",
        "--timeout=300s",
    ]);
    assert_ne!(pod_of("agent"), old);
    is_as_before("another agent");
    replace_pod("libvirt");
    assert_eq!(tenant.domain_state(&format!("{POD}-vm")), "running");
    is_as_before("another libvirt");
    // Nobody is needed for a VM to run on.
    have_agents_where("{\"disklet.io/no-node\":\"has-this\"}");
    until(120, "there is no agent", || {
        let agents = [
            "get",
            "pods",
            "-l",
            "disklet.io/component=agent",
            "-o",
            "name",
        ];
        disklet(&agents).is_empty().then_some(())
    });
    replace_pod("libvirt");
    is_as_before("no agent");
    have_agents_where("{\"disklet.io/no-node\":null}");
    pod_of("agent");
    is_as_before("an agent again");

    let about = format!("involvedObject.name={POD},reason=Started");
    let events = [
        "get",
        "events",
        "--field-selector",
        &about,
        "-o",
        "jsonpath={.items[*].message}",
    ];
    let started = tenant.kubectl(&events);
    assert_eq!(
        started.matches("the guest runs on node").count(),
        1,
        "{started}"
    );
    delete_pod(&tenant, POD);
    until_nothing_is_left(60, "a VM pod whose agent and libvirt were replaced");
}
