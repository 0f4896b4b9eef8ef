//! What a daemon does to VMs: it runs QEMU as somebody else, or promises
//! hardware that does not work.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::os::unix::fs::MetadataExt;

use support::Machine;
use support::daemon::is_beside_own;
use support::fixtures::{Fixture, Kind};

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn qemu_opens_its_disks_as_a_user_of_its_own() {
    let test = "qemu_opens_its_disks_as_a_user_of_its_own";
    if !is_beside_own(test, &[("LIBVIRTD_QEMU_USER", "libvirt-qemu")]) {
        return;
    }
    for kind in Kind::LOCAL {
        let name = format!("own-user-{kind:?}").to_lowercase();
        let machine = Machine::new(&name);
        let fixture = Fixture::new(&machine, &name, kind);
        let before = machine.things();
        if kind == Kind::DiskImage {
            let image = fixture.disk.as_ref().unwrap();
            let refused = machine.refused(&["up", "-f", &fixture.manifest]);
            assert!(refused.contains("may not write to it"), "{refused}");
            assert_eq!(machine.things(), before);
            let user: u32 = refused
                .split("runs as user ")
                .nth(1)
                .and_then(|rest| rest.split(' ').next())
                .and_then(|user| user.parse().ok())
                .unwrap();
            std::os::unix::fs::chown(image, Some(user), None).unwrap();
        }
        machine.run_to_end(&fixture.manifest);
        machine.done(&["down", &name, "--grace", "0"]);
        assert_eq!(machine.things(), before, "{kind:?}");
        if let Some(disk) = &fixture.disk {
            // Nothing outside our own directories has changed hands; a disk
            // image that was made is QEMU's from the beginning.
            let owner = std::fs::metadata(disk).unwrap().uid();
            let qemus = [Kind::DiskImage, Kind::Object];
            assert_eq!(owner == 0, !qemus.contains(&kind), "{kind:?}");
        }
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn the_domain_type_is_what_really_boots() {
    let machine = Machine::new("auto");
    let fixture = Fixture::new(&machine, "auto", Kind::NewVolume);
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    machine.write(
        "config.yaml",
        config.replace("domainType: qemu", "domainType: auto"),
    );
    machine.run_to_end(&fixture.manifest);
    let remembered = machine.path("data/domain-type.json");
    let first = std::fs::metadata(&remembered).unwrap().mtime_nsec();
    machine.run_to_end(&fixture.manifest);
    let second = std::fs::metadata(&remembered).unwrap().mtime_nsec();
    assert_eq!(first, second, "asked once");
    machine.done(&["down", "auto", "--grace", "0"]);
    assert_eq!(
        std::fs::read_dir(machine.path("data"))
            .unwrap()
            .filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                name.to_str().unwrap().starts_with("trial-")
            })
            .count(),
        0
    );
}

/// An `up` with an emulator that refuses trial boots whose command lines have
/// this in them; what it says beside its answer.
fn up_without_trials(machine: &Machine, manifest: &str, refused: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let script = format!(
        "#!/bin/bash\ncase \"$*\" in\n*disklet-trial*{refused}*) echo no trials here >&2; exit 1 ;;\nesac\n\
         exec /usr/bin/qemu-system-x86_64 \"$@\"\n"
    );
    let emulator = machine.write(&format!("emulator{}", refused.len()), script);
    std::fs::set_permissions(&emulator, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    let config = config.lines().filter(|line| line.contains("Dir:"));
    let config: Vec<_> = config.collect();
    let config = format!(
        "{}\ndomainType: auto\nemulator: {}\n",
        config.join("\n"),
        emulator.display()
    );
    machine.write("config.yaml", config);
    let output = machine.node(&["up", "-f", manifest, "--wait", "exit", "--timeout", "6m"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn why_a_trial_has_failed_is_told() {
    let machine = Machine::new("no-trials");
    let fixture = Fixture::new(&machine, "no-trials", Kind::NewVolume);
    let remembered = machine.path("data/domain-type.json");
    let told = up_without_trials(&machine, &fixture.manifest, "");
    assert!(told.starts_with("notice: guests run in software"), "{told}");
    assert!(told.contains("a trial boot has failed: "), "{told}");
    assert!(told.contains("no trials here"), "{told}");
    assert!(!remembered.exists(), "nothing was shown");

    let told = up_without_trials(&machine, &fixture.manifest, "kvm");
    let failed = "a trial boot by hardware (/dev/kvm) has failed: ";
    assert!(told.contains(failed), "{told}");
    assert!(told.contains("no trials here"), "{told}");
    let remembered = std::fs::read_to_string(remembered).unwrap();
    assert!(
        remembered.contains("\"domainType\": \"qemu\""),
        "{remembered}"
    );
    machine.done(&["down", "no-trials", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn root_starts_the_daemon_where_nobody_has() {
    let machine = Machine::new("no-daemon");
    let fixture = Fixture::new(&machine, "no-daemon", Kind::NewVolume);
    let inside = |arguments: &[&str]| {
        let command = machine.command(arguments);
        let arguments: Vec<_> = command.get_args().collect();
        std::process::Command::new("bash")
            .arg(support::daemon::repository().join("script/lib/libvirtd.sh"))
            .args(["--none", env!("CARGO_BIN_EXE_disklet-node")])
            .args(arguments)
            // An empty one is none.
            .env("LIBVIRT_DEFAULT_URI", "")
            .output()
            .unwrap()
    };
    let up = [
        "up",
        "-f",
        &fixture.manifest,
        "--wait",
        "exit",
        "--timeout",
        "6m",
    ];
    let output = inside(&up);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("starting virtlogd and libvirtd"), "{said}");
    let done = String::from_utf8_lossy(&output.stdout);
    assert!(
        done.contains("default/no-daemon has ended"),
        "{done} {said}"
    );
    let output = inside(&["down", "no-daemon"]);
    assert!(output.status.success(), "{output:?}");
}
