//! Every cell of the table of access and copy modes, on one node, against every other on
//! the second: which run together, and which waits. Needs a cluster with two nodes in which
//! Disklet is installed.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/two_nodes.rs"]
mod two_nodes;
#[path = "kube/world.rs"]
mod world;

use std::time::Instant;

use kube::Tenant;
use kube::storage::{Iscsi, claim, disk};
use two_nodes::{
    delete, have_idle_guests, on_all, only_on, still_waits, until_held_by, until_runs, until_waits,
    vm,
};
use world::{idle_vm, tell};

/// A cell that is not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Exclusive,
    WriteShared,
    ReadShared,
    OnWrite,
    OnRead,
    Cloned,
}

use Cell::{Cloned, Exclusive, OnRead, OnWrite, ReadShared, WriteShared};

const CELLS: [Cell; 6] = [Exclusive, WriteShared, ReadShared, OnWrite, OnRead, Cloned];

impl Cell {
    /// Its access mode, and its copy mode.
    fn modes(self) -> (&'static str, &'static str) {
        match self {
            Exclusive => ("write-exclusive", "none"),
            WriteShared => ("write-shared", "none"),
            ReadShared => ("read-shared", "none"),
            OnWrite => ("read-shared", "copy-on-write"),
            OnRead => ("read-shared", "copy-on-read"),
            Cloned => ("read-shared", "clone"),
        }
    }

    /// The name of its VM as the second one.
    fn challenger(self) -> &'static str {
        match self {
            Exclusive => "cell-exclusive",
            WriteShared => "cell-write-shared",
            ReadShared => "cell-read-shared",
            OnWrite => "cell-on-write",
            OnRead => "cell-on-read",
            Cloned => "cell-clone",
        }
    }

    fn vm(self, name: &str, server: &Iscsi) -> String {
        let (access, copy) = self.modes();
        vm(name, "Never", server, &cell(access, copy))
    }

    /// As SEMANTICS.md has it: while the first one runs, which has its master no more if it
    /// is a clone.
    fn lets_in(self, other: Self) -> bool {
        match self {
            Exclusive => false,
            WriteShared => other == WriteShared,
            ReadShared | OnWrite | OnRead => !matches!(other, Exclusive | WriteShared),
            Cloned => true,
        }
    }
}

fn cell(access: &str, copy: &str) -> String {
    format!(", access-mode: {access}, copy: {{mode: {copy}}}")
}

/// Has some come to the second node while one is on the first, and go again.
fn challenge(tenant: &Tenant, server: &Iscsi, first: Cell, others: &[Cell]) {
    let all: Vec<_> = others
        .iter()
        .map(|other| other.vm(other.challenger(), server))
        .collect();
    tenant.apply(&all.join("---\n"));
    let (run, wait): (Vec<Cell>, Vec<Cell>) = others
        .iter()
        .copied()
        .partition(|other| first.lets_in(*other));
    let holder = format!("is in use by VM {}/", tenant.name);
    for other in &wait {
        let why = until_waits(tenant, other.challenger());
        assert!(why.contains(&holder), "{first:?}, {other:?}: {why}");
    }
    let mut held = vec![("holder", "node1")];
    held.retain(|_| first != Cloned);
    for other in &run {
        until_runs(tenant, other.challenger(), "node2");
        if *other != Cloned {
            held.push((other.challenger(), "node2"));
        }
    }
    held.sort_unstable();
    until_held_by(10, &held);
    for other in &wait {
        still_waits(tenant, other.challenger(), 0);
    }
    let names = others.iter().map(|other| other.challenger());
    let deleted: Vec<_> = ["delete", "vm", "--timeout=300s"]
        .into_iter()
        .chain(names)
        .collect();
    tenant.kubectl(&deleted);
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn every_cell_meets_every_other() {
    have_idle_guests();
    let tenant = Tenant::new("cells");
    let server = Iscsi::start(&tenant);
    for first in CELLS {
        let begun = Instant::now();
        only_on("node1");
        tenant.apply(&first.vm("holder", &server));
        until_runs(&tenant, "holder", "node1");
        only_on("node2");
        match first {
            // Nobody is kept away by it, so those come together who keep nobody away either.
            Cloned => {
                challenge(&tenant, &server, first, &[Exclusive]);
                challenge(&tenant, &server, first, &[WriteShared]);
                challenge(
                    &tenant,
                    &server,
                    first,
                    &[ReadShared, OnWrite, OnRead, Cloned],
                );
            }
            _ => challenge(&tenant, &server, first, &CELLS),
        }
        delete(&tenant, "holder");
        until_held_by(30, &[]);
        tell(&format!(
            "{first:?}: {:.1} s",
            begun.elapsed().as_secs_f32()
        ));
    }
    on_all();
}

/// What has no meaning is refused before anything is made of it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn copies_that_would_write_their_master_are_refused_at_once() {
    let tenant = Tenant::new("no-cells");
    let server = Iscsi::start(&tenant);
    for access in ["write-exclusive", "write-shared"] {
        for copy in ["copy-on-write", "copy-on-read", "clone"] {
            let (taken, told) =
                tenant.try_apply(&vm("no-cell", "Never", &server, &cell(access, copy)));
            assert!(!taken, "{access}, {copy}: {told}");
            let why = format!("a copy does not write its master, so {access} has no meaning");
            assert!(told.contains(&why), "{access}, {copy}: {told}");
        }
    }
    assert_eq!(tenant.kubectl(&["get", "vms", "-o", "name"]), "");
}

/// Two claims of two namespaces, and the volumes that an administrator has made for them,
/// lead to one unit. Nobody learns who else has it.
#[test]
#[ignore = "needs a cluster: script/test"]
fn claims_of_two_namespaces_that_lead_to_one_unit_collide() {
    have_idle_guests();
    let (one, other) = (Tenant::new("claims-one"), Tenant::new("claims-other"));
    let server = Iscsi::start(&one);
    let volume = server.open_volume_for_all();
    for (tenant, vm, node) in [(&one, "has-it", "node1"), (&other, "wants-it", "node2")] {
        only_on(node);
        tenant.apply(&claim(tenant, "unit", "Block", &volume));
        tenant.apply(&format!("{}{}", idle_vm(vm, "Never"), disk("unit", "")));
        if vm == "has-it" {
            until_runs(tenant, vm, node);
        }
    }
    let why = until_waits(&other, "wants-it");
    let hidden = "is in use by a VM of another namespace";
    assert!(why.contains(hidden), "{why}");
    let told = other.kubectl(&["get", "events", "-o", "yaml"]);
    let status = other.kubectl(&["get", "vm", "wants-it", "-o", "yaml"]);
    assert!(told.contains(hidden), "{told}");
    for text in [why, told, status] {
        assert!(
            !text.contains("has-it") && !text.contains(&one.name),
            "{text}"
        );
    }
    delete(&one, "has-it");
    until_runs(&other, "wants-it", "node2");
    delete(&other, "wants-it");
    until_held_by(30, &[]);
    on_all();
}
