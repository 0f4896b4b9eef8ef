//! What pools promise, and to whom no more.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
#[path = "network/disks.rs"]
mod disks;
mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::servers::{Kind, Server};
use support::{Machine, guest};

const MIB: u64 = 1 << 20;

/// A filesystem of 64 MiB, as a pool of which half as much again may be promised.
struct Small(PathBuf);

impl Small {
    fn beside(machine: &Machine) -> Self {
        Self::overcommitted(machine, "1.5")
    }

    fn overcommitted(machine: &Machine, times: &str) -> Self {
        let path = machine.path("fast");
        std::fs::create_dir_all(&path).unwrap();
        let options = "size=64m,mode=711";
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(mounted.success());
        pool(machine, &path, times);
        Self(path)
    }
}

/// The pool `fast` is there.
fn pool(machine: &Machine, path: &Path, overcommit: &str) {
    let config = machine.path("config.yaml");
    let mut text = std::fs::read_to_string(&config).unwrap();
    let path = path.display();
    text += &format!("pools:\n  fast: {{path: {path}, overcommit: {overcommit}}}\n");
    std::fs::write(config, text).unwrap();
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A VM that is not started, with a copy of the image in the pool.
fn manifest(machine: &Machine, name: &str, mode: &str) -> String {
    let text = format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: {name}}}\n\
         spec:\n  running: false\n  domain:\n    memory: 64Mi\n    devices:\n      disks:\n\
         \x20     - source: {{image: {{name: virtlet.cloud/forty}}}}\n\
         \x20       copy: {{mode: {mode}, usage-type: fast}}\n"
    );
    let file = machine.write(&format!("{name}.yaml"), text);
    file.display().to_string()
}

fn fast(machine: &Machine) -> Value {
    let listed = machine.done(&["pools", "ls", "-o", "json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    let mut pools = listed.into_iter();
    pools.find(|pool| pool["name"] == "fast").unwrap()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn no_more_is_promised_than_the_limit() {
    let machine = Machine::new("pools");
    let _small = Small::beside(&machine);
    let mut disk = guest::disk();
    disk.resize(40 << 20, 0);
    machine.add_image("forty", &disk);
    let before = machine.things();
    assert_eq!(fast(&machine)["promised"], 0);
    assert_eq!(fast(&machine)["limit"], 96 * MIB);

    let [first, second, third] =
        ["pooled-1", "pooled-2", "pooled-3"].map(|name| manifest(&machine, name, "copy-on-write"));
    machine.done(&["up", "-f", &first]);
    machine.done(&["up", "-f", &second]);
    let pool = fast(&machine);
    assert_eq!(pool["promised"], 80 * MIB);
    assert_eq!(
        pool["vms"],
        serde_json::json!(["default/pooled-1", "default/pooled-2"])
    );
    assert!(pool["used"].as_u64().unwrap() > 0 && pool["used"].as_u64().unwrap() < 8 * MIB);

    // Who has its share already keeps it, and takes no second.
    machine.done(&["up", "-f", &second]);
    assert_eq!(fast(&machine)["promised"], 80 * MIB);

    let full = machine.things();
    let refused = machine.refused(&["up", "-f", &third]);
    assert!(
        refused.contains("pool fast cannot promise 40.0 MiB more: 80.0 MiB of 96.0 MiB"),
        "{refused}"
    );
    assert!(refused.contains("disklet pools ls"), "{refused}");
    assert_eq!(
        machine.things(),
        full,
        "nothing is left of what was refused"
    );

    let table = machine.done(&["pools", "ls"]);
    let line = table.lines().find(|line| line.starts_with("fast")).unwrap();
    assert!(
        line.contains("64.0 MiB") && line.contains("96.0 MiB"),
        "{table}"
    );

    machine.done(&["down", "pooled-1", "--keep-volumes"]);
    machine.refused(&["up", "-f", &third]);
    machine.done(&["down", "pooled-1"]);
    machine.done(&["up", "-f", &third]);
    machine.done(&["down", "pooled-2", "pooled-3"]);
    assert_eq!(fast(&machine)["promised"], 0);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn two_at_once_do_not_share_a_promise() {
    let machine = Machine::new("pools-race");
    let _small = Small::beside(&machine);
    let mut disk = guest::disk();
    disk.resize(40 << 20, 0);
    machine.add_image("forty", &disk);
    let before = machine.things();
    let names = ["a", "b", "c", "d"];
    let manifests = names.map(|name| manifest(&machine, name, "clone"));
    let begun = manifests.each_ref().map(|manifest| {
        let mut up = machine.command(&["up", "-f", manifest]);
        up.stderr(std::process::Stdio::null()).spawn().unwrap()
    });
    let ended = begun.map(|mut up| up.wait().unwrap().success());
    assert_eq!(ended.iter().filter(|done| **done).count(), 2, "{ended:?}");
    for (name, done) in names.iter().zip(ended) {
        if done {
            machine.done(&["down", name]);
        }
    }
    assert_eq!(machine.things(), before);
}

/// A disk under another name is another volume; the first one is still there.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn volumes_that_a_vm_has_no_more_are_still_promised() {
    let machine = Machine::new("pools-other-disk");
    let _small = Small::beside(&machine);
    let mut disk = guest::disk();
    disk.resize(40 << 20, 0);
    machine.add_image("forty", &disk);
    let before = machine.things();
    let named = |disk: &str| {
        let text =
            std::fs::read_to_string(manifest(&machine, "other-disk", "copy-on-write")).unwrap();
        let text = text.replace(
            "      - source",
            &format!("      - name: {disk}\n        source"),
        );
        let file = machine.write("other-disk.yaml", text);
        file.display().to_string()
    };
    for (nth, disk) in (1..).zip(["one", "two"]) {
        machine.done(&["up", "-f", &named(disk)]);
        assert_eq!(fast(&machine)["promised"], nth * 40 * MIB, "{disk}");
        machine.done(&["up", "-f", &named(disk)]);
        assert_eq!(fast(&machine)["promised"], nth * 40 * MIB, "{disk} again");
    }
    let refused = machine.refused(&["up", "-f", &named("three")]);
    assert!(refused.contains("80.0 MiB of 96.0 MiB"), "{refused}");
    machine.done(&["down", "other-disk"]);
    assert_eq!(fast(&machine)["promised"], 0);
    assert_eq!(machine.things(), before);
}

/// What a disk grows by while its VM runs is promised as well.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_disk_grows_within_the_limit() {
    let machine = Machine::new("grows-in-a-pool");
    // A disk that libvirtd sees, too, and that is smaller than what no volume may have.
    let path = machine.path("fast");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)).unwrap();
    pool(&machine, &path, "1");
    machine.add_image("tiny", &guest::waiting_disk());
    let text = "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {name: grows}\n\
         spec:\n  domain:\n    memory: 64Mi\n    devices:\n      disks:\n\
         \x20     - {name: root, source: {image: {name: virtlet.cloud/tiny}}}\n\
         \x20     - name: data\n        source: {image: {name: virtlet.cloud/tiny}}\n\
         \x20       copy: {mode: copy-on-write, usage-type: fast, size: 40Mi}\n";
    let file = machine.write("grows.yaml", text);
    machine.done(&["up", "-f", &file.display().to_string()]);
    assert_eq!(fast(&machine)["promised"], 40 * MIB);
    machine.done(&["disk", "resize", "grows", "data", "90Mi"]);
    assert_eq!(fast(&machine)["promised"], 90 * MIB);
    let refused = machine.refused(&["disk", "resize", "grows", "data", "15Ti"]);
    assert!(
        refused.contains("pool fast cannot promise 14.9 TiB more: 90.0 MiB of "),
        "{refused}"
    );
    assert_eq!(fast(&machine)["promised"], 90 * MIB);
    machine.done(&["down", "grows", "--grace", "0"]);
    assert_eq!(fast(&machine)["promised"], 0);
}

/// How large a disk at a server is, only the server knows. What is made of it counts all the
/// same, before it is made.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn copies_of_disks_at_servers_are_promised_as_well() {
    let machine = Machine::beside_servers("pools-served");
    let small = Small::overcommitted(&machine, "0.13");
    machine.add_image("tiny", &guest::waiting_disk());
    let nothing = machine.things();
    let server = Server::start(Kind::Nbd);
    let disk = disks::nbd(&server, "tcp");
    let size = server.number("/bytes");
    // Two have room in an eighth of the pool, and no third.
    assert_eq!(size, 4 * MIB);
    let copied = |name: &str, mode: &str| {
        let root = "      - source: {image: {name: virtlet.cloud/tiny}}\n";
        let item = disk.item(&format!(
            "        name: data\n        copy: {{mode: {mode}, usage-type: fast}}\n"
        ));
        let text = disks::vm(name, &format!("{root}{item}"), &disk.objects);
        // The daemon has no part in it: it does not see what is mounted here.
        let text = text.replacen("spec:\n", "spec:\n  running: false\n", 1);
        let file = machine.write(&format!("{name}.yaml"), text);
        file.display().to_string()
    };
    let modes = ["copy-on-write", "clone"];
    let mut names = Vec::new();
    for (nth, mode) in (0..2).zip(modes) {
        let name = format!("pools-served-{nth}");
        let manifest = copied(&name, mode);
        // Said twice, it is promised once.
        machine.done(&["up", "-f", &manifest]);
        machine.done(&["up", "-f", &manifest]);
        names.push(name);
        assert_eq!(fast(&machine)["promised"], (nth + 1) * size, "{mode}");
    }
    for mode in ["copy-on-write", "clone"] {
        let manifest = copied("pools-served-beyond", mode);
        let refused = machine.refused(&["up", "-f", &manifest]);
        assert!(
            refused.contains("disk data: pool fast cannot promise"),
            "{refused}"
        );
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    machine.done(&[&["down", "--grace", "0"], &names[..]].concat());
    assert_eq!(machine.things(), nothing);
    drop(small);
}
