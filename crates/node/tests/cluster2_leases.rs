//! Storage that two nodes reach has those users that agree. Needs a cluster with two
//! nodes in which Disklet is installed.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[allow(dead_code, reason = "others need the rest")]
#[path = "kube/network.rs"]
mod network;
#[path = "kube/two_nodes.rs"]
mod two_nodes;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;

use kube::storage::{Folder, Iscsi, claim, disk};
use kube::{Tenant, on_node, repository, run, until};
use network::NbdSocket;
use two_nodes::{
    NODES, agent_of, delete, have_idle_guests, holders, on_all, only_on, replace_agent,
    still_waits, until_held_by, until_runs, until_waits, vm,
};
use world::{idle_vm, tell};

fn script_kube(arguments: &[&str]) {
    run(Command::new(repository().join("script/kube")).args(arguments));
}

fn controllers() -> Vec<(String, String)> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{\"\\n\"}{end}";
    let pods = ["-n", "disklet", "get", "pods", "-l"];
    let of_ours = "disklet.io/component=controller";
    let found = run(Command::new("kubectl")
        .args(pods)
        .args([of_ours, "-o", path]));
    let split = |line: &str| {
        line.split_once(' ')
            .map(|(pod, node)| (pod.into(), node.into()))
    };
    found.lines().filter_map(split).collect()
}

/// Of the two controllers, that of this node works.
fn lead_from(node: &str) {
    let lease = ["-n", "disklet", "get", "lease", "disklet-controller"];
    let holder = ["-o", "jsonpath={.spec.holderIdentity}"];
    until(180, &format!("the controller of {node} leads"), || {
        let leader = run(Command::new("kubectl").args(lease).args(holder));
        let controllers = controllers();
        let leads = |(pod, _): &&(String, String)| leader.contains(pod.as_str());
        let (pod, on) = controllers.iter().find(leads)?;
        let [one, other] = controllers.as_slice() else {
            return None;
        };
        if on == node && one.1 != other.1 {
            return Some(());
        }
        // The other one works then, and where there is none another comes.
        run(Command::new("kubectl").args(["-n", "disklet", "delete", "pod", pod]));
        None
    });
}

/// One VM writes, whichever claim or source leads there, and on whichever node. Who
/// waits learns of its own namespace's VMs only, and starts when the other is off.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_unit_has_one_writer_on_two_nodes() {
    have_idle_guests();
    let (tenant, stranger) = (Tenant::new("lease"), Tenant::new("stranger"));
    let server = Iscsi::start(&tenant);
    only_on("node1");
    tenant.apply(&vm("first", "Never", &server, ""));
    until_runs(&tenant, "first", "node1");
    until_held_by(10, &[("first", "node1")]);

    only_on("node2");
    let volume = server.open_volume_for_all();
    tenant.apply(&claim(&tenant, "unit", "Block", &volume));
    tenant.apply(&format!(
        "{}{}",
        idle_vm("second", "Never"),
        disk("unit", "")
    ));
    let why = until_waits(&tenant, "second");
    let first = format!("is in use by VM {}/first on node node1", tenant.name);
    assert!(why.contains(&first), "{why}");
    assert!(why.contains("iscsi unit "), "{why}");
    stranger.apply(&vm("third", "Never", &server, ""));
    let why = until_waits(&stranger, "third");
    assert!(
        why.contains("is in use by a VM of another namespace"),
        "{why}"
    );
    assert!(
        !why.contains("first") && !why.contains(&tenant.name),
        "{why}"
    );
    let told = tenant.kubectl(&["get", "events", "--field-selector=reason=StorageInUse"]);
    assert!(told.contains("vm/second"), "{told}");
    delete(&stranger, "third");

    // Agents come and go; who holds and who waits stays so.
    let before = holders();
    NODES.iter().for_each(|node| replace_agent(node));
    until_waits(&tenant, "second");
    assert_eq!(holders(), before);

    let begun = std::time::Instant::now();
    delete(&tenant, "first");
    until_runs(&tenant, "second", "node2");
    tell(&format!(
        "the second ran {:.1} s after the first was deleted",
        begun.elapsed().as_secs_f32()
    ));
    until_held_by(10, &[("second", "node2")]);

    // A QEMU that is killed writes no more.
    only_on("node1");
    tenant.apply(&vm("fourth", "Never", &server, ""));
    until_waits(&tenant, "fourth");
    on_node(
        "node2",
        &[
            "sh",
            "-c",
            "kill -KILL $(cat /run/disklet/libvirt/qemu/*-second.pid)",
        ],
    );
    until_runs(&tenant, "fourth", "node1");
    until_held_by(10, &[("fourth", "node1")]);
    delete(&tenant, "second");
    delete(&tenant, "fourth");
    until_held_by(30, &[]);
    on_all();
}

/// Those who agree are there together, on both nodes; a writer waits for all of them.
#[test]
#[ignore = "needs a cluster: script/test"]
fn those_who_agree_share_a_unit() {
    have_idle_guests();
    let tenant = Tenant::new("agreed");
    let server = Iscsi::start(&tenant);
    for access in ["read-shared", "write-shared"] {
        let more = format!(", access-mode: {access}");
        for (name, node) in [("one", "node1"), ("two", "node2")] {
            only_on(node);
            tenant.apply(&vm(name, "Never", &server, &more));
            until_runs(&tenant, name, node);
        }
        until_held_by(10, &[("one", "node1"), ("two", "node2")]);
        tenant.apply(&vm("writer", "Never", &server, ""));
        until_waits(&tenant, "writer");
        delete(&tenant, "one");
        still_waits(&tenant, "writer", 3);
        delete(&tenant, "two");
        until_runs(&tenant, "writer", "node2");
        delete(&tenant, "writer");
        until_held_by(30, &[]);
    }
    on_all();
}

/// What a guest wrote over a master is worth nothing over another one. So while its VM may
/// come back, nobody writes to the master, however long its guest is off.
#[test]
#[ignore = "needs a cluster: script/test"]
fn what_an_overlay_stands_on_is_kept_until_its_pod_is_gone() {
    have_idle_guests();
    let tenant = Tenant::new("below");
    let folder = Folder::new(&tenant);
    let server = Iscsi::start(&tenant);
    // Without this one the guest cannot start again.
    let needed = NbdSocket::start(&tenant, &folder);
    only_on("node1");
    let over = vm("over", "Always", &server, ", copy: {mode: copy-on-write}");
    let and_needed = format!(
        "      - {{source: {{{}}}, serial: needed}}\n",
        needed.source()
    );
    tenant.apply(&format!("{over}{and_needed}"));
    until_runs(&tenant, "over", "node1");
    until_held_by(10, &[("over", "node1")]);
    drop(needed);
    let qemu = "/run/disklet/libvirt/qemu/*-over.pid";
    let kill = format!("kill -KILL $(cat {qemu})");
    on_node("node1", &["sh", "-c", &kill]);
    let look = format!("ls {qemu} 2>/dev/null || true");
    let is_off = || on_node("node1", &["sh", "-c", &look]).trim().is_empty();
    until(120, "the guest is off, and cannot start", || {
        let ready = tenant.condition("over", "Ready", "status")?;
        (ready == "False" && is_off()).then_some(())
    });

    only_on("node2");
    tenant.apply(&vm("writer", "Never", &server, ""));
    let why = until_waits(&tenant, "writer");
    let holder = format!("is in use by VM {}/over on node node1", tenant.name);
    assert!(why.contains(&holder), "{why}");
    // Its launcher is started again and again meanwhile.
    still_waits(&tenant, "writer", 30);
    assert!(is_off(), "it has been started");
    until_held_by(1, &[("over", "node1")]);
    replace_agent("node1");
    still_waits(&tenant, "writer", 10);
    until_held_by(1, &[("over", "node1")]);

    delete(&tenant, "over");
    until_runs(&tenant, "writer", "node2");
    until_held_by(10, &[("writer", "node2")]);
    delete(&tenant, "writer");
    until_held_by(30, &[]);
    on_all();
}

/// A node that is cut off may still write. Only an administrator knows that it does not.
/// It takes the controller that worked along: the other one goes on.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_lost_node_keeps_its_storage_until_somebody_says_that_it_is_off() {
    have_idle_guests();
    let tenant = Tenant::new("fence");
    let server = Iscsi::start(&tenant);
    lead_from("node2");
    for way in ["taint", "deletion"] {
        only_on("node2");
        tenant.apply(&vm("lost", "Never", &server, ""));
        until_runs(&tenant, "lost", "node2");
        script_kube(&["kill", "node2", "machine"]);
        only_on("node1");
        tenant.apply(&vm("heir", "Never", &server, ""));
        until_waits(&tenant, "heir");
        // Nor does it help that nobody wants the VM any more.
        tenant.kubectl(&["delete", "vm", "lost", "--wait=false"]);
        tenant.kubectl(&[
            "delete",
            "pod",
            "lost",
            "--force",
            "--grace-period=0",
            "--wait=false",
        ]);
        still_waits(&tenant, "heir", 10);
        until_held_by(1, &[("lost", "node2")]);
        match way {
            "taint" => {
                let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
                run(Command::new("kubectl").args(["taint", "node", "node2", taint]));
            }
            _ => drop(run(
                Command::new("kubectl").args(["delete", "node", "node2"])
            )),
        }
        until_runs(&tenant, "heir", "node1");
        until_held_by(10, &[("heir", "node1")]);
        if way == "taint" {
            let taint = "node.kubernetes.io/out-of-service-";
            run(Command::new("kubectl").args(["taint", "node", "node2", taint]));
        }
        script_kube(&["up"]);
        let link = ["ln", "-sfn", "/run/disklet/libvirt", "/run/libvirt"];
        on_node("node2", &link);
        until(240, "the node has an agent again", || agent_of("node2"));
        // It comes back without taking anything from anybody.
        until_held_by(10, &[("heir", "node1")]);
        delete(&tenant, "heir");
        until_held_by(30, &[]);
    }
    on_all();
}
