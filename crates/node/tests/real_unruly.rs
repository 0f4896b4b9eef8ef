//! Servers that vanish, hang, come back, refuse a password or lose the end of a unit
//! while a guest uses their disks.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "network/disks.rs"]
#[allow(dead_code, reason = "each test program uses a part of this")]
mod disks;
#[path = "unruly/guest.rs"]
mod guest;
mod support;

use std::time::Duration;

use disks::ServerDisk;
use guest::{Ear, started, well};
use support::Machine;
use support::servers::{Kind, Server};
use support::things::with_secrets;

/// A VM with disks at servers, by name.
struct Vm<'v> {
    machine: &'v Machine,
    name: &'v str,
}

impl<'v> Vm<'v> {
    fn start(machine: &'v Machine, name: &'v str, disks: &[(&str, &ServerDisk)]) -> Self {
        let items = disks.iter().map(|(name, disk)| {
            let access = match disk.writable {
                true => "write-exclusive",
                false => "read-only",
            };
            disk.item(&format!(
                "        name: {name}\n        access-mode: {access}\n"
            ))
        });
        let items: String = items.collect();
        let objects: String = disks.iter().map(|(_, disk)| &*disk.objects).collect();
        started(machine, name, &items, &objects);
        let vm = Self { machine, name };
        for (disk, its) in disks {
            vm.ear().until(disk, &format!("[{}]", its.text));
        }
        vm
    }

    fn ear(&self) -> Ear<'_> {
        Ear::new(self.machine, self.name)
    }

    /// What is shown of the server of a kind.
    fn described(&self, kind: &str) -> String {
        let shown = self.machine.done(&["describe", self.name]);
        assert!(shown.contains("State    running"), "{shown}");
        let line = shown
            .lines()
            .find(|line| line.contains(&format!("{kind} server")));
        line.unwrap_or_else(|| panic!("no {kind}: {shown}"))
            .to_owned()
    }

    fn assert_here(&self, kind: &str) {
        let line = self.described(kind);
        assert!(line.ends_with("(raw)"), "{line}");
    }

    fn assert_unreached(&self, kind: &str) {
        let line = self.described(kind);
        let words = "MISSING: cannot be reached: Connection refused";
        assert!(line.contains(words), "{line}");
    }

    fn assert_silent(&self, kind: &str) {
        let line = self.described(kind);
        assert!(line.contains("MISSING: does not answer"), "{line}");
    }

    /// A disk stands still, and the others do not.
    fn assert_stands_still(&self, disk: &str, other: &str) {
        // One line may have been on its way.
        std::thread::sleep(Duration::from_secs(1));
        let ear = self.ear();
        let before = ear.heard(other).len();
        while ear.heard(other).len() < before + 3 {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(ear.heard(disk), [""; 0], "{disk} goes on");
    }

    fn down(self) {
        self.machine.done(&["down", self.name, "--grace", "0"]);
    }
}

/// Requests to an NBD server that is gone fail, and the next ones find it again. One
/// that hangs is waited for.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_outlives_its_servers() {
    let name = "unruly";
    let machine = Machine::beside_servers(name);
    let _secrets = with_secrets();
    let nothing = machine.things();
    let nbd = Server::start_lasting(Kind::Nbd);
    let iscsi = Server::start_lasting(Kind::Iscsi);
    let web = Server::start_lasting(Kind::Http);
    let export = disks::nbd(&nbd, "tcp");
    let unit = disks::iscsi_chap_at(&iscsi, "chap", "");
    let file = disks::web(&web, "http");
    let all = [("nbd", &export), ("unit", &unit), ("web", &file)];
    let vm = Vm::start(&machine, name, &all);
    for kind in ["nbd", "iscsi", "http"] {
        vm.assert_here(kind);
    }

    // Gone: errors, until it is there again.
    for (disk, kind, server, its) in [("nbd", "nbd", &nbd, &export), ("web", "http", &web, &file)] {
        let ear = vm.ear();
        let away = server.vanish();
        ear.until(disk, "[nothing] last=0 wrote=no");
        vm.assert_unreached(kind);
        drop(away);
        vm.ear().until(disk, &format!("[{}] last=512", its.text));
        vm.assert_here(kind);
    }
    vm.ear().until("nbd", &well(&export.text));

    // Gone, with a login that has to be repeated: nothing fails, all waits.
    let ear = vm.ear();
    let away = iscsi.vanish();
    vm.assert_stands_still("unit", "nbd");
    vm.assert_unreached("iscsi");
    drop(away);
    vm.ear().until("unit", &well(&unit.text));
    let heard = ear.heard("unit");
    let is_well = |line: &String| line.ends_with(&well(&unit.text));
    assert!(heard.iter().all(is_well), "{heard:?}");

    // Silent: all waits, but for the web.
    for (disk, kind, server, its) in [
        ("nbd", "nbd", &nbd, &export),
        ("unit", "iscsi", &iscsi, &unit),
    ] {
        let ear = vm.ear();
        let hanging = server.hang();
        vm.assert_stands_still(disk, if disk == "nbd" { "unit" } else { "nbd" });
        vm.assert_silent(kind);
        if disk == "unit" {
            // QEMU asks the server how large it is, and the guest waits for QEMU.
            let refused = machine.refused(&["disk", "resize", name, disk, "64Mi"]);
            assert!(refused.contains("disk unit"), "{refused}");
            assert!(refused.contains("help: "), "{refused}");
        }
        drop(hanging);
        vm.ear().until(disk, &well(&its.text));
        let heard = ear.heard(disk);
        let is_well = |line: &String| line.ends_with(&well(&its.text));
        assert!(heard.iter().all(is_well), "{heard:?}");
    }
    let ear = vm.ear();
    let hanging = web.hang();
    ear.until("web", "[nothing] last=0");
    vm.assert_silent("http");
    drop(hanging);
    vm.ear().until("web", &format!("[{}] last=512", file.text));

    // Another password: whoever was logged in waits for the old one.
    let password = iscsi.text("/chap/passwordFile");
    let right = std::fs::read_to_string(password).unwrap();
    let ear = vm.ear();
    let away = iscsi.vanish();
    std::fs::write(password, "certainlynotit").unwrap();
    drop(away);
    vm.assert_stands_still("unit", "nbd");
    vm.assert_here("iscsi");
    let away = iscsi.vanish();
    std::fs::write(password, right).unwrap();
    drop(away);
    vm.ear().until("unit", &well(&unit.text));
    let heard = ear.heard("unit");
    assert!(heard.iter().all(is_well), "{heard:?}");

    // Without its end: only what was there fails.
    let raw = std::fs::File::options()
        .write(true)
        .open(iscsi.directory().join("chap.raw"))
        .unwrap();
    raw.set_len(1 << 20).unwrap();
    vm.ear()
        .until("unit", &format!("[{}] last=0 wrote=yes", unit.text));
    raw.set_len(iscsi.number("/bytes")).unwrap();
    vm.ear().until("unit", &well(&unit.text));

    vm.down();
    assert_eq!(machine.things(), nothing);
}

/// Ceph's clients wait for it, however long.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_waits_for_ceph() {
    let name = "unruly-rbd";
    let machine = Machine::beside_servers(name);
    let _secrets = with_secrets();
    let nothing = machine.things();
    let ceph = Server::start(Kind::Ceph);
    let nbd = Server::start(Kind::Nbd);
    let (image, other) = (disks::rbd_at(&ceph), disks::nbd(&nbd, "tcp"));
    let vm = Vm::start(&machine, name, &[("image", &image), ("other", &other)]);
    let ear = vm.ear();
    let hanging = ceph.hang();
    vm.assert_stands_still("image", "other");
    vm.assert_silent("rbd");
    drop(hanging);
    vm.ear().until("image", &well(&image.text));
    let heard = ear.heard("image");
    let is_well = |line: &String| line.ends_with(&well(&image.text));
    assert!(heard.iter().all(is_well), "{heard:?}");
    vm.down();
    assert_eq!(machine.things(), nothing);
}
