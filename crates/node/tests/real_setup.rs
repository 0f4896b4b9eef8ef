//! Machines on which VMs cannot run, and what others have put in the way: told
//! at once, with what to do.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disklet::store::Store;
use disklet_block::device::{Access, Caching, FileDevice};
use support::fixtures::{Fixture, Kind};
use support::{Machine, guest};

/// A web server without images; how often it was asked for one.
fn empty_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/tiny", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
    });
    (address, asked)
}

fn configure(machine: &Machine, more: &str) {
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    machine.write("config.yaml", config + more);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_machine_that_cannot_run_vms_fetches_no_image() {
    let machine = Machine::new("no-fetch");
    let fixture = Fixture::new(&machine, "no-fetch", Kind::NewVolume);
    std::fs::remove_dir_all(machine.path("data/images")).unwrap();
    let (address, asked) = empty_server();
    let mapping = format!("translations: [{{name: tiny, url: \"{address}\"}}]\n");
    let mapping = machine.write("mapping.yaml", mapping).display().to_string();
    configure(&machine, &format!("imageTranslations: {mapping}\n"));
    let up = ["up", "-f", &fixture.manifest];

    let nowhere = ["--connect", "qemu+unix:///system?socket=/nonexistent"];
    let refused = machine.refused(&[&up[..], &nowhere].concat());
    assert!(refused.contains("does not answer"), "{refused}");
    assert!(refused.contains("start libvirtd"), "{refused}");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "no daemon");

    configure(&machine, "emulator: /nonexistent/qemu\n");
    let refused = machine.refused(&up);
    let wanted = "libvirt cannot use the emulator /nonexistent/qemu";
    assert!(refused.contains(wanted), "{refused}");
    assert!(refused.contains("help: install QEMU"), "{refused}");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "no emulator");

    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    let config = config.replace("emulator: /nonexistent/qemu\n", "");
    machine.write("config.yaml", config);
    let refused = machine.refused(&up);
    assert!(refused.contains("image tiny"), "{refused}");
    // `up` has no --from.
    let remedy = "help: use disklet images pull tiny: check the image's name, or say with --from";
    assert!(refused.contains(remedy), "{refused}");
    assert!(asked.load(Ordering::SeqCst) > 0, "asked for, now");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_clone_of_what_no_web_server_has_names_the_disk_and_the_address() {
    let machine = Machine::new("web-gone");
    machine.add_image("tiny", &guest::disk());
    let (address, asked) = empty_server();
    let text = format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: web-gone}}\nspec:\n  domain:\n\
         \x20   memory: 64Mi\n    devices:\n      disks:\n\
         \x20     - source: {{image: {{name: virtlet.cloud/tiny}}}}\n\
         \x20     - source: {{http: {{url: '{address}'}}}}\n        copy: {{mode: clone}}\n\
         \x20       target: {{bus: scsi, device: sdb}}\n"
    );
    let manifest = machine.write("vm.yaml", text).display().to_string();
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", &manifest]);
    for part in [
        "disk sdb: ",
        "(status 404)",
        "help: check the address in the disk's source",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(asked.load(Ordering::SeqCst) > 0);
    assert_eq!(machine.things(), before);
}

/// Has libvirt define a domain, as somebody else would.
fn define(machine: &Machine, name: &str, uuid: &str) {
    // By its description the machine knows what is because of it.
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><description>{}</description>\
         <memory unit='MiB'>32</memory><os><type arch='x86_64'>hvm</type></os></domain>",
        machine.path("theirs").display()
    );
    let file = machine.write("foreign.xml", xml);
    machine.virsh(&["define", file.to_str().unwrap()]).unwrap();
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_foreign_domain_is_left_alone_and_told() {
    let machine = Machine::new("foreign");
    let fixture = Fixture::new(&machine, "foreign", Kind::NewVolume);
    machine.run_to_end(&fixture.manifest);
    let uuid = machine.uuid();
    machine.done(&["down", "foreign", "--grace", "0"]);

    let name = format!("{uuid}-vm");
    let other = "11111111-2222-3333-4444-555555555555";
    for (their_name, their_uuid, same) in [
        (name.as_str(), other, "name"),
        ("theirs", &uuid, "UUID"),
        (&name, &uuid, "UUID"),
    ] {
        define(&machine, their_name, their_uuid);
        let before = machine.things();
        let refused = machine.refused(&["up", "-f", &fixture.manifest]);
        for part in [
            format!("a domain {their_name} (UUID {their_uuid}) with this VM's {same}"),
            format!("undefine {their_uuid}"),
            "VirtletSystemUUID".to_owned(),
        ] {
            assert!(refused.contains(&part), "{part}: {refused}");
        }
        assert_eq!(machine.things(), before, "nothing made, nothing removed");
        machine.virsh(&["undefine", their_uuid]).unwrap();
    }
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "foreign", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_container_that_was_renamed_is_told() {
    let machine = Machine::new("renamed");
    let fixture = Fixture::new(&machine, "renamed", Kind::NewVolume);
    machine.run_to_end(&fixture.manifest);
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let renamed = text.replace("- name: vm\n", "- name: machine\n");
    let renamed = machine.write("renamed.yaml", renamed).display().to_string();
    let refused = machine.refused(&["up", "-f", &renamed]);
    assert!(refused.contains("the container was renamed"), "{refused}");
    let remedy = "disklet down default/renamed --keep-volumes";
    assert!(refused.contains(remedy), "{refused}");
    machine.done(&["down", "default/renamed", "--keep-volumes"]);
    machine.run_to_end(&renamed);
    machine.done(&["down", "renamed", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_libvirt_says_names_the_disks_of_the_plan() {
    let machine = Machine::new("whose");
    let fixture = Fixture::new(&machine, "whose", Kind::NewVolume);
    machine.run_to_end(&fixture.manifest);
    let store = Store::of(machine.path("data").to_str().unwrap());
    let image = store.disk(&store.find("tiny").unwrap().unwrap().digest);
    for (file, named) in [
        (machine.volume("virtlet_root_"), "disk root: Failed"),
        (machine.volume("-data"), "disk data: Failed"),
        (image, "] (the master below disk root)?"),
    ] {
        // QEMU finds that somebody else is writing.
        let open = FileDevice::open_writable(&file, Caching::Buffered).unwrap();
        open.lock(Access::Change).unwrap();
        let refused = refused_with_a_reason(&machine, &fixture.manifest);
        drop(open);
        assert!(refused.contains("the VM cannot be started: "), "{refused}");
        assert!(refused.contains(named), "{named}: {refused}");
        for internal in ["[code=", "libvirt-", "{\""] {
            assert!(!refused.contains(internal), "{internal}: {refused}");
        }
    }
    // A QEMU that has just failed may still be about to let go.
    let up = ["up", "-f", &fixture.manifest];
    let goes = (0..10).any(|_| machine.node(&up).status.success());
    assert!(goes, "nobody is in the way any more");
    machine.done(&["down", "whose", "--grace", "0"]);
}

/// Sometimes libvirt only says that QEMU has ended: it looks for the reason
/// before virtlogd has written it down. Then there is nothing to explain.
fn refused_with_a_reason(machine: &Machine, manifest: &str) -> String {
    const MOST: usize = 10;
    let mut told = String::new();
    for _ in 0..MOST {
        told = machine.refused(&["up", "-f", manifest]);
        if told.contains("lock") {
            break;
        }
    }
    told
}
