//! VMs of users who are not root, each with a daemon of their own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use disklet::store::{Gone, Store, StoreError, in_use};
use disklet_core::config::Config;
use disklet_core::names::ImageName;
use support::fixtures::{Fixture, Kind};
use support::nobody::Nobody;
use support::{Machine, guest};

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn users_run_vms_of_their_own() {
    let machine = Machine::new("user");
    let fixture = Fixture::new(&machine, "user", Kind::NewVolume);
    let nobody = Nobody::new(&machine);
    machine.add_image_to(&nobody.data(), "tiny", &guest::disk());
    nobody.own_data();
    let up = nobody.run(&[
        "up",
        "-f",
        &fixture.manifest,
        "--wait",
        "exit",
        "--timeout",
        "6m",
    ]);
    let said = String::from_utf8_lossy(&up.stdout);
    assert!(said.contains("default/user has ended"), "{up:?}");
    let logs = nobody.run(&["logs", "user"]);
    let logs = String::from_utf8_lossy(&logs.stdout);
    assert!(logs.contains(guest::HELLO), "{logs}");
    assert!(nobody.run(&["down", "user"]).status.success());
    assert_eq!(nobody.things(), 0);

    // What only root can do is refused, and leaves nothing.
    let refused = |kind: Kind| {
        let fixture = Fixture::new(&machine, "user", kind);
        let rights = fixture.disk.as_ref().filter(|_| kind == Kind::DiskImage);
        if let Some(disk) = rights {
            std::os::unix::fs::chown(disk, Some(65534), Some(65534)).unwrap();
        }
        let output = nobody.run(&["up", "-f", &fixture.manifest]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(nobody.things(), 0);
        String::from_utf8(output.stderr).unwrap()
    };
    let raw = refused(Kind::RawDevice);
    assert!(raw.contains("disk data: /dev/loop"), "{raw}");
    assert!(raw.contains("Permission denied"), "{raw}");
    assert!(raw.contains("devices of the machine need root"), "{raw}");
    let image = refused(Kind::DiskImage);
    assert!(image.contains("disk data: "), "{image}");
    assert!(image.contains("cannot be mounted on"), "{image}");
    assert!(image.contains("disk images of claims need root"), "{image}");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_users_may_not_is_told_with_what_to_do() {
    let machine = Machine::new("denied");
    let fixture = Fixture::new(&machine, "denied", Kind::NewVolume);
    let nobody = Nobody::new(&machine);
    let said = |arguments: &[&str]| {
        let output = nobody.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Root's configuration, with root's data directory.
    let config = machine.path("config.yaml").display().to_string();
    let data = said(&["up", "-f", &fixture.manifest, "--config", &config]);
    let path = machine.path("data").display().to_string();
    assert!(
        data.contains(&path) && data.contains("Permission denied"),
        "{data}"
    );
    assert!(
        data.contains("help: run this as root, or have directories of your own: dataDir"),
        "{data}"
    );
    let uri = std::env::var("DISKLET_TEST_LIBVIRT_URI").unwrap();
    let daemon = said(&["gc", "--connect", &uri]);
    assert!(daemon.contains("does not let this user in: "), "{daemon}");
    assert!(
        daemon.contains("help: run this as root, or join the group"),
        "{daemon}"
    );
    // A directory for what is shown to QEMU that is somebody else's.
    let data = nobody.data().display().to_string();
    machine.add_image_to(&nobody.data(), "tiny", &guest::disk());
    nobody.own_data();
    std::fs::create_dir_all(machine.run_dir()).unwrap();
    let run = machine.run_dir().display().to_string();
    let config = format!("dataDir: {data}\nrunDir: {run}\ndomainType: qemu\n");
    let config = machine.write("users.yaml", config).display().to_string();
    let fixture = Fixture::new(&machine, "denied", Kind::RawDevice);
    let number = std::fs::metadata(fixture.device()).unwrap();
    std::os::unix::fs::chown(fixture.device(), Some(65534), None).unwrap();
    let shown = said(&["up", "-f", &fixture.manifest, "--config", &config]);
    std::os::unix::fs::chown(fixture.device(), Some(number.uid()), None).unwrap();
    assert!(shown.contains(&format!("disk data: {run}/")), "{shown}");
    assert!(
        shown.contains("help: run this as root, or have directories of your own"),
        "{shown}"
    );
    assert_eq!(nobody.things(), 0);
}

/// `disklet images rm`, said by root.
fn remove_as_root(machine: &Machine, name: &str) -> Result<Vec<Gone>, Vec<StoreError>> {
    let path = |name: &str| machine.path(name).display().to_string();
    let mut config = Config::default().in_directories(path("data"), path("run"));
    config.system_data_dir = None;
    let store = Store::configured(&config);
    let alone = store.to_remove(|| ()).unwrap();
    let uses = in_use(&config).unwrap();
    store.remove(&[ImageName::parse(name).unwrap()], &uses, &alone)
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn users_run_vms_on_the_systems_images() {
    let machine = Machine::new("sys");
    let image = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "on-systems", Kind::NewVolume, &image);
    let nobody = Nobody::beside_root(&machine);
    let system = std::fs::read_dir(machine.path("data/images/sha256")).unwrap();
    let disk = system
        .map(|entry| entry.unwrap().file_name())
        .next()
        .unwrap();
    let link = nobody.data().join("images/sha256").join(&disk);
    let up = ["up", "-f", &fixture.manifest];

    assert_eq!(nobody.done(&up), "default/on-systems started\n");
    let theirs = std::path::Path::new("/var/lib/disklet/images/sha256").join(&disk);
    assert_eq!(std::fs::read_link(&link).unwrap(), theirs);
    let described = nobody.done(&["describe", "on-systems"]);
    assert!(described.contains(link.to_str().unwrap()), "{described}");
    assert!(!described.contains("MISSING"), "{described}");

    // Root sees no record, but QEMU's lock.
    let refused = remove_as_root(&machine, "tiny").unwrap_err();
    assert_eq!(
        refused[0].to_string(),
        "image tiny is in use by a process that has it open"
    );
    end_by_a_key(&nobody);

    // Of a stopped VM root sees nothing. It comes back with its image.
    remove_as_root(&machine, "tiny").unwrap();
    let refused = nobody.run(&up);
    let refused = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.contains("image tiny: it is not known where"),
        "{refused}"
    );
    machine.add_image("tiny", &image);
    assert_eq!(nobody.done(&up), "default/on-systems started\n");
    end_by_a_key(&nobody);

    nobody.done(&["down", "on-systems"]);
    let data = nobody.data();
    assert_eq!(std::fs::read_dir(data.join("volumes")).unwrap().count(), 0);
    assert!(machine.path("data/images/sha256").join(&disk).exists());
}

/// Types the key that the guest waits for, and waits for its end.
fn end_by_a_key(nobody: &Nobody) {
    let mut console = nobody
        .command(&["console", "on-systems"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    console.stdin.as_mut().unwrap().write_all(b"k").unwrap();
    let begun = Instant::now();
    while nobody.done(&["ps"]).contains("running") {
        assert!(begun.elapsed().as_secs() < 180, "it does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    console.wait().unwrap();
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn users_find_out_once_what_really_boots() {
    let machine = Machine::new("kvm");
    let fixture = Fixture::new(&machine, "users-type", Kind::NewVolume);
    let nobody = Nobody::with_kvm(&machine, "0666");
    machine.add_image_to(&nobody.data(), "tiny", &guest::disk());
    nobody.own_data();
    let up = ["up", "-f", &fixture.manifest, "--wait", "exit"];
    let first = nobody.run(&up);
    assert!(first.status.success(), "{first:?}");
    let told = String::from_utf8(first.stderr).unwrap();
    let path = nobody.data().join("domain-type.json");
    let remembered = std::fs::read(&path).unwrap_or_else(|error| panic!("{error}: {told}"));
    let remembered: serde_json::Value = serde_json::from_slice(&remembered).unwrap();
    match remembered["domainType"].as_str().unwrap() {
        "kvm" => assert!(!told.contains("notice: "), "{told}"),
        _ => assert!(
            told.contains("a trial boot by hardware (/dev/kvm) "),
            "{told}"
        ),
    }
    let written = |path| std::fs::metadata(path).unwrap().modified().unwrap();
    let before = written(&path);
    let second = nobody.run(&up);
    assert!(second.status.success(), "{second:?}");
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(!told.contains("notice: "), "{told}");
    assert_eq!(written(&path), before, "asked once");
    nobody.done(&["down", "users-type"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn users_who_may_not_use_hardware_are_told() {
    let machine = Machine::new("nokvm");
    let fixture = Fixture::new(&machine, "users-slow", Kind::NewVolume);
    let nobody = Nobody::with_kvm(&machine, "0600");
    machine.add_image_to(&nobody.data(), "tiny", &guest::disk());
    nobody.own_data();
    let up = nobody.run(&["up", "-f", &fixture.manifest]);
    assert!(up.status.success(), "{up:?}");
    let told = String::from_utf8(up.stderr).unwrap();
    assert!(
        told.contains("slower: /dev/kvm cannot be opened: Permission denied"),
        "{told}"
    );
    assert!(told.contains("help: have the administrator"), "{told}");
    // Once they may, it is tried.
    assert!(!nobody.data().join("domain-type.json").exists());
    nobody.done(&["down", "users-slow", "--grace", "0"]);
}
