//! VMs whose disks are at servers: real ones, read by a guest that really runs.
//! And every domain that the plan can have of such a disk, judged by libvirt
//! and QEMU, which open it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "network/disks.rs"]
mod disks;
#[path = "network/matrix.rs"]
mod matrix;
mod support;
#[path = "network/trust.rs"]
mod trust;
#[path = "../../disklet/tests/support/xml.rs"]
mod xml;

use disks::{ServerDisk, vm};
use support::daemon::is_beside_own;
use support::servers::{Kind, Server};
use support::things::with_secrets;
use support::{Machine, guest};
use trust::CERTIFICATES;

/// Boots a VM from an image, has its guest read the first line of each further
/// disk, and removes it.
fn assert_guest_reads(machine: &Machine, name: &str, items: &str, objects: &str, texts: &[&str]) {
    let further = u8::try_from(texts.len()).unwrap();
    machine.add_image("tiny", &guest::reading_disk(further));
    let root = "      - source: {image: {name: virtlet.cloud/tiny}}\n        bootOrder: 1\n";
    let text = vm(name, &format!("{root}{items}"), objects);
    let manifest = machine.write("vm.yaml", text).display().to_string();
    let before = machine.things();
    machine.run_to_end(&manifest);
    let log = machine.done(&["logs", name]).replace('\r', "");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines, [&[guest::HELLO], texts].concat());
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

/// The same for disks as they are written in a VM's manifest.
fn assert_direct(machine: &Machine, name: &str, disks: &[ServerDisk]) {
    let items = disks.iter().enumerate().map(|(index, disk)| {
        let access = match disk.writable {
            true => "write-exclusive",
            false => "read-only",
        };
        disk.item(&format!(
            "        access-mode: {access}\n        bootOrder: {}\n",
            index + 2
        ))
    });
    let items: String = items.collect();
    let mut objects: Vec<_> = disks.iter().map(|disk| disk.objects.as_str()).collect();
    objects.dedup();
    let texts: Vec<_> = disks.iter().map(|disk| disk.text.as_str()).collect();
    assert_guest_reads(machine, name, &items, &objects.concat(), &texts);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_an_rbd_image() {
    let machine = Machine::new("net-rbd");
    let _secrets = with_secrets();
    assert_direct(&machine, "net-rbd", &[disks::rbd()]);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_units_with_and_without_a_password() {
    let machine = Machine::new("net-iscsi");
    let _secrets = with_secrets();
    let named = Some("iqn.2024-01.test.disklet:guest");
    let all = [
        disks::iscsi_open(),
        disks::iscsi_chap("chap", None),
        disks::iscsi_chap("second", named),
    ];
    assert_direct(&machine, "net-iscsi", &all);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_nbd_exports_of_ports_and_of_a_socket() {
    let machine = Machine::new("net-nbd");
    let server = Server::shared(Kind::Nbd);
    let all = [
        disks::nbd(server, "tcp"),
        disks::nbd(server, "empty"),
        disks::nbd_socket(machine.run_dir()),
    ];
    assert_direct(&machine, "net-nbd", &all);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_a_file_of_gluster() {
    let machine = Machine::new("net-gluster");
    assert_direct(&machine, "net-gluster", &[disks::gluster()]);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_a_file_of_a_web_server() {
    let machine = Machine::new("net-http");
    let server = Server::shared(Kind::Http);
    assert_direct(&machine, "net-http", &[disks::web(server, "http")]);
}

/// The guest's own commands go through to the unit, whose first line it reads so.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_a_unit_as_it_is() {
    let machine = Machine::new("net-lun");
    let unit = disks::iscsi_open();
    let fields = "        device: lun\n        bootOrder: 2\n";
    assert_guest_reads(&machine, "net-lun", &unit.item(fields), "", &[&unit.text]);
}

/// QEMU opens it; the smallest guest reads no CD-ROM.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_file_of_a_web_server_is_a_cd_rom() {
    let machine = Machine::new("net-cdrom");
    machine.add_image("tiny", &guest::waiting_disk());
    let root = "      - source: {image: {name: virtlet.cloud/tiny}}\n";
    let file = disks::web(Server::shared(Kind::Http), "http");
    let fields =
        "        device: cdrom\n        access-mode: read-only\n        target: {bus: sata}\n";
    let text = vm("net-cdrom", &format!("{root}{}", file.item(fields)), "");
    let manifest = machine.write("vm.yaml", text).display().to_string();
    let before = machine.things();
    machine.done(&["up", "-f", &manifest]);
    let uuid = machine.uuid_of("net-cdrom");
    let devices = machine.virsh_done(&["domblklist", "--details", &uuid]);
    let is_it = |line: &str| line.contains("network") && line.contains("cdrom");
    assert!(devices.lines().any(is_it), "{devices}");
    machine.done(&["down", "net-cdrom", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

/// What the server does not have is told of the disk, with a remedy.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_start_that_a_server_refuses_is_told_of_the_disk() {
    let machine = Machine::new("net-refused");
    machine.add_image("tiny", &guest::waiting_disk());
    let before = machine.things();
    let root = "      - source: {image: {name: virtlet.cloud/tiny}}\n";
    let (nbd, web) = (Server::shared(Kind::Nbd), Server::shared(Kind::Http));
    let (unit, export) = (disks::iscsi_open(), disks::nbd(nbd, "tcp"));
    let file = disks::web(web, "http");
    let name = nbd.text("/tcp/export");
    for (disk, right, wrong, said) in [
        (&unit, ", lun: ", ", lun: 9", "disk data: iscsi "),
        (&export, name, "nosuch", "disk data: nbd export nosuch at "),
        (&file, web.text("/raw"), "no/such.raw", "disk data: http://"),
    ] {
        let source = disk.source.replace(right, wrong);
        assert_ne!(source, disk.source);
        let data = format!(
            "      - source: {{{source}}}\n        name: data\n        access-mode: read-only\n"
        );
        let manifest = machine.write("vm.yaml", vm("net-refused", &format!("{root}{data}"), ""));
        let refused = machine.refused(&["up", "-f", manifest.to_str().unwrap()]);
        let words = format!("the VM cannot be started: {said}");
        assert!(refused.contains(&words), "{refused}");
        assert!(!refused.contains("-blockdev"), "{refused}");
        assert!(
            refused.contains("help: check that the server has"),
            "{refused}"
        );
        assert_eq!(machine.things(), before);
    }
}

/// QEMU has the certificates of its node, for NBD as for the web.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_what_is_encrypted() {
    let machine = Machine::new("net-tls");
    let certificates = machine.path("");
    let settings = [(CERTIFICATES, certificates.to_str().unwrap())];
    if !is_beside_own("a_guest_reads_what_is_encrypted", &settings) {
        return;
    }
    let (nbd, web) = (Server::start(Kind::Nbd), Server::start(Kind::Http));
    let both = [disks::nbd(&nbd, "tls"), disks::web(&web, "https")];
    let certificates = std::env::var(CERTIFICATES).unwrap();
    trust::give_certificates(&nbd, &certificates);
    // An authority that nobody knows is not trusted.
    let text = vm(
        "net-unknown",
        &both[1].item("        access-mode: read-only\n"),
        "",
    );
    let unknown = machine.write("unknown.yaml", text);
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", unknown.to_str().unwrap()]);
    assert!(
        refused.contains("server certificate verification failed"),
        "{refused}"
    );
    assert!(
        refused.contains("help: check the certificates"),
        "{refused}"
    );
    assert_eq!(machine.things(), before);
    trust::trust(&machine, web.text("/caFile"), false);
    assert_direct(&machine, "net-tls", &both);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_guest_reads_claims_of_volumes_at_servers() {
    let machine = Machine::new("net-claims");
    let _secrets = with_secrets();
    let (ceph, iscsi) = (Server::shared(Kind::Ceph), Server::shared(Kind::Iscsi));
    let unit = format!(
        "iscsi: {{targetPortal: '{}:{}', iqn: '{}', lun: {}, chapAuthSession: true, secretRef: {{name: chap}}}}",
        iscsi.text("/host"),
        iscsi.number("/port"),
        iscsi.text("/second/iqn"),
        iscsi.number("/second/lun"),
    );
    let image = format!(
        "rbd: {{monitors: ['{}:{}'], pool: {}, image: {}, user: {}, secretRef: {{name: ceph}}}}",
        ceph.text("/monitors/0/host"),
        ceph.number("/monitors/0/port"),
        ceph.text("/pool"),
        ceph.text("/image"),
        ceph.text("/user"),
    );
    let objects = [
        claim("unit", &unit),
        claim("image", &image),
        disks::chap_secret(iscsi),
        disks::ceph_secret(ceph),
    ];
    // As the two documents write claims.
    let items = "      - type: PersistentVolumeClaim\n        source: {name: unit}\n        target: {bus: scsi, device: sdc}\n        bootOrder: 2\n\
                 \x20     - source: {pvc: {claimname: image}}\n        driver: {name: qemu}\n        bootOrder: 3\n";
    let texts = [iscsi.text("/second/text"), ceph.text("/text")];
    assert_guest_reads(&machine, "net-claims", items, &objects.concat(), &texts);
}

/// A claim, and the volume that it is bound to.
fn claim(name: &str, source: &str) -> String {
    let modes = "accessModes: [ReadWriteOnce]";
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\n\
         spec: {{{modes}, storageClassName: '', volumeName: {name}, resources: {{requests: {{storage: 4Mi}}}}}}\n\
         ---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\n\
         spec: {{{modes}, capacity: {{storage: 4Mi}}, {source}}}\n"
    )
}

/// Who holds a storage is a VM that runs, whatever the storage is called.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_unit_has_one_vm_unless_all_agree_to_share() {
    let machine = Machine::new("net-lease");
    let server = Server::shared(Kind::Iscsi);
    machine.add_image("tiny", &guest::waiting_disk());
    let manifest = |name: &str, host: &str, iqn: &str, access: &str| {
        let root = "      - source: {image: {name: virtlet.cloud/tiny}}\n";
        let unit = format!(
            "      - source: {{iscsi: {{host: {{name: '{host}', port: {}}}, portal: '{iqn}', lun: {}}}}}\n        access-mode: {access}\n",
            server.number("/port"),
            server.number("/open/lun"),
        );
        let file = format!("{name}-{access}.yaml");
        let file = machine.write(&file, vm(name, &format!("{root}{unit}"), ""));
        file.display().to_string()
    };
    let iqn = server.text("/open/iqn");
    let (slashed, loud) = (format!("{iqn}/"), iqn.to_uppercase());
    let one = |access: &str| manifest("net-lease-one", "127.0.0.1", iqn, access);
    let two = |access: &str| manifest("net-lease-two", "localhost", &slashed, access);
    let before = machine.things();

    machine.done(&["up", "-f", &one("write-exclusive")]);
    let held = machine.things();
    for access in ["write-exclusive", "write-shared", "read-only"] {
        let other = manifest("net-lease-loud", "localhost", &loud, access);
        let refused = machine.refused(&["up", "-f", &other]);
        let unit = format!("iscsi unit {iqn}/1 is in use by VM default/net-lease-one");
        assert!(refused.contains(&unit), "{refused}");
        assert_eq!(machine.things(), held);
    }
    // Only while it runs.
    machine.destroy("net-lease-one");
    machine.done(&["up", "-f", &two("write-exclusive")]);
    let refused = machine.refused(&["up", "-f", &one("write-exclusive")]);
    assert!(refused.contains("VM default/net-lease-two"), "{refused}");
    machine.done(&["down", "net-lease-one", "net-lease-two", "--grace", "0"]);

    machine.done(&["up", "-f", &one("write-shared"), "-f", &two("write-shared")]);
    let third = manifest("net-lease-three", "127.0.0.1", iqn, "read-only");
    let refused = machine.refused(&["up", "-f", &third]);
    assert!(
        refused.contains("is in use by VM default/net-lease-"),
        "{refused}"
    );
    machine.done(&["down", "net-lease-one", "net-lease-two", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}
