//! A cluster with two nodes, and a unit that both reach.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::kube::storage::Iscsi;
use super::kube::{Tenant, cluster_directory, on_node, run, until};
use super::world::{have_idle_guest, idle_vm};

pub(crate) const NODES: [&str; 2] = ["node1", "node2"];

/// VMs that come from now on come to this node.
pub(crate) fn only_on(node: &str) {
    for other in NODES {
        let verb = if other == node { "uncordon" } else { "cordon" };
        run(Command::new("kubectl").args([verb, other]));
    }
}

pub(crate) fn have_idle_guests() {
    have_idle_guest();
    let path = |name: &str| cluster_directory().join("shared").join(name);
    let (disklet, file) = (path("disklet"), path("idle.img"));
    let (disklet, file) = (disklet.display().to_string(), file.display().to_string());
    let image = "virtlet.cloud/idle";
    on_node(
        NODES[1],
        &[&disklet, "images", "pull", image, "--from", &file],
    );
}

/// They come to any node again.
pub(crate) fn on_all() {
    run(Command::new("kubectl").arg("uncordon").args(NODES));
}

/// A VM with the server's unit, as a source of its own.
pub(crate) fn vm(name: &str, policy: &str, server: &Iscsi, more: &str) -> String {
    let source = server.open_source();
    format!(
        "{}      - {{source: {{{source}}}, serial: unit{more}}}\n",
        idle_vm(name, policy)
    )
}

/// What the one lease says of its holders; nothing if there is none.
pub(crate) fn holders() -> Vec<Value> {
    let leases = [
        "-n",
        "disklet",
        "get",
        "leases",
        "-l",
        "disklet.io/lease=storage",
    ];
    let leases = run(Command::new("kubectl").args(leases).args(["-o", "json"]));
    let leases: Value = serde_json::from_str(&leases).expect("JSON");
    let leases = leases["items"].as_array().expect("a list");
    assert!(leases.len() < 2, "{leases:?}");
    let content = leases
        .first()
        .map(|lease| &lease["metadata"]["annotations"]["disklet.io/lease"]);
    let content = content.map(|text| serde_json::from_str(text.as_str().expect("it has one")));
    let content: Option<Value> = content.map(|content| content.expect("JSON"));
    content.map_or(Vec::new(), |content| {
        content["holders"].as_array().expect("a list").clone()
    })
}

pub(crate) fn until_held_by(seconds: u64, wanted: &[(&str, &str)]) {
    until(seconds, &format!("{wanted:?} hold the unit"), || {
        let holders = holders();
        let mut held: Vec<_> = holders
            .iter()
            .filter_map(|it| Some((it["name"].as_str()?, it["node"].as_str()?)))
            .collect();
        held.sort_unstable();
        (held == wanted).then_some(())
    });
}

pub(crate) fn until_runs(tenant: &Tenant, vm: &str, node: &str) {
    tenant.await_field(120, &format!("vm/{vm}"), ".status.phase", "Running");
    let on = tenant.field(&format!("vm/{vm}"), ".status.node");
    assert_eq!(on.as_deref(), Some(node), "{vm}");
}

/// Why a VM waits.
pub(crate) fn until_waits(tenant: &Tenant, vm: &str) -> String {
    let reason = ".status.conditions[?(@.type==\"DisksReady\")].reason";
    tenant.await_field(120, &format!("vm/{vm}"), reason, "StorageInUse");
    tenant.await_field(10, &format!("vm/{vm}"), ".status.phase", "Pending");
    tenant
        .condition(vm, "DisksReady", "message")
        .expect("a message")
}

/// Time frees nothing.
pub(crate) fn still_waits(tenant: &Tenant, vm: &str, seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
    let reason = tenant.condition(vm, "DisksReady", "reason");
    assert_eq!(reason.as_deref(), Some("StorageInUse"), "{vm}");
}

pub(crate) fn delete(tenant: &Tenant, vm: &str) {
    tenant.kubectl(&["delete", "vm", vm, "--timeout=300s"]);
}

pub(crate) fn agent_of(node: &str) -> Option<String> {
    let pods = [
        "-n",
        "disklet",
        "get",
        "pods",
        "-l",
        "disklet.io/component=agent",
    ];
    let field = format!("--field-selector=spec.nodeName={node}");
    let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp} {.status.conditions[?(@.type==\"Ready\")].status}{end}";
    let found = run(Command::new("kubectl")
        .args(pods)
        .args([&field, "-o", path]));
    let name = found.strip_suffix("  True")?;
    Some(name.to_owned())
}

/// Another agent takes over.
pub(crate) fn replace_agent(node: &str) {
    let old = until(60, "there is an agent", || agent_of(node));
    run(Command::new("kubectl").args(["-n", "disklet", "delete", "pod", &old]));
    until(180, "there is another agent", || {
        agent_of(node).filter(|new| *new != old)
    });
}
