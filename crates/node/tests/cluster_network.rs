//! VM objects whose disks are at servers, on a real cluster: what the server's owner wrote
//! the guest reads, and what the guest wrote the owner reads. And copies of such disks.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/ceph.rs"]
mod ceph;
#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/network.rs"]
mod network;
#[path = "kube/world.rs"]
mod world;

use std::path::Path;
use std::process::Command;

use ceph::Ceph;
use kube::guests::{NODE, assert_said, delete, have_small_guest, vm};
use kube::storage::{Folder, Iscsi, claim, disk, read_and_write, read_only, written};
use kube::{Tenant, on_node, run, until};
use network::{Gluster, Nbd, NbdSocket, Prepared, Web};
use world::{alone, until_nothing_is_left};

const COPIES: [(&str, &str); 3] = [
    ("cow", "copy-on-write"),
    ("cor", "copy-on-read"),
    ("clone", "clone"),
];

/// All servers that there are.
struct Servers {
    ceph: Ceph,
    nbd: Nbd,
    socket: NbdSocket,
    gluster: Gluster,
    web: Web,
    iscsi: Iscsi,
}

impl Servers {
    fn start(tenant: &Tenant, folder: &Folder) -> Self {
        let ceph = Ceph::start(tenant);
        ceph.copy("claimed");
        Self {
            ceph,
            nbd: Nbd::start(tenant),
            socket: NbdSocket::start(tenant, folder),
            gluster: Gluster::start(tenant),
            web: Web::start(tenant),
            iscsi: Iscsi::start(tenant),
        }
    }

    /// Disks that VMs name themselves and that guests write: their sources, and what their
    /// owners wrote.
    fn written(&self) -> [(&'static str, String, &'static str); 6] {
        let text = |which: &'static str, source: String, text| (which, source, text);
        [
            text("rbd", self.ceph.source(&self.ceph.image), "disk of ceph"),
            text("nbd", self.nbd.source("tcp"), "disk of nbd tcp"),
            text("nbd-tls", self.nbd.source("tls"), "disk of nbd tls"),
            text("nbd-unix", self.socket.source(), "disk of nbd socket"),
            text("gluster", self.gluster.source(), "disk of gluster"),
            text("unit", self.iscsi.open_source(), "disk of iscsi open"),
        ]
    }

    /// What each server's owner finds in the second sector, by the guest's name of the disk.
    fn found(&self) -> Vec<(&'static str, String)> {
        vec![
            ("rbd", self.ceph.second_sector(&self.ceph.image)),
            ("rbd-claim", self.ceph.second_sector("claimed")),
            ("nbd", written(&self.nbd.file("tcp"))),
            ("nbd-tls", written(&self.nbd.file("tls"))),
            ("nbd-unix", written(&self.socket.file)),
            ("gluster", written(&self.gluster.file())),
            ("gluster-claim", written(&self.gluster.claimed_file())),
            ("unit", written(&self.iscsi.directory().join("open.raw"))),
        ]
    }

    /// All that the masters of copies have, as their owners find it.
    fn masters(&self) -> Vec<(&'static str, Vec<u8>)> {
        let read = |file: &Path| std::fs::read(file).expect("a master can be read");
        vec![
            ("rbd", self.ceph.bytes(&self.ceph.image)),
            ("nbd", read(&self.nbd.file("tcp"))),
            ("tls", read(&self.nbd.file("tls"))),
            ("gluster", read(&self.gluster.file())),
        ]
    }

    fn assert_found_what_the_guest_wrote(&self) {
        for (disk, found) in self.found() {
            assert_eq!(found, format!("guest wrote {disk}"));
        }
    }
}

fn item(name: &str, source: &str, more: &str) -> String {
    format!("      - {{name: {name}, source: {{{source}}}, serial: {name}{more}}}\n")
}

/// A disk from each server, by the VM itself and by claims.
fn direct(tenant: &Tenant, servers: &Servers) {
    let (ceph, gluster) = (&servers.ceph, &servers.gluster);
    let volume = |name, volume: &str| claim(tenant, name, "Filesystem", volume);
    tenant.apply(
        &[
            ceph.secret(),
            gluster.endpoints(),
            volume("rbd-claim", &ceph.volume(tenant, "claimed")),
            volume("gluster-claim", &gluster.volume()),
        ]
        .concat(),
    );
    let written = servers.written();
    let mut disks: String = written
        .iter()
        .map(|(name, source, _)| item(name, source, ""))
        .collect();
    disks += &disk("rbd-claim", "");
    disks += &disk("gluster-claim", ", driver: {name: qemu}");
    let read_shared = ", access-mode: read-only";
    for scheme in ["http", "https"] {
        disks += &item(scheme, &servers.web.source(scheme), read_shared);
    }
    let names = written.iter().map(|(name, ..)| *name);
    let names = names.chain(["rbd-claim", "gluster-claim"]);
    let mut guest: Vec<_> = names.flat_map(read_and_write).collect();
    guest.extend(["http", "https"].map(read_only));
    guest.push("stay".to_owned());
    tenant.apply(&vm("net-direct", &disks, &guest));

    let console = tenant.await_console(240, "net-direct", "GUEST-READY");
    for (name, _, text) in &written {
        assert_said(&console, &[&format!("{name} READS {text}")]);
    }
    assert_said(
        &console,
        &[
            "rbd-claim READS disk of ceph",
            "gluster-claim READS disk of gluster claim",
            "http READS disk of http",
            "https READS disk of http",
            "ro=1 serial=http ",
            "ro=1 serial=https ",
        ],
    );
    servers.assert_found_what_the_guest_wrote();
    assert_hidden(&ceph.key);
    // QEMU opens all of them itself: the kubelet has nothing to mount.
    let carried = ".spec.volumes[*].persistentVolumeClaim.claimName";
    assert_eq!(tenant.field("pod/net-direct", carried), None);
    // Each that other nodes reach is leased; a socket is of this node alone.
    let leases = leases();
    for storage in [
        "rbd image disks/disk",
        "rbd image disks/claimed",
        "nbd export disk/of tcp",
        "gluster file disks/folder/disk.raw",
        "gluster file disks/disk.img",
        "iscsi unit ",
    ] {
        assert_said(&leases, &[storage]);
    }
    delete(tenant, "net-direct");
}

/// The key is in libvirt's memory only while a VM starts, and nowhere else.
fn assert_hidden(key: &str) {
    let secrets = ["virsh", "-q", "-c", "qemu:///system", "secret-list"];
    assert_eq!(on_node(NODE, &secrets).trim(), "");
    let look = "cat /run/disklet/libvirt/qemu/*.xml; cat /proc/[0-9]*/cmdline || true";
    let shown = on_node(NODE, &["sh", "-c", look]);
    assert!(shown.contains("qemu-system"), "{shown}");
    assert!(!shown.contains(key), "the key shows");
}

/// What is leased, in words.
fn leases() -> String {
    let content = "jsonpath={.items[*].metadata.annotations.disklet\\.io/lease}";
    let leases = ["-n", "disklet", "get", "leases", "-o", content];
    run(Command::new("kubectl").args(leases))
}

/// Reads both sectors, and writes far from them: what is beside them is the master's, or was
/// kept because it was read.
fn use_copy(name: &str) -> [String; 4] {
    let disk = format!("/dev/disk-by-serial/{name}");
    let sector = |nth: u32| format!("$(dd if={disk} bs=512 skip={nth} count=1 | head -n 1)");
    [
        format!("echo {name} READS {} AND {}", sector(0), sector(1)),
        format!("echo copy wrote {name} | dd of={disk} bs=512 seek=2048 conv=notrunc,fsync"),
        "echo 3 >/proc/sys/vm/drop_caches".to_owned(),
        format!("echo {name} KEEPS {}", sector(2048)),
    ]
}

/// Copies of what the first guest has left.
fn copies(tenant: &Tenant, servers: &Servers) {
    let before = servers.masters();
    let masters: Vec<_> = servers
        .written()
        .into_iter()
        .filter(|(name, ..)| ["rbd", "nbd"].contains(name))
        .collect();
    let (mut disks, mut guest, mut said) = (String::new(), Vec::new(), Vec::new());
    let mut add = |name: &str, source: &str, mode: &str, reads: &str| {
        disks.push_str(&item(name, source, &format!(", copy: {{mode: {mode}}}")));
        guest.extend(use_copy(name));
        said.push(format!("{name} READS {reads}"));
        said.push(format!("{name} KEEPS copy wrote {name}"));
    };
    for (master, source, text) in &masters {
        for (short, mode) in COPIES {
            let reads = format!("{text} AND guest wrote {master}");
            add(&format!("{master}-{short}"), source, mode, &reads);
        }
    }
    // With certificates, as a file of Gluster, and of the web.
    let tls = servers.nbd.source("tls");
    add(
        "tls-clone",
        &tls,
        "clone",
        "disk of nbd tls AND guest wrote nbd-tls",
    );
    let file = servers.gluster.source();
    add(
        "file-cow",
        &file,
        "copy-on-write",
        "disk of gluster AND guest wrote gluster",
    );
    let web = servers.web.source("http");
    add("web-cow", &web, "copy-on-write", "disk of http AND");
    guest.push("stay".to_owned());
    tenant.apply(&vm("net-copies", &disks, &guest));

    let console = tenant.await_console(240, "net-copies", "GUEST-READY");
    assert_said(
        &console,
        &said.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    for (master, _, text) in &masters {
        assert_kept(&format!("{master}-cow"), text, false);
        assert_kept(&format!("{master}-cor"), text, true);
        assert_kept(&format!("{master}-clone"), text, true);
    }
    // A clone needs its master no more.
    let leases = leases();
    assert_said(&leases, &["rbd image disks/disk", "nbd export disk/of tcp"]);
    assert!(!leases.contains("nbd export disk "), "{leases}");
    assert_hidden(&servers.ceph.key);
    delete(tenant, "net-copies");
    // No copy has written to its master.
    for ((master, before), (_, after)) in before.iter().zip(servers.masters()) {
        assert!(*before == after, "a copy has changed {master}");
    }
}

/// Whether the node's file of a copy has what its master begins with.
fn assert_kept(copy: &str, text: &str, kept: bool) {
    let count = "grep -c -a -e \"$2\" /var/lib/disklet/volumes/*-\"$1\" || true";
    let count = on_node(NODE, &["sh", "-c", count, "sh", copy, text]);
    let count: u32 = count.trim().parse().expect("one file");
    assert_eq!(count > 0, kept, "{copy}: {count}");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn guests_use_disks_at_servers_and_copies_of_them() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("net");
    let folder = Folder::new(&tenant);
    let servers = Servers::start(&tenant, &folder);
    let prepared = Prepared::new(&folder, &servers.nbd, &servers.web);
    direct(&tenant, &servers);
    until_nothing_is_left(30, "disks at servers");
    copies(&tenant, &servers);
    until_nothing_is_left(30, "copies of disks at servers");
    drop(prepared);
}

/// The guest runs on without its server, so nobody but the status says what has happened.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_lost_server_is_told_until_it_is_back() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("net-lost");
    let folder = Folder::new(&tenant);
    let server = NbdSocket::start(&tenant, &folder);
    let disks = item("lost", &server.source(), "");
    tenant.apply(&vm("net-lost", &disks, &["stay".to_owned()]));
    tenant.await_console(240, "net-lost", "GUEST-READY");
    let disks_ready = ".status.conditions[?(@.type==\"DisksReady\")].reason";
    tenant.await_field(30, "vm/net-lost", disks_ready, "Prepared");

    drop(server);
    tenant.await_field(120, "vm/net-lost", disks_ready, "ServerLost");
    let said = |kind: &str, what: &str| {
        let path = format!(".status.conditions[?(@.type==\"{kind}\")].{what}");
        tenant.field("vm/net-lost", &path).unwrap_or_default()
    };
    assert_said(
        &said("DisksReady", "message"),
        &["disk lost: nbd server /run/disklet/nbd/"],
    );
    assert_eq!(said("Ready", "status"), "True");

    let server = NbdSocket::start(&tenant, &folder);
    tenant.await_field(60, "vm/net-lost", disks_ready, "Prepared");
    let reasons = "jsonpath={.items[*].reason}";
    let events = tenant.kubectl(&["get", "events", "-o", reasons]);
    assert_said(&events, &["ServerLost", "ServerBack"]);
    delete(&tenant, "net-lost");
    drop(server);
    until_nothing_is_left(30, "a VM whose server was away");
}

/// A server that comes back with another password is there, but not for the guest, whose
/// QEMU tries the old one again and again.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_lost_password_is_told_until_it_is_taken_again() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("net-chap");
    let server = Iscsi::start_lasting(&tenant);
    let (source, secret) = server.chap_source(server.address());
    tenant.apply(&secret);
    let disks = item("chap", &source, "");
    tenant.apply(&vm("net-chap", &disks, &["stay".to_owned()]));
    tenant.await_console(240, "net-chap", "GUEST-READY");
    let disks_ready = ".status.conditions[?(@.type==\"DisksReady\")].reason";
    tenant.await_field(30, "vm/net-chap", disks_ready, "Prepared");

    let right = std::fs::read_to_string(server.password_file()).expect("a password");
    let away = server.vanish();
    tenant.await_field(60, "vm/net-chap", disks_ready, "ServerLost");
    std::fs::write(server.password_file(), "another-secret").expect("room");
    drop(away);
    let refused = "refuses the user or the key that the guest was started with";
    until(90, "it is told that the password is refused", || {
        let told = tenant.condition("net-chap", "DisksReady", "message")?;
        told.contains(refused).then_some(())
    });
    assert_hidden(right.trim());

    let away = server.vanish();
    std::fs::write(server.password_file(), &right).expect("room");
    drop(away);
    tenant.await_field(120, "vm/net-chap", disks_ready, "Prepared");
    delete(&tenant, "net-chap");
    drop(server);
    until_nothing_is_left(30, "a VM whose password was refused");
}
