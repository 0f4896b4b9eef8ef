//! One data directory, and VMs at two daemons.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use support::daemon::SecondDaemon;
use support::fixtures::{Fixture, Kind, waiting};
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
    let waited = [&up[..], &["--wait", "exit", "--timeout", "6m"]].concat();
    machine.done(&waited);
    assert_ne!(fixture.read(0, 2 << 20), root);
    machine.done(&["down", "at-second", "--connect", &second.uri]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_at_another_daemon_is_called_so() {
    let (machine, fixture) = waiting("far");
    let second = SecondDaemon::start();
    machine.done(&["up", "-f", &fixture.manifest, "--connect", &second.uri]);
    let told = |arguments: &[&str]| {
        let output = machine.node(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let there = format!("--connect '{}'", second.uri);

    let (shown, notice) = told(&["ps"]);
    assert!(shown.contains("elsewhere"), "{shown}");
    let wanted = format!("notice: default/far: at another daemon, {}\n", second.uri);
    assert!(notice.starts_with(&wanted), "{notice}");
    assert!(notice.contains(&there), "{notice}");
    let (shown, _) = told(&["ps", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown[0]["state"], "elsewhere");
    assert_eq!(shown[0]["libvirt"], second.uri.as_str());
    let (shown, notice) = told(&["ps", "-o", "wide", "--connect", &second.uri]);
    assert!(shown.contains("running"), "{shown}");
    assert!(shown.contains(&second.uri), "{shown}");
    assert_eq!(notice, "");

    let (shown, notice) = told(&["describe", "far"]);
    assert!(shown.contains("State    elsewhere"), "{shown}");
    assert!(shown.contains(&second.uri), "{shown}");
    assert!(shown.contains("allocated"), "its files are here: {shown}");
    assert!(notice.contains(&there), "{notice}");
    let refused = machine.refused(&["console", "far"]);
    let wanted = format!("default/far: its domain is at {}", second.uri);
    assert!(refused.contains(&wanted), "{refused}");
    assert!(refused.contains(&there), "{refused}");

    machine.done(&["gc"]);
    let at_second = ["--grace", "0", "--connect", &second.uri];
    machine.done(&[&["down", "far", "--keep-volumes"][..], &at_second].concat());
    let (shown, notice) = told(&["ps"]);
    assert!(shown.contains("kept"), "{shown}");
    assert_eq!(notice, "");
    machine.done(&[&["down", "far"][..], &at_second].concat());
}
