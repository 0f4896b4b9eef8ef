//! Manifests and machines that change while a VM is there.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs::File;
use std::process::Command;

use disklet_block::device::Size;
use support::fixtures::{Fixture, Kind, waiting};
use support::{Machine, guest};

/// The manifest with something in it changed.
fn changed(machine: &Machine, fixture: &Fixture, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    assert!(text.contains(from), "{text}");
    let file = machine.write("changed.yaml", text.replace(from, to));
    file.display().to_string()
}

/// What an `up` that succeeds says beside its answer.
fn notices(machine: &Machine, manifest: &str) -> String {
    let output = machine.node(&["up", "-f", manifest]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_that_runs_by_an_earlier_manifest_says_so() {
    let (machine, fixture) = waiting("earlier");
    machine.done(&["up", "-f", &fixture.manifest]);
    assert_eq!(
        notices(&machine, &fixture.manifest),
        "",
        "nothing has changed"
    );
    let plan = machine.path(&format!("data/vms/{}/plan.json", machine.uuid()));
    let kept = std::fs::read(&plan).unwrap();

    let larger = changed(&machine, &fixture, "memory: 64Mi", "memory: 96Mi");
    let told = notices(&machine, &larger);
    assert!(
        told.starts_with("notice: default/earlier runs as it was started"),
        "{told}"
    );
    assert!(
        told.contains("only after disklet down and up: memory\n"),
        "{told}"
    );
    let more = "  volumes:\n  - name: more\n    flexVolume: {driver: virtlet/flexvolume_driver, options: {type: qcow2, capacity: 8MB}}\n";
    let more = changed(&machine, &fixture, "  volumes:\n", more);
    let told = notices(&machine, &more);
    assert!(told.contains("up: disk more (new)"), "{told}");
    machine.add_image("tiny", &guest::disk());
    let told = notices(&machine, &fixture.manifest);
    assert!(told.contains("up: the image of disk root\n"), "{told}");
    assert_eq!(std::fs::read(&plan).unwrap(), kept, "it runs by this one");

    machine.add_image("tiny", &guest::waiting_disk());
    machine.done(&["down", "earlier", "--grace", "0"]);
    machine.done(&["up", "-f", &larger]);
    assert_eq!(notices(&machine, &larger), "", "now it has the memory");
    machine.done(&["down", "earlier", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_unchanged_manifest_is_told_nothing_whatever_the_disks() {
    for kind in Kind::LOCAL {
        let name = format!("unchanged-{kind:?}").to_lowercase();
        let machine = Machine::new(&name);
        let fixture = Fixture::of_guest(&machine, &name, kind, &guest::waiting_disk());
        machine.done(&["up", "-f", &fixture.manifest]);
        machine.until_it_says(&name, guest::HELLO);
        assert_eq!(notices(&machine, &fixture.manifest), "", "{kind:?}");
        machine.done(&["down", &name, "--grace", "0"]);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_volume_keeps_its_size_and_says_so() {
    let machine = Machine::new("capacity");
    let fixture = Fixture::new(&machine, "capacity", Kind::NewVolume);
    machine.run_to_end(&fixture.manifest);
    let volume = machine.volume("-data");
    let before = std::fs::read(&volume).unwrap();
    machine.destroy_if_runs("capacity");
    assert_eq!(notices(&machine, &fixture.manifest), "");
    for (capacity, in_words, can_grow) in [("16MiB", "16 MiB", true), ("4MiB", "4 MiB", false)] {
        machine.destroy_if_runs("capacity");
        let other = changed(
            &machine,
            &fixture,
            "capacity: 8MB",
            &format!("capacity: {capacity}"),
        );
        let told = notices(&machine, &other);
        assert!(
            told.contains("-data: stays as large as it was made, 7.62 MiB"),
            "{told}"
        );
        assert!(
            told.contains(&format!("the manifest says {in_words}\n")),
            "{told}"
        );
        assert!(told.contains("disklet down removes it"), "{told}");
        assert_eq!(told.contains("disklet image resize"), can_grow, "{told}");
    }
    machine.destroy_if_runs("capacity");
    assert_eq!(machine.open_volume(&volume).size().unwrap(), 8_000_000);
    assert_eq!(std::fs::read(&volume).unwrap(), before, "nothing is lost");
    machine.done(&["down", "capacity", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_device_that_has_lost_its_file_is_not_taken_for_an_empty_one() {
    let machine = Machine::new("lost-file");
    let fixture = Fixture::new(&machine, "lost-file", Kind::RawDevice);
    machine.run_to_end(&fixture.manifest);
    let resize = |size: u64| {
        let file = File::options()
            .write(true)
            .open(fixture.disk.as_ref().unwrap());
        file.unwrap().set_len(size).unwrap();
        let status = Command::new("losetup")
            .args(["-c", fixture.device()])
            .status();
        assert!(status.unwrap().success());
    };
    resize(0);
    let things = machine.things();
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    let told = format!(
        "disk data: {} is empty now, and had 8 MiB",
        fixture.device()
    );
    assert!(refused.contains(&told), "{refused}");
    assert!(refused.contains("losetup"), "{refused}");
    assert_eq!(machine.things(), things);
    // Asking again does not make it right.
    machine.refused(&["up", "-f", &fixture.manifest]);
    resize(8 << 20);
    machine.run_to_end(&fixture.manifest);
    machine.done(&["down", "lost-file", "--grace", "0"]);

    // A VM that never had more is told, and gets what it asks for.
    resize(0);
    let told = notices(&machine, &fixture.manifest);
    assert!(told.contains("the device is empty"), "{told}");
    machine.done(&["down", "lost-file", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_volume_of_another_machine_is_noticed() {
    let machine = Machine::new("other-host");
    let fixture = Fixture::new(&machine, "other-host", Kind::DiskImage);
    let of = |host: &str| {
        let local = format!(
            "nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{host}]}}]}}]}}}}, local:"
        );
        changed(&machine, &fixture, "hostPath:", &local)
    };
    let told = notices(&machine, &of("elsewhere"));
    assert!(
        told.contains("the volume is kept for another machine"),
        "{told}"
    );
    assert!(told.contains("for elsewhere; this is "), "{told}");
    machine.done(&["down", "other-host", "--grace", "0"]);
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(notices(&machine, &of(here.trim())), "");
    machine.done(&["down", "other-host", "--grace", "0"]);
}
