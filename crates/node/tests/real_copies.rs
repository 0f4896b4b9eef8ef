//! Copies of masters at servers: real ones, used by guests that really run.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
#[path = "network/disks.rs"]
mod disks;
mod support;
#[path = "network/trust.rs"]
mod trust;

use std::path::PathBuf;

use disks::{ServerDisk, vm};
use support::Machine;
use support::daemon::is_beside_own;
use support::guest::{self, HELLO, marked};
use support::servers::{Kind, Server};
use support::things::with_secrets;
use trust::CERTIFICATES;

const COPIES: [&str; 3] = ["copy-on-write", "copy-on-read", "clone"];

/// A VM whose guest reads, or marks, the first line of a disk.
struct Vm<'v> {
    machine: &'v Machine,
    name: String,
    manifest: String,
}

impl<'v> Vm<'v> {
    fn new(machine: &'v Machine, name: &str, guest: &str, disk: &ServerDisk, fields: &str) -> Self {
        let root = format!(
            "      - source: {{image: {{name: virtlet.cloud/{guest}}}}}\n        bootOrder: 1\n"
        );
        let item = disk.item(&format!(
            "        name: data\n        bootOrder: 2\n{fields}"
        ));
        let text = vm(name, &format!("{root}{item}"), &disk.objects);
        let manifest = machine.write(&format!("{name}.yaml"), text);
        Self {
            machine,
            name: name.to_owned(),
            manifest: manifest.display().to_string(),
        }
    }

    /// What its guest has found in this run.
    fn says(&self) -> String {
        let machine = self.machine;
        machine.run_to_end(&self.manifest);
        let log = machine.done(&["logs", &self.name]).replace('\r', "");
        let mut lines = log.lines().rev();
        let line = lines.next().unwrap().to_owned();
        assert_eq!(lines.next(), Some(HELLO), "{log}");
        line
    }

    fn down(self) {
        self.machine.done(&["down", &self.name, "--grace", "0"]);
    }

    /// The file of its copy.
    fn copy(&self) -> PathBuf {
        self.machine.volume("-data")
    }
}

/// A machine with guests that read and mark.
fn machine(name: &str) -> Machine {
    let machine = Machine::beside_servers(name);
    machine.add_image("reads", &guest::reading_disk(1));
    machine.add_image("marks", &guest::marking_disk(1));
    machine
}

fn copied(mode: &str) -> String {
    format!("        copy: {{mode: {mode}}}\n")
}

/// Whatever a guest writes to its copy, it finds there again, and nobody else
/// does: not in the master, and not in the next copy.
fn assert_copies_are_apart(name: &str, disk: &ServerDisk) {
    assert_apart_on(&machine(name), name, disk);
}

/// The same on a machine that was made ready for it.
fn assert_apart_on(machine: &Machine, name: &str, disk: &ServerDisk) {
    let before = machine.things();
    for mode in COPIES {
        let vm = Vm::new(
            machine,
            &format!("{name}-{mode}"),
            "marks",
            disk,
            &copied(mode),
        );
        assert_eq!(vm.says(), disk.text, "{mode}");
        assert_eq!(vm.says(), marked(&disk.text), "{mode}");
        // Only a clone does without its master.
        let definition = machine.virsh_done(&["dumpxml", &machine.uuid_of(&vm.name)]);
        let names_master = definition.contains("protocol=");
        assert_eq!(names_master, mode != "clone", "{mode}: {definition}");
        vm.down();
        assert_eq!(machine.things(), before, "{mode}");
    }
    assert_only_copy_on_read_keeps(machine, name, disk);
    let direct = "        access-mode: read-only\n";
    let master = Vm::new(machine, &format!("{name}-master"), "reads", disk, direct);
    assert_eq!(master.says(), disk.text);
    master.down();
    // Without a copy it is the master that changes.
    if disk.writable {
        let alone = Vm::new(machine, &format!("{name}-alone"), "marks", disk, "");
        assert_eq!(alone.says(), disk.text);
        assert_eq!(alone.says(), marked(&disk.text));
        alone.down();
        let master = Vm::new(machine, &format!("{name}-master"), "reads", disk, direct);
        assert_eq!(master.says(), marked(&disk.text));
        master.down();
    }
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_an_rbd_image_are_apart() {
    let _secrets = with_secrets();
    assert_copies_are_apart("copies-rbd", &disks::rbd());
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_a_unit_with_a_password_are_apart() {
    let _secrets = with_secrets();
    assert_copies_are_apart("copies-iscsi", &disks::iscsi_chap("chap", None));
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_an_nbd_export_are_apart() {
    let server = Server::start(Kind::Nbd);
    assert_copies_are_apart("copies-nbd", &disks::nbd(&server, "tcp"));
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_an_export_at_a_socket_are_apart() {
    let machine = machine("copies-unix");
    let disk = disks::nbd_socket(machine.run_dir());
    assert_apart_on(&machine, "copies-unix", &disk);
}

/// With the certificates and the authorities of the node, which has to have them where
/// QEMU runs and where we do.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_what_is_encrypted_are_apart() {
    let outer = Machine::new("copies-tls-certificates");
    let folder = outer.path("").display().to_string();
    let test = "copies_of_what_is_encrypted_are_apart";
    // And mounts of its own, since all others know other authorities.
    let settings = [(CERTIFICATES, folder.as_str()), ("LIBVIRTD_OWN_MOUNTS", "")];
    if !is_beside_own(test, &settings) {
        return;
    }
    let (nbd, web) = (Server::start(Kind::Nbd), Server::start(Kind::Http));
    let machine = machine("copies-tls");
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    let folder = std::env::var(CERTIFICATES).unwrap();
    machine.write(
        "config.yaml",
        format!("{config}nbdCertificates: {folder}\n"),
    );
    let export = disks::nbd(&nbd, "tls");

    // Without certificates, and with an authority that nobody knows, there is no copy.
    let before = machine.things();
    let file = disks::web(&web, "https");
    for (disk, words) in [
        (&export, "disk data: nbd export disk"),
        (
            &file,
            "the connection is not safe: invalid peer certificate",
        ),
    ] {
        let vm = Vm::new(&machine, "copies-no", "reads", disk, &copied("clone"));
        let refused = machine.refused(&["up", "-f", &vm.manifest]);
        assert!(refused.contains(words), "{refused}");
        assert!(refused.contains("disk data: "), "{refused}");
        assert_eq!(machine.things(), before);
    }
    trust::give_certificates(&nbd, &folder);
    trust::trust(&machine, web.text("/caFile"), true);
    assert_apart_on(&machine, "copies-tls", &export);
    assert_apart_on(&machine, "copies-https", &file);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_a_gluster_file_are_apart() {
    assert_copies_are_apart("copies-gluster", &disks::gluster());
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_a_web_servers_file_are_apart() {
    let server = Server::start(Kind::Http);
    assert_copies_are_apart("copies-http", &disks::web(&server, "http"));
}

/// What was read by way of an overlay is in it, if that is what it is for.
fn assert_only_copy_on_read_keeps(machine: &Machine, name: &str, disk: &ServerDisk) {
    for (mode, kept) in [("copy-on-write", false), ("copy-on-read", true)] {
        let vm = Vm::new(
            machine,
            &format!("{name}-{mode}-read"),
            "reads",
            disk,
            &copied(mode),
        );
        assert_eq!(vm.says(), disk.text, "{mode}");
        let bytes = std::fs::read(vm.copy()).unwrap();
        let text = disk.text.as_bytes();
        let found = bytes.windows(text.len()).any(|window| window == text);
        assert_eq!(found, kept, "{mode}");
        vm.down();
    }
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_clone_outlives_its_master() {
    let machine = machine("copies-gone");
    let _secrets = with_secrets();
    for kind in [Kind::Nbd, Kind::Http, Kind::Iscsi, Kind::Ceph] {
        let server = Server::start(kind);
        let disk = match kind {
            Kind::Nbd => disks::nbd(&server, "tcp"),
            Kind::Iscsi => disks::iscsi_chap_at(&server, "chap", ""),
            Kind::Ceph => disks::rbd_at(&server),
            _ => disks::web(&server, "http"),
        };
        let clone = Vm::new(&machine, "copies-gone", "reads", &disk, &copied("clone"));
        assert_eq!(clone.says(), disk.text);
        drop(server);
        assert_eq!(clone.says(), disk.text);
        clone.down();
    }
}

/// One message, with the disk's name, and nothing that is left.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_master_that_cannot_be_read_is_told_and_leaves_nothing() {
    let machine = machine("copies-lost");
    let before = machine.things();
    let server = Server::start(Kind::Nbd);
    let disk = disks::nbd(&server, "tcp");
    drop(server);
    for mode in COPIES {
        let name = format!("copies-lost-{mode}");
        let vm = Vm::new(&machine, &name, "reads", &disk, &copied(mode));
        let refused = machine.refused(&["up", "-f", &vm.manifest]);
        assert!(
            refused.contains("disk data: nbd export"),
            "{mode}: {refused}"
        );
        assert!(refused.contains("Connection refused"), "{mode}: {refused}");
        assert_eq!(machine.things(), before, "{mode}");
    }
}

/// The key is in no argument list while a program that has it runs.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_wrong_password_is_refused_by_name() {
    let _secrets = with_secrets();
    let machine = machine("copies-wrong");
    let before = machine.things();
    let mut disk = disks::iscsi_chap("chap", None);
    let password = Server::shared(Kind::Iscsi).contents("/chap/passwordFile");
    let wrong = "a".repeat(password.trim().len());
    assert!(disk.objects.contains(password.trim()));
    disk.objects = disk.objects.replace(password.trim(), &wrong);
    for mode in ["copy-on-write", "clone"] {
        let name = format!("copies-wrong-{mode}");
        let vm = Vm::new(&machine, &name, "reads", &disk, &copied(mode));
        let refused = machine.refused(&["up", "-f", &vm.manifest]);
        assert!(refused.contains("disk data: iscsi "), "{refused}");
        assert!(!refused.contains(&wrong), "{refused}");
        assert_eq!(machine.things(), before);
    }
}

/// Ceph does not answer it at all.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_wrong_key_is_told_by_name() {
    let _secrets = with_secrets();
    let machine = machine("copies-key");
    let before = machine.things();
    let mut disk = disks::rbd();
    let key = Server::shared(Kind::Ceph).contents("/keyFile");
    let key = key.trim();
    assert!(disk.objects.contains(key));
    // Another key of the same form.
    let wrong = "AQAAAAAAAAAAABAAMDEyMzQ1Njc4OWFiY2RlZg==";
    disk.objects = disk.objects.replace(key, wrong);
    for (mode, fields) in [("none", String::new()), ("clone", copied("clone"))] {
        let name = format!("copies-key-{mode}");
        let vm = Vm::new(&machine, &name, "reads", &disk, &fields);
        let refused = machine.refused(&["up", "-f", &vm.manifest]);
        assert!(refused.contains("disk data: rbd "), "{mode}: {refused}");
        assert!(!refused.contains(wrong), "{mode}: {refused}");
        assert_eq!(machine.things(), before, "{mode}");
    }
}
