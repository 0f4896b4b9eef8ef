//! Tenants who put something else where a disk image should be: refused with a reason,
//! and never opened.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use kube::guests::{have_small_guest, things, vm};
use kube::storage::{Folder, claim, disk, is_open, local, read_only, write_disk};
use kube::{Tenant, until};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

const READY: &str = ".status.conditions[?(@.type==\"Ready\")]";

/// A VM of its claim's name, and the claim with its volume.
fn vm_with(tenant: &Tenant, name: &str, volume: &Path) -> String {
    let volume = claim(tenant, name, "Filesystem", &local(volume));
    volume + &vm(name, &disk(name, ""), &[read_only(name)])
}

/// Makes something that is no disk image.
type Trap = fn(image: &Path, secret: &Path);

const TRAPS: [(&str, Trap, &str); 7] = [
    (
        "file",
        |image, secret| symlink(secret, image).expect("a link"),
        "a symbolic link",
    ),
    (
        "shadow",
        |image, _| symlink("/etc/shadow", image).expect("a link"),
        "a symbolic link",
    ),
    (
        "device",
        |image, _| symlink("/dev/loop0", image).expect("a link"),
        "a symbolic link",
    ),
    (
        "directory",
        |image, _| fs::create_dir(image).expect("a directory"),
        "a directory",
    ),
    ("fifo", |image, _| node(image, FileType::Fifo), "a FIFO"),
    (
        "node",
        |image, _| node(image, FileType::CharacterDevice),
        "a device",
    ),
    (
        "names",
        |image, secret| fs::hard_link(secret, image).expect("a link"),
        "has 2 names",
    ),
];

fn node(image: &Path, kind: FileType) {
    mknodat(CWD, image, kind, Mode::from_raw_mode(0o666), 0).expect("root");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn nothing_but_a_file_of_the_volume_is_a_disk_image() {
    have_small_guest();
    let tenant = Tenant::new("traps");
    let folder = Folder::new(&tenant);
    let secret = folder.0.join("of-another-tenant");
    write_disk(&secret, "SECRET");
    let mut manifests = String::new();
    for (name, trap, _) in TRAPS {
        let volume = folder.volume(name);
        trap(&volume.join("disk.img"), &secret);
        manifests += &format!(
            "{}---\n",
            vm_with(&tenant, &format!("trap-{name}"), &volume)
        );
    }
    tenant.apply(&manifests);
    for (name, _, why) in TRAPS {
        let vm = format!("vm/trap-{name}");
        tenant.await_field(120, &vm, &format!("{READY}.reason"), "NotStarted");
        let message = tenant.field(&vm, &format!("{READY}.message"));
        let message = message.expect("a message");
        assert!(
            message.contains("disk sdb") && message.contains(why),
            "{message}"
        );
    }
    let shown = tenant.kubectl(&["get", "vms", "-o", "wide"]);
    assert_eq!(shown.matches("NotStarted").count(), TRAPS.len(), "{shown}");
    let left = things();
    assert!(!left.contains("-trap-"), "{left}");
    assert!(
        !is_open(&secret),
        "somebody has the other tenant's file open"
    );
}

/// Exchanges two names as fast as it can, until it is dropped.
struct Swapper<'s>(&'s AtomicBool);

impl Drop for Swapper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Leaves the image where it belongs in the end.
fn swap(volumes: &[PathBuf], end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        for volume in volumes {
            exchange(volume);
        }
    }
    for volume in volumes {
        let image = fs::symlink_metadata(volume.join("disk.img"));
        if image.is_ok_and(|image| image.is_symlink()) {
            exchange(volume);
        }
    }
}

fn exchange(volume: &Path) {
    let (image, link) = (volume.join("disk.img"), volume.join("link"));
    renameat_with(CWD, &image, CWD, &link, RenameFlags::EXCHANGE).expect("both are there");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_link_that_is_swapped_in_while_a_vm_starts_is_not_followed() {
    have_small_guest();
    let tenant = Tenant::new("swaps");
    let folder = Folder::new(&tenant);
    let secret = folder.0.join("of-another-tenant");
    write_disk(&secret, "SECRET");
    let names = ["swap-one", "swap-two"];
    let volumes = names.map(|name| folder.volume(name));
    let mut manifests = String::new();
    for (name, volume) in names.iter().zip(&volumes) {
        write_disk(&volume.join("disk.img"), "OWN");
        symlink(&secret, volume.join("link")).expect("a link");
        manifests += &format!("{}---\n", vm_with(&tenant, name, volume));
    }
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let swapper = Swapper(&end);
        scope.spawn(|| swap(&volumes, &end));
        tenant.apply(&manifests);
        for name in names {
            // Either is right: it depends on the moment.
            until(120, "the VM has started, or has not", || {
                let reason = tenant.field(&format!("vm/{name}"), &format!("{READY}.reason"));
                reason.filter(|it| ["Running", "NotStarted", "Ended"].contains(&it.as_str()))
            });
        }
        assert!(
            !is_open(&secret),
            "somebody has the other tenant's file open"
        );
        drop(swapper);
    });
    // Those that were refused are started again, now that the volumes are at rest.
    for name in names {
        let console = tenant.await_console(180, name, "GUEST-END");
        assert!(console.contains(&format!("{name} READS OWN")), "{console}");
        assert!(!console.contains("SECRET"), "{console}");
    }
}
