//! A node that the cluster does not hear of any more, while its guest writes on. Needs a
//! cluster with two nodes in which Disklet is installed.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/history.rs"]
mod history;
#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/two_nodes.rs"]
mod two_nodes;
#[path = "kube/world.rs"]
mod world;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use history::{RECORD, check, so_far};
use kube::guests::{have_small_guest, have_small_guest_on, vm};
use kube::storage::Iscsi;
use kube::{Tenant, on_node, run, until};
use two_nodes::{delete, on_all, only_on, still_waits, until_held_by, until_runs, until_waits};

const NODE: &str = "node2";

/// What the node sends to the API server gets lost.
struct CutOff(String);

impl CutOff {
    fn new() -> Self {
        let endpoints = ["-n", "default", "get", "endpoints", "kubernetes"];
        let address = ["-o", "jsonpath={.subsets[0].addresses[0].ip}"];
        let cut = Self(run(Command::new("kubectl").args(endpoints).args(address)));
        cut.iptables("-I");
        cut
    }

    fn iptables(&self, how: &str) {
        let rule = ["OUTPUT", "-d", &self.0, "-j", "DROP"];
        on_node(NODE, &[&["iptables", "-w", how], &rule[..]].concat());
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        self.iptables("-D");
    }
}

/// Pods go to one node only, until this goes.
struct OnlyOn;

impl OnlyOn {
    fn node(name: &str) -> Self {
        only_on(name);
        Self
    }
}

impl Drop for OnlyOn {
    fn drop(&mut self) {
        on_all();
    }
}

fn cluster_hears_of_node() -> bool {
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    run(Command::new("kubectl").args(["get", "node", NODE, "-o", ready])) == "True"
}

/// Whatever the cluster thinks of the node, and whatever becomes of the objects: nobody
/// else writes as long as its guest does. When the node hears of it, the guest ends, and
/// the next one goes on behind what it wrote.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_cut_off_node_keeps_what_its_guest_writes_to() {
    have_small_guest();
    have_small_guest_on(NODE);
    let tenant = Tenant::new("cut-off");
    let server = Iscsi::start(&tenant);
    let unit = server.directory().join("open.raw");
    let blank = File::options()
        .write(true)
        .open(&unit)
        .expect("it is there");
    // Its first and its last sector say whose it is.
    let bytes = std::fs::read(&unit).expect("it is there").len();
    blank
        .write_all_at(&vec![0; bytes], 0)
        .expect("it can be written");
    let source = server.open_source();
    let disk = format!("      - {{source: {{{source}}}, serial: history}}\n");
    let with_unit = |name: &str| vm(name, &disk, &[RECORD, "stay"]);
    let records = || so_far(&unit).iter().map(|(_, said)| said).sum::<u64>();

    let _all_again = OnlyOn::node(NODE);
    tenant.apply(&with_unit("cut"));
    until_runs(&tenant, "cut", NODE);
    until(120, "its guest writes", || (records() > 0).then_some(()));
    let cut = CutOff::new();
    until(120, "the cluster misses the node", || {
        (!cluster_hears_of_node()).then_some(())
    });
    only_on("node1");
    tenant.apply(&with_unit("heir"));
    until_waits(&tenant, "heir");
    tenant.kubectl(&["delete", "vm", "cut", "--wait=false"]);
    let by_force = ["--force", "--grace-period=0", "--wait=false"];
    tenant.kubectl(&[&["delete", "pod", "cut"], &by_force[..]].concat());
    still_waits(&tenant, "heir", 15);
    until_held_by(1, &[("cut", NODE)]);
    let before = records();
    until(60, "the guest writes on", || {
        (records() > before).then_some(())
    });
    assert_eq!(so_far(&unit).len(), 1);

    drop(cut);
    tenant.await_field(300, "vm/heir", ".status.phase", "Running");
    until_held_by(10, &[("heir", "node1")]);
    until(120, "the next one writes", || {
        (so_far(&unit).len() == 2).then_some(())
    });
    delete(&tenant, "heir");
    assert_eq!(check(&unit).len(), 2);
    until_held_by(30, &[]);
}
