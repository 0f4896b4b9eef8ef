//! Directories that are not ours, in which we have our places.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use support::Machine;
use support::daemon::is_beside_own;
use support::fixtures::{Fixture, Kind};

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

/// A VM with a device, and a run directory that somebody has made.
fn set_up(name: &str, mode: u32) -> (Machine, Fixture) {
    let machine = Machine::new(name);
    let fixture = Fixture::new(&machine, name, Kind::RawDevice);
    std::fs::create_dir_all(machine.run_dir()).unwrap();
    set_mode(machine.run_dir(), mode);
    (machine, fixture)
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_directory_of_others_keeps_its_rights() {
    for existing in [0o1777, 0o755, 0o700] {
        let name = format!("rights-{existing:o}");
        let (machine, fixture) = set_up(&name, existing);
        let before = machine.things();
        machine.run_to_end(&fixture.manifest);
        assert_eq!(mode(machine.run_dir()), existing, "after up");
        assert_eq!(mode(&machine.run_dir().join("vms")), 0o711);
        machine.done(&["gc"]);
        machine.done(&["down", &name]);
        assert_eq!(mode(machine.run_dir()), existing, "after down");
        assert_eq!(machine.things(), before);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_directory_that_others_can_meddle_with_is_refused() {
    let (machine, fixture) = set_up("unsafe-dir", 0o777);
    let run_dir = machine.run_dir();
    let before = machine.things();
    let refused = |advice: &str| {
        let refused = machine.refused(&["up", "-f", &fixture.manifest]);
        assert!(
            refused.contains("default/unsafe-dir: disk data: "),
            "{refused}"
        );
        assert!(refused.contains(advice), "{advice}: {refused}");
        assert!(refused.contains("runDir"), "{refused}");
        assert_eq!(machine.things(), before);
    };
    refused(&format!("say chmod go-w {}", run_dir.display()));
    assert_eq!(mode(run_dir), 0o777, "left alone");
    set_mode(run_dir, 0o1777);
    std::os::unix::fs::chown(run_dir, Some(65534), None).unwrap();
    refused(&format!("say chown 0 {}", run_dir.display()));
    std::os::unix::fs::chown(run_dir, Some(0), None).unwrap();

    // Somebody was there before us.
    let vms = run_dir.join("vms");
    std::fs::create_dir(&vms).unwrap();
    refused(&format!("say chmod 711 {}", vms.display()));
    std::os::unix::fs::chown(&vms, Some(65534), None).unwrap();
    refused(&format!("say rm -r {}", vms.display()));
    std::fs::remove_dir(&vms).unwrap();
    std::os::unix::fs::symlink("/", &vms).unwrap();
    let linked = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(linked.contains("vms: is not a directory"), "{linked}");
    std::fs::remove_file(&vms).unwrap();

    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "unsafe-dir"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_directory_that_qemu_cannot_pass_is_refused() {
    let test = "a_directory_that_qemu_cannot_pass_is_refused";
    if !is_beside_own(test, &[("LIBVIRTD_QEMU_USER", "libvirt-qemu")]) {
        return;
    }
    let (machine, fixture) = set_up("no-way", 0o700);
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    assert!(refused.contains("cannot be passed by user "), "{refused}");
    let advice = format!("say chmod o+x {}", machine.run_dir().display());
    assert!(refused.contains(&advice), "{refused}");
    assert_eq!(machine.things(), before);
    set_mode(machine.run_dir(), 0o701);
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "no-way"]);
    assert_eq!(machine.things(), before);
}
