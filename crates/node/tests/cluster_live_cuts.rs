//! The agent killed while a guest follows its VM object, which has a disk more or a disk
//! less: the next agent finishes it.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/own_agents.rs"]
mod own_agents;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;
use std::time::Instant;

use kube::guests::NODE;
use kube::storage::Iscsi;
use kube::{Tenant, on_node, run, until};
use own_agents::{Agent, WithoutAgent};
use world::{alone, have_idle_guest, idle_vm, seed, tell, until_nothing_is_left};

/// A guard against an agent that never gets to its end.
const MOST: u32 = 20;
/// Where a disk with a lease and a key comes: before it, in the middle, and after it.
const ATTACHING: [&str; 5] = [
    "before TakeLease",
    "before DefineSecret",
    "before AttachDisk",
    "Done",
    "Noted",
];
/// Where it goes.
const DETACHING: [&str; 2] = ["LettingGo", "Noted"];

/// A VM that follows its object, which has a unit that wants a password, or not.
struct Follower {
    tenant: Tenant,
    bare: String,
    unit: String,
    iqn: String,
    qemu: Option<String>,
}

impl Follower {
    fn start(tenant: Tenant, server: &Iscsi) -> Self {
        let (source, secret) = server.chap_source(server.address());
        tenant.apply(&secret);
        let bare = idle_vm("cut-live", "OnFailure");
        tenant.apply(&bare);
        tenant.await_ready(120, "cut-live");
        Self {
            qemu: tenant.qemu("cut-live"),
            tenant,
            bare,
            unit: format!("      - {{name: unit, source: {{{source}}}, serial: unit}}\n"),
            iqn: "iqn.2024-01.test.disklet:chap/1".to_owned(),
        }
    }

    /// Its object has the disk from now on, or not.
    fn wants(&self, wanted: bool) {
        let disk = if wanted { &*self.unit } else { "" };
        self.tenant.apply(&format!("{}{disk}", self.bare));
    }

    /// All agree whether it has the disk: the domain, the lease, and the status.
    fn is_settled(&self, has_it: bool) -> bool {
        let path = ".status.disks[*].name";
        let status = self.tenant.field("vm/cut-live", path);
        let is_listed = |names: String| names.split(' ').any(|it| it == "unit") == has_it;
        status.is_some_and(is_listed)
            && self.domain().contains(&self.iqn) == has_it
            && leases().contains(&self.iqn) == has_it
    }

    fn domain(&self) -> String {
        let show = "virsh -q -c qemu:///system dumpxml \"$(virsh -q -c qemu:///system list --name | grep -e '-cut-live$')\"";
        on_node(NODE, &["sh", "-c", show])
    }

    /// Its object changes, its agent is killed there, and the next one goes on. Where it was
    /// killed; nothing if it got to its end.
    fn changes(&self, wanted: bool, cut: &str) -> Option<String> {
        let begun = Instant::now();
        let mut agent = Agent::start(cut);
        self.wants(wanted);
        let place = agent.cut(|| self.is_settled(wanted));
        if place.is_none() {
            agent.stop();
        }
        let next = Agent::start("");
        let what = format!("agent cut {place:?} ({cut}), disk wanted: {wanted}");
        until(60, &format!("{what}: it is settled"), || {
            self.is_settled(wanted).then_some(())
        });
        next.stop();
        // Nothing is begun any more, no key is left, and the guest has not noticed.
        let secrets = ["virsh", "-q", "-c", "qemu:///system", "secret-list"];
        assert_eq!(on_node(NODE, &secrets).trim(), "", "{what}");
        let records = on_node(
            NODE,
            &["sh", "-c", "cat /var/lib/disklet/vms/*/record.json"],
        );
        assert!(records.contains("\"cut-live\""), "{records}");
        assert!(!records.contains("\"changes\""), "{what}: {records}");
        assert_eq!(self.tenant.qemu("cut-live"), self.qemu, "{what}");
        tell(&format!("{what}: {:.1} s", begun.elapsed().as_secs_f32()));
        place
    }
}

fn leases() -> String {
    let content = "jsonpath={.items[*].metadata.annotations.disklet\\.io/lease}";
    run(Command::new("kubectl").args(["-n", "disklet", "get", "leases", "-o", content]))
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_change_that_an_agent_was_killed_in_is_finished_by_the_next() {
    let _alone = alone();
    have_idle_guest();
    let without = WithoutAgent::new();
    let tenant = Tenant::new("live-cuts");
    let server = Iscsi::start(&tenant);
    let first = Agent::start("");
    let follower = Follower::start(tenant, &server);
    first.stop();
    match seed() {
        None => all(&follower),
        Some(seed) => some(&follower, seed),
    }
    let last = Agent::start("");
    let tenant = &follower.tenant;
    tenant.kubectl(&["delete", "vm", "cut-live", "--timeout=300s"]);
    last.stop();
    until_nothing_is_left(30, "a VM that followed its object");
    drop(without);
}

/// Every boundary of both, by its number.
fn all(follower: &Follower) {
    let (mut attaching, mut detaching) = (Vec::new(), Vec::new());
    for boundary in 1..MOST {
        let boundary = boundary.to_string();
        let places = [true, false].map(|wanted| follower.changes(wanted, &boundary));
        let [come, gone] = places;
        if come.is_none() && gone.is_none() {
            break;
        }
        attaching.extend(come);
        detaching.extend(gone);
    }
    for place in ATTACHING {
        assert!(attaching.iter().any(|it| it == place), "{attaching:?}");
    }
    for place in DETACHING {
        assert!(detaching.iter().any(|it| it == place), "{detaching:?}");
    }
}

/// Where a disk is or is not is the question, and another place.
fn some(follower: &Follower, seed: u64) {
    let nth = |most: usize| usize::try_from(seed).expect("a number") % most;
    let another = ATTACHING[nth(ATTACHING.len())];
    for (come, gone) in [("before AttachDisk", DETACHING[0]), (another, DETACHING[1])] {
        assert_eq!(follower.changes(true, come).as_deref(), Some(come));
        assert_eq!(follower.changes(false, gone).as_deref(), Some(gone));
    }
}
