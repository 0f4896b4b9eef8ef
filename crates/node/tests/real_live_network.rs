//! Disks at servers that come and go while a guest runs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "network/disks.rs"]
#[allow(dead_code, reason = "each test program uses a part of this")]
mod disks;
mod support;
#[path = "live/vm.rs"]
#[allow(dead_code, reason = "each test program uses a part of this")]
mod vm;

use disks::ServerDisk;
use support::Machine;
use support::servers::{Kind, Server};
use support::things::with_secrets;
use vm::{looking, round, until_seen};

/// A disk by itself, with what it refers to.
fn written(machine: &Machine, name: &str, disk: &ServerDisk, more: &str) -> String {
    let text = format!(
        "name: {name}\nsource: {{{}}}\n{more}{}",
        disk.source, disk.objects
    );
    let file = machine.write(&format!("{name}.yaml"), text);
    file.display().to_string()
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn disks_at_servers_come_and_go() {
    let name = "live-net";
    let machine = Machine::beside_servers(name);
    let _secrets = with_secrets();
    let nothing = machine.things();
    looking(&machine, name);
    machine.until_it_says(name, "ROUND");
    let before = machine.things();
    let attach = |file: &str| machine.done(&["disk", "attach", name, "-f", file]);
    let detach = |disk: &str| machine.done(&["disk", "detach", name, disk]);

    // With a password, which is in libvirt's memory only meanwhile.
    let chap = disks::iscsi_chap("chap", None);
    let unit = written(&machine, "unit", &chap, "");
    attach(&unit);
    until_seen(&machine, name, &[&format!("HEAD unit {}", chap.text)]);
    let secrets = machine.virsh_done(&["secret-list"]);
    assert_eq!(secrets.trim(), "");
    let said = machine.refused(&["disk", "resize", name, "unit", "1Ti"]);
    assert!(said.contains("Cannot grow iSCSI devices"), "{said}");
    detach("unit");
    assert_eq!(machine.things(), before);

    // Without the right one nothing is left.
    let wrong = std::fs::read_to_string(&unit).unwrap();
    let right = Server::shared(Kind::Iscsi).contents("/chap/passwordFile");
    let wrong = wrong.replace(&right, "certainly-not-it");
    let wrong = machine.write("wrong.yaml", wrong).display().to_string();
    let said = machine.refused(&["disk", "attach", name, "-f", &wrong]);
    assert!(said.contains("disk unit: iscsi "), "{said}");
    assert!(said.contains("Authentication failure"), "{said}");
    assert!(!said.contains("certainly-not-it"), "{said}");
    assert_eq!(machine.things(), before);

    // Below an overlay, which grows.
    let export = disks::nbd(Server::shared(Kind::Nbd), "tcp");
    let over = written(&machine, "over", &export, "copy: {mode: copy-on-write}\n");
    attach(&over);
    until_seen(&machine, name, &[&format!("HEAD over {}", export.text)]);
    machine.done(&["disk", "resize", name, "over", "64Mi"]);
    until_seen(
        &machine,
        name,
        &["serial=over ", &format!("size={} ", 64 << 20)],
    );
    detach("over");
    let direct = written(&machine, "direct", &export, "");
    attach(&direct);
    until_seen(&machine, name, &[&format!("HEAD direct {}", export.text)]);
    let said = machine.refused(&["disk", "resize", name, "direct", "64Mi"]);
    assert!(said.contains("an NBD export keeps the size"), "{said}");
    detach("direct");
    let now = round(&machine, name);
    assert!(!now.contains("serial=direct "), "{now}");
    assert_eq!(machine.things(), before);
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}

/// Whoever has a unit makes it larger, and the guest is told. Nobody needs its password for that.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_unit_that_has_grown_grows_for_the_guest() {
    let name = "live-unit";
    let machine = Machine::beside_servers(name);
    let _secrets = with_secrets();
    let nothing = machine.things();
    let server = Server::start_lasting(Kind::Iscsi);
    looking(&machine, name);
    machine.until_it_says(name, "ROUND");
    let chap = disks::iscsi_chap_at(&server, "chap", "");
    let unit = written(&machine, "unit", &chap, "");
    machine.done(&["disk", "attach", name, "-f", &unit]);
    until_seen(&machine, name, &[&format!("HEAD unit {}", chap.text)]);
    let size = server.number("/bytes");
    let resize = ["disk", "resize", name, "unit"];
    let said = machine.done(&resize);
    assert!(said.ends_with(" already\n"), "{said}");

    // The target finds another size when it comes again.
    let now_has = |bytes: u64| {
        let away = server.vanish();
        let file = server.directory().join("chap.raw");
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.set_len(bytes).unwrap();
        drop(away);
        // QEMU has logged in again.
        until_seen(&machine, name, &[&format!("HEAD unit {}", chap.text)]);
    };
    now_has(2 * size);
    let said = machine.done(&resize);
    assert!(!said.contains("already"), "{said}");
    let sees = format!("size={} ", 2 * size);
    until_seen(&machine, name, &["serial=unit ", &sees]);
    let shown = machine.done(&["describe", name]);
    assert!(shown.contains(", grown while it ran"), "{shown}");

    now_has(size);
    let said = machine.refused(&resize);
    assert!(said.contains("its unit has less by now than the"), "{said}");
    let shown = machine.done(&["describe", name, "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let disks = shown["disks"].as_array().unwrap();
    let disk = disks.iter().find(|disk| disk["name"] == "unit").unwrap();
    assert_eq!(disk["size"], 2 * size, "{disk:#}");
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}

/// Those whose servers are clusters: an image of Ceph, with its key, and a file of Gluster.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn disks_of_clusters_come_and_go() {
    let name = "live-clusters";
    let machine = Machine::beside_servers(name);
    // Whoever has the one Gluster may wait for the secrets, so not the other way round.
    let sources = [("file", disks::gluster()), ("image", disks::rbd())];
    let _secrets = with_secrets();
    let nothing = machine.things();
    looking(&machine, name);
    machine.until_it_says(name, "ROUND");
    for (disk, source) in sources {
        let file = written(&machine, disk, &source, "");
        machine.done(&["disk", "attach", name, "-f", &file]);
        until_seen(&machine, name, &[&format!("HEAD {disk} {}", source.text)]);
        let secrets = machine.virsh_done(&["secret-list"]);
        assert_eq!(secrets.trim(), "", "{disk}");
        let leases = machine.done(&["leases", "ls"]);
        assert!(leases.contains(name), "{disk}: {leases}");
        // QEMU makes it larger at its server, which tells nobody here how large it is.
        let said = machine.refused(&["disk", "resize", name, disk]);
        assert!(said.contains("how large it shall be is not said"), "{said}");
        machine.done(&["disk", "resize", name, disk, "64Mi"]);
        let sees = [&format!("serial={disk} "), &format!("size={} ", 64 << 20)];
        until_seen(&machine, name, &sees.map(String::as_str));
        machine.done(&["disk", "detach", name, disk]);
        let now = round(&machine, name);
        assert!(!now.contains(&format!("serial={disk} ")), "{now}");
        let leases = machine.done(&["leases", "ls"]);
        assert!(!leases.contains(name), "{disk}: {leases}");
    }
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}
