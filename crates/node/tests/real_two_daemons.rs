//! One data directory, and VMs at two daemons.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use support::daemon::SecondDaemon;
use support::fixtures::{Fixture, Kind};
use support::{Machine, guest};

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_device_of_a_vm_at_another_daemon_is_in_use() {
    let machine = Machine::new("two-daemons");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "at-first", Kind::PersistentRoot, &guest);
    let second = SecondDaemon::start();
    machine.done(&["up", "-f", &fixture.manifest]);
    machine.until_it_says("at-first", guest::HELLO);
    let root = fixture.read(0, 2 << 20);

    // It may overwrite the device, and wants another image on it.
    machine.add_image("other", &guest::disk());
    let other = std::fs::read_to_string(&fixture.manifest).unwrap();
    let other = other
        .replace("name: at-first", "name: at-second")
        .replace("virtlet.cloud/tiny", "virtlet.cloud/other")
        .replace(
            "  annotations:\n",
            "  annotations:\n    disklet.io/recreate-root: \"true\"\n",
        );
    let other = machine.write("other.yaml", other).display().to_string();
    let up = ["up", "-f", &other, "--connect", &second.uri];
    let things = machine.things();
    let refused = machine.refused(&up);
    let daemon = machine.virsh_done(&["uri"]);
    let told = format!(
        "may be in use by VM default/at-first, whose daemon is {}",
        daemon.trim()
    );
    assert!(refused.contains(&told), "{refused}");
    assert!(refused.contains("disklet down --connect"), "{refused}");
    // Stopped or not: the second daemon cannot ask.
    machine.destroy("at-first");
    assert!(machine.refused(&up).contains(&told));
    assert_eq!(fixture.read(0, 2 << 20), root);

    machine.done(&["up", "-f", &fixture.manifest]);
    assert_eq!(machine.things(), things);
    machine.done(&["down", "at-first", "--grace", "0"]);
    let waited = [&up[..], &["--wait", "exit", "--timeout", "2m"]].concat();
    machine.done(&waited);
    assert_ne!(fixture.read(0, 2 << 20), root);
    machine.done(&["down", "at-second", "--connect", &second.uri]);
}
