//! `leases`: who uses what on this machine, and whom that keeps out.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
#[path = "network/disks.rs"]
mod disks;
mod support;

use disks::vm;
use serde_json::Value;
use support::fixtures::{Fixture, Kind as Sort};
use support::servers::{Kind, Server};
use support::{Machine, guest};

/// A VM with a unit of the server.
fn with_unit(machine: &Machine, server: &Server, name: &str) -> String {
    let disks = format!(
        "      - source: {{image: {{name: virtlet.cloud/tiny}}}}\n      - source: {{iscsi: {{host: {{name: '127.0.0.1', port: {}}}, portal: '{}', lun: {}}}}}\n",
        server.number("/port"),
        server.text("/open/iqn"),
        server.number("/open/lun"),
    );
    let file = machine.write(&format!("{name}.yaml"), vm(name, &disks, ""));
    file.display().to_string()
}

fn listed(machine: &Machine) -> Vec<Value> {
    let all = machine.done(&["leases", "ls", "-o", "json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    all.as_array().unwrap().clone()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn leases_are_listed_and_released_by_force() {
    let machine = Machine::new("leases");
    let server = Server::shared(Kind::Iscsi);
    machine.add_image("tiny", &guest::waiting_disk());
    let [one, two] = ["leases-one", "leases-two"].map(|name| with_unit(&machine, server, name));
    let before = machine.things();
    assert_eq!(
        machine.done(&["leases", "ls"]),
        "ID  STORAGE  ACCESS  VM  STATE  SINCE\n"
    );
    machine.done(&["up", "-f", &one]);

    let all = listed(&machine);
    let unit = format!("iscsi unit {}/1", server.text("/open/iqn"));
    let [lease] = &all[..] else { panic!("{all:?}") };
    assert_eq!(lease["storage"], unit.as_str());
    assert_eq!(lease["access"], "write-exclusive");
    assert_eq!(
        (&lease["namespace"], &lease["name"]),
        (&"default".into(), &"leases-one".into())
    );
    assert_eq!(lease["state"], "live");
    let id = lease["id"].as_str().unwrap();
    let wide = machine.done(&["leases", "ls", "-o", "wide"]);
    let row = wide.lines().nth(1).unwrap();
    for word in [
        id,
        &unit,
        "write-exclusive",
        "default/leases-one",
        "live",
        "the VM runs",
    ] {
        assert!(row.contains(word), "{word} is not in {row}");
    }

    // Nobody gets it by a slip of the pen.
    let refused = machine.refused(&["leases", "release", &id[..3], "--force"]);
    assert!(refused.contains("is too short for the ID"), "{refused}");
    let refused = machine.refused(&["leases", "release", &id[..6]]);
    assert!(refused.contains("the VM runs"), "{refused}");
    assert!(
        refused.contains("two VMs that write to one disk destroy it"),
        "{refused}"
    );
    let refused = machine.refused(&["leases", "release", "nonsense", "--force"]);
    assert!(
        refused.contains("there is no lease \"nonsense\""),
        "{refused}"
    );
    machine.refused(&["up", "-f", &two]);

    let released = machine.node(&["leases", "release", &id[..6], "--force"]);
    let warned = String::from_utf8(released.stderr).unwrap();
    assert!(released.status.success(), "{warned}");
    assert!(
        warned.starts_with("warning: VM default/leases-one was not ended"),
        "{warned}"
    );
    assert!(warned.contains("what is on it is destroyed"), "{warned}");
    assert_eq!(listed(&machine)[0]["state"], "released");
    machine.done(&["up", "-f", &two]);
    let states: Vec<_> = listed(&machine)
        .iter()
        .map(|it| it["state"].clone())
        .collect();
    assert_eq!(states, ["released", "live"]);

    // Who is off keeps nobody out, and takes it again when started again.
    machine.destroy("leases-one");
    let refused = machine.refused(&["up", "-f", &one]);
    assert!(
        refused.contains("in use by VM default/leases-two"),
        "{refused}"
    );
    machine.destroy("leases-two");
    let all = listed(&machine);
    assert_eq!(
        (&all[1]["state"], &all[1]["why"]),
        (&"stale".into(), &"the VM is off".into())
    );
    machine.done(&["up", "-f", &one]);
    assert_eq!(listed(&machine)[0]["state"], "live");
    machine.done(&["down", "leases-one", "leases-two", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

/// What a guest wrote over a master is worth nothing over another one.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn nobody_writes_to_what_an_overlay_stands_on() {
    let machine = Machine::beside_servers("leases-below");
    let server = Server::shared(Kind::Iscsi);
    machine.add_image("tiny", &guest::waiting_disk());
    let before = machine.things();
    let write = |name: &str, more: &[&str]| {
        let root = "      - source: {image: {name: virtlet.cloud/tiny}}\n";
        let disks = more.iter().enumerate().map(|(nth, more)| {
            format!(
                "      - name: data{nth}\n        source: {{iscsi: {{host: {{name: '127.0.0.1', port: {}}}, portal: '{}', lun: {}}}}}\n        {more}\n",
                server.number("/port"),
                server.text("/open/iqn"),
                server.number("/open/lun"),
            )
        });
        let disks: String = std::iter::once(root.to_owned()).chain(disks).collect();
        let file = machine.write(&format!("{name}.yaml"), vm(name, &disks, ""));
        file.display().to_string()
    };
    let over = write("leases-over", &["copy: {mode: copy-on-write}"]);
    let writer = write("leases-writer", &["access-mode: write-exclusive"]);
    let reader = write("leases-reader", &["access-mode: read-only"; 2]);
    machine.done(&["up", "-f", &over]);
    machine.destroy("leases-over");
    let refused = machine.refused(&["up", "-f", &writer]);
    assert!(
        refused.contains("is below disk data0 of VM default/leases-over, which is off"),
        "{refused}"
    );
    assert!(refused.contains("disklet down"), "{refused}");
    let all = listed(&machine);
    let [below] = &all[..] else { panic!("{all:?}") };
    let why = "the VM is off, and its disk data0 is over it";
    assert_eq!(
        (&below["state"], &below["why"]),
        (&"kept".into(), &why.into())
    );
    let id = below["id"].as_str().unwrap();
    let refused = machine.refused(&["leases", "release", id]);
    assert!(refused.contains(why), "{refused}");
    assert!(refused.contains("destroys that disk"), "{refused}");
    // It is the right that it had before.
    std::thread::sleep(std::time::Duration::from_secs(2));
    machine.done(&["up", "-f", &over]);
    assert_eq!(listed(&machine)[0]["since"], below["since"]);
    machine.destroy("leases-over");

    // Who only reads does no harm. Two of its disks have one lease.
    machine.done(&["up", "-f", &reader]);
    let all = listed(&machine);
    let mut readers = all.iter().filter(|it| it["name"] == "leases-reader");
    let lease = readers.next().unwrap();
    assert!(readers.next().is_none(), "{all:?}");
    machine.done(&[
        "leases",
        "release",
        lease["id"].as_str().unwrap(),
        "--force",
    ]);
    machine.done(&["down", "leases-reader", "--grace", "0"]);
    let released = machine.node(&["leases", "release", id, "--force"]);
    let warned = String::from_utf8(released.stderr).unwrap();
    assert!(
        warned.contains("what that disk has is destroyed"),
        "{warned}"
    );
    assert_eq!(listed(&machine)[0]["state"], "released");
    machine.done(&["down", "leases-over", "--grace", "0"]);
    machine.done(&["up", "-f", &writer]);
    machine.done(&["down", "leases-writer", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

/// What is attached while VMs run is leased as what they are started with. A clone needs
/// its master for a while; what else the VM has of it, it keeps.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn disks_that_are_attached_have_leases_of_their_own() {
    let machine = Machine::beside_servers("leases-live");
    let server = Server::shared(Kind::Iscsi);
    machine.add_image("tiny", &guest::waiting_disk());
    let before = machine.things();
    let names = ["leases-live-one", "leases-live-two"];
    for name in names {
        let root = "      - source: {image: {name: virtlet.cloud/tiny}}\n";
        let manifest = machine.write(&format!("{name}.yaml"), vm(name, root, ""));
        machine.done(&["up", "-f", &manifest.display().to_string()]);
    }
    let disk = |name: &str, more: &str| {
        let unit = format!(
            "name: {name}\nsource: {{iscsi: {{host: {{name: '127.0.0.1', port: {}}}, portal: '{}', lun: {}}}}}\n{more}",
            server.number("/port"),
            server.text("/open/iqn"),
            server.number("/open/lun"),
        );
        let file = machine.write(&format!("{name}-disk.yaml"), unit);
        file.display().to_string()
    };
    let attach = |vm: &str, file: &str| machine.done(&["disk", "attach", vm, "-f", file]);
    let refused = |vm: &str, file: &str| machine.refused(&["disk", "attach", vm, "-f", file]);
    let [one, two] = names;
    let direct = disk("direct", "");
    attach(one, &direct);
    let told = refused(two, &direct);
    let holder = format!("is in use by VM default/{one}");
    assert!(told.contains(&holder), "{told}");
    // Released by force and had again, it is its own again.
    let id = listed(&machine)[0]["id"].as_str().unwrap().to_owned();
    machine.done(&["leases", "release", &id, "--force"]);
    machine.done(&["disk", "detach", one, "direct"]);
    attach(one, &direct);
    assert_eq!(listed(&machine)[0]["state"], "live");
    refused(two, &direct);
    machine.done(&["disk", "detach", one, "direct"]);
    assert!(listed(&machine).is_empty());

    let over = disk("over", "copy: {mode: copy-on-write}\n");
    let cloned = disk("cloned", "copy: {mode: clone}\n");
    attach(one, &over);
    attach(one, &cloned);
    let access = |lease: &Value| lease["access"].as_str().unwrap().to_owned();
    let kept: Vec<_> = listed(&machine).iter().map(access).collect();
    assert_eq!(kept, ["read-shared"]);
    refused(two, &direct);
    machine.done(&["disk", "detach", one, "cloned"]);
    refused(two, &direct);
    machine.done(&["disk", "detach", one, "over"]);
    attach(two, &direct);
    machine.done(&["down", one, two, "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn devices_of_the_machine_are_leased_as_well() {
    let machine = Machine::new("leases-device");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "leases-device", Sort::RawDevice, &guest);
    machine.done(&["up", "-f", &fixture.manifest]);
    let all = listed(&machine);
    let storage = all[0]["storage"].as_str().unwrap();
    assert!(
        storage.starts_with(&format!("device {} (", fixture.device())),
        "{storage}"
    );
    machine.done(&["down", "leases-device", "--grace", "0"]);
    assert_eq!(listed(&machine), [] as [Value; 0]);
}
