//! `disklet-node` killed at every boundary between two steps, for VMs whose disks are at
//! servers: as they are, below overlays, and cloned.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kills/boundaries.rs"]
mod boundaries;
#[path = "network/disks.rs"]
#[allow(dead_code, reason = "each test program uses a part of this")]
mod disks;
mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use boundaries::at_every_boundary;
use disklet_core::plan::StepKind;
use support::servers::{Kind, Server};
use support::things::{WithSecrets, with_secrets};
use support::{Machine, guest};

/// A VM with a disk of each sort.
struct Set {
    machine: Machine,
    manifest: String,
    name: &'static str,
    before: Vec<String>,
    _secrets: WithSecrets,
}

impl Set {
    fn new(name: &'static str) -> Self {
        let machine = Machine::beside_servers(name);
        let secrets = with_secrets();
        machine.add_image("tiny", &guest::waiting_disk());
        let unit = disks::iscsi_chap("chap", None);
        let second = disks::iscsi_chap("second", None);
        let mut export = disks::nbd(Server::shared(Kind::Nbd), "tcp");
        // By name, so that it is looked up.
        export.source = export.source.replace("127.0.0.1", "localhost");
        let web = disks::web(Server::shared(Kind::Http), "http");
        let image = disks::rbd();
        let items = [
            "      - source: {image: {name: virtlet.cloud/tiny}}\n".to_owned(),
            unit.item("        name: direct\n"),
            second.item("        name: over\n        copy: {mode: copy-on-write}\n"),
            export.item("        name: cloned\n        copy: {mode: clone}\n"),
            web.item("        name: fetched\n        copy: {mode: clone}\n"),
            image.item("        name: image\n        copy: {mode: copy-on-read}\n"),
        ];
        let objects = format!("{}{}", unit.objects, image.objects);
        let text = disks::vm(name, &items.concat(), &objects);
        let manifest = machine.write("vm.yaml", text).display().to_string();
        let before = machine.things();
        Self {
            machine,
            manifest,
            name,
            before,
            _secrets: secrets,
        }
    }

    fn up(&self) -> [&str; 3] {
        ["up", "-f", &self.manifest]
    }

    fn down(&self) -> [&str; 4] {
        ["down", self.name, "--grace", "0"]
    }

    /// No program either that a killed one has started.
    fn assert_nothing_is_left(&self, when: &str) {
        assert_eq!(self.machine.things(), self.before, "{when}");
        let leases = self.machine.done(&["leases", "ls", "-o", "json"]);
        assert_eq!(leases.trim(), "[]", "{when}");
        let begun = Instant::now();
        loop {
            let left = self.machine.processes();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed().as_secs() < 20, "{when}: {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The keys that libvirt knows.
fn keys(machine: &Machine) -> Vec<String> {
    let listed = machine.virsh_done(&["secret-list"]);
    let words = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let keys = words.filter(|word| word.len() == 36);
    keys.map(str::to_owned).collect()
}

/// They are in libvirt's memory only, and it gives them to nobody but QEMU.
fn assert_secret(machine: &Machine, keys: &[String]) {
    for key in keys {
        let described = machine.virsh_done(&["secret-dumpxml", key]);
        for word in ["ephemeral='yes'", "private='yes'"] {
            assert!(described.contains(word), "{described}");
        }
        assert_eq!(machine.virsh(&["secret-get-value", key]), None, "{key}");
    }
}

/// Whoever looks for what is left finds the keys of VMs that run or are off.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn an_interrupted_up_at_servers_leaves_no_key_to_gc() {
    let set = Set::new("server-keys");
    let (machine, up, down) = (&set.machine, set.up(), set.down());
    let mut most = 0;
    at_every_boundary(
        machine,
        &up,
        || {},
        |_, cut| {
            let there = keys(machine);
            most = most.max(there.len());
            if cut == "before StartDomain" {
                assert_ne!(there, [""; 0], "{cut}");
                assert_secret(machine, &there);
            }
            machine.done(&["gc"]);
            assert_eq!(keys(machine), [""; 0], "{cut}");
            // One that was never complete is gone by now.
            machine.node(&down);
            set.assert_nothing_is_left(cut);
        },
    );
    assert!(most > 0, "never cut while there was a key");
    machine.done(&down);
    set.assert_nothing_is_left("at the end");
}

fn assert_cut(cuts: &BTreeSet<String>) {
    for step in [
        StepKind::CheckServers,
        StepKind::TakeLease,
        StepKind::DefineSecret,
        StepKind::CreateOverlay,
        StepKind::CloneMaster,
        StepKind::EndLease,
        StepKind::DefineDomain,
        StepKind::StartDomain,
    ] {
        let cut = format!("before {step:?}");
        assert!(cuts.contains(&cut), "never cut {cut}: {cuts:?}");
    }
    assert!(cuts.contains("Within"), "never cut while copying: {cuts:?}");
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn an_interrupted_up_at_servers_is_finished_by_the_next() {
    let set = Set::new("server-finish");
    let (machine, up, down) = (&set.machine, set.up(), set.down());
    let cuts = at_every_boundary(
        machine,
        &up,
        || {},
        |boundary, cut| {
            machine.done(&up);
            assert!(machine.done(&["ps"]).contains("running"), "{cut}");
            assert_eq!(keys(machine), [""; 0], "{cut}");
            machine.done(&down);
            set.assert_nothing_is_left(&format!("boundary {boundary}, {cut}"));
        },
    );
    assert_cut(&cuts);
    machine.done(&down);
    set.assert_nothing_is_left("at the end");
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn an_interrupted_up_at_servers_is_undone_by_down() {
    let set = Set::new("server-undo");
    let (machine, up, down) = (&set.machine, set.up(), set.down());
    let cuts = at_every_boundary(
        machine,
        &up,
        || {},
        |boundary, cut| {
            machine.done(&down);
            set.assert_nothing_is_left(&format!("boundary {boundary}, {cut}"));
        },
    );
    assert_cut(&cuts);
    machine.done(&down);
    set.assert_nothing_is_left("at the end");
}
